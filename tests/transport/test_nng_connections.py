"""The table of connections, without sockets: what nng counts is given."""

from tiller_daemon.transport.nng_connections import CONNECTIONS_CHECKED_MIN, ConnectionTable, ffi

CONNECTIONS = 10_000


def table_that_counts(open_pipes: dict[int, int]) -> tuple[ConnectionTable, list[int]]:
    """A table, and how many connections it looked at each time."""
    looked_at: list[int] = []

    def count_written() -> dict[int, int]:
        looked_at.append(len(open_pipes))
        return dict(open_pipes)

    return ConnectionTable(count_written), looked_at


def connect(table: ConnectionTable, pipe_id: int) -> None:
    table.get(ffi.new("nng_pipe *", {"id": pipe_id})[0])


def test_looking_at_open_connections_costs_each_of_them_as_little_with_many_as_with_few() -> None:
    open_pipes: dict[int, int] = {}
    table, looked_at = table_that_counts(open_pipes)
    for pipe_id in range(1, CONNECTIONS + 1):
        open_pipes[pipe_id] = 0
        connect(table, pipe_id)
    assert sum(looked_at) < 2 * CONNECTIONS


def test_connections_that_were_closed_do_not_pile_up() -> None:
    open_pipes = {1: 0}
    table, looked_at = table_that_counts(open_pipes)
    for pipe_id in range(1, CONNECTIONS + 1):
        connect(table, pipe_id)
    assert len(looked_at) >= CONNECTIONS // CONNECTIONS_CHECKED_MIN - 1
