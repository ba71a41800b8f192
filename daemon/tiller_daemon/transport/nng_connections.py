# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false
"""The connections for submissions, and how many answers each of them has yet to read."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import pynng

CData = Any  # pynng has no types

ffi: CData = pynng.ffi
lib: CData = pynng.lib

THREADS = {
    "NNG_INIT_NUM_TASK_THREADS": (1, 2),
    "NNG_INIT_NUM_EXPIRE_THREADS": (2, 1),
    "NNG_INIT_NUM_POLLER_THREADS": (3, 1),
    "NNG_INIT_NUM_RESOLVER_THREADS": (4, 1),
}
"""nng's parameters by name, each with its number in `nng.h` and its value.

By default nng starts two task threads per processor. They only pass messages on, and more than two
threads mostly wait for each other's locks.
"""

UNWRITTEN_ANSWERS_MAX = 64
"""How many unwritten answers nng queues per connection; it silently drops any others."""

CONNECTIONS_CHECKED_MIN = 256
"""The size from which the table is searched for closed connections, which are removed."""


for _number, _value in THREADS.values():
    lib.nng_init_set_parameter(
        _number, _value
    )  # takes effect when nng starts, with the first socket


class TransportError(Exception):
    """An operation on a socket failed; the message says which one, and what to do."""


class RoutedAnswer(NamedTuple):
    """An answer, and the header of its submission, which holds the route back."""

    header: bytes
    body: bytes


class NngConnection:
    """A frontend's connection, with the answers that wait until it has read earlier answers."""

    def __init__(self, pipe: CData) -> None:
        self._pipe = pipe
        self.pending_answers: deque[RoutedAnswer] = deque()
        self.sending = False
        """Whether a task is sending the connection's answers."""
        self.refused = 0
        """How many submissions were rejected for their token."""
        self.queued = 0
        """How many answers were passed to nng."""
        self.written = 0
        """How many answers nng had written at the last update; by now it may be more."""
        self.closed = False

    def close(self) -> None:
        """Close the connection; an honest frontend reconnects and sends its submissions again."""
        lib.nng_pipe_close(self._pipe)
        self.closed = True


class ConnectionTable:
    """Counts the unwritten answers of each connection, because nng silently drops answers."""

    def __init__(self, count_written: Callable[[], dict[int, int]] | None = None) -> None:
        """Use `count_written` to count the messages written so far to each connection.

        It returns a number for each open connection, by the id of the connection.
        """
        self._count_written: Final = count_written or _written_by_pipe
        self._connections: dict[int, NngConnection] = {}
        self._check_at = CONNECTIONS_CHECKED_MIN

    def get(self, pipe: CData) -> NngConnection:
        """Return the connection for one of nng's pipes; a new connection is added."""
        pipe_id = lib.nng_pipe_id(pipe)
        connection = self._connections.get(pipe_id)
        if connection is None:
            if len(self._connections) >= self._check_at:
                self._refresh()
                # Checking all connections takes time, so wait until the table is twice as large.
                self._check_at = max(CONNECTIONS_CHECKED_MIN, 2 * len(self._connections))
            connection = self._connections[pipe_id] = NngConnection(pipe)
        return connection

    def can_queue(self, connection: NngConnection) -> bool:
        """Whether nng can queue one more answer, or the connection is closed."""
        if connection.queued - connection.written >= UNWRITTEN_ANSWERS_MAX:
            self._refresh()
        return connection.closed or connection.queued - connection.written < UNWRITTEN_ANSWERS_MAX

    def _refresh(self) -> None:
        """Update the table from nng's counters, and remove closed connections.

        This takes 100 us with 20 connections.
        """
        written = self._count_written()
        for pipe_id, connection in list(self._connections.items()):
            connection.closed = connection.closed or pipe_id not in written
            if pipe_id not in written:
                del self._connections[pipe_id]
            else:
                connection.written = written[pipe_id]


def _written_by_pipe() -> dict[int, int]:
    """Return the number of messages written so far to each open connection, by pipe id."""
    slot = ffi.new("nng_stat **")
    check(lib.nng_stats_get(slot), "count the answers written")
    statistics = ffi.gc(slot[0], lib.nng_stats_free)
    written: dict[int, int] = {}
    for scope in _statistics_in(statistics):
        if ffi.string(lib.nng_stat_name(scope)) == b"pipe":
            figures = {
                ffi.string(lib.nng_stat_name(figure)): lib.nng_stat_value(figure)
                for figure in _statistics_in(scope)
            }
            written[figures[b"id"]] = figures[b"tx_msgs"]
    return written


def _statistics_in(scope: CData) -> Iterator[CData]:
    statistic = lib.nng_stat_child(scope)
    while statistic != ffi.NULL:
        yield statistic
        statistic = lib.nng_stat_next(statistic)


def check(error: int, doing: str) -> None:
    """Raise `TransportError` if `error`, the result of one of nng's functions, is not 0."""
    if error:
        raise TransportError(f"cannot {doing}: {text_of(error)}: check the runtime directory")


def text_of(error: int) -> str:
    """Return nng's message for an error code."""
    return ffi.string(lib.nng_strerror(error)).decode()
