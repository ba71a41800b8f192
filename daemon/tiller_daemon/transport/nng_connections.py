# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false
"""The connections of submissions, and how many answers each has yet to read."""

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
"""Parameters of nng by name, each with its number in `nng.h` and its value.

By default nng starts two threads for tasks per processor. They only pass messages on, and more than
two of them mostly wait for each other's locks.
"""

UNWRITTEN_ANSWERS_MAX = 64
"""Answers per connection that nng queues until they are written; it silently drops more."""

CONNECTIONS_CHECKED_MIN = 256
"""The smallest size of the table at which closed connections are removed from it."""


for _number, _value in THREADS.values():
    lib.nng_init_set_parameter(
        _number, _value
    )  # takes effect when nng starts, with the first socket


class TransportError(Exception):
    """An operation on a socket failed; the message says which and what to do."""


class RoutedAnswer(NamedTuple):
    """An answer, and the header of its submission, which holds the route back."""

    header: bytes
    body: bytes


class NngConnection:
    """The connection of a frontend, with the answers that wait for it to read earlier ones."""

    def __init__(self, pipe: CData) -> None:
        self._pipe = pipe
        self.pending_answers: deque[RoutedAnswer] = deque()
        self.sending = False
        """Whether a task sends its answers."""
        self.refused = 0
        """Submissions that were rejected for their token."""
        self.queued = 0
        """Answers passed to nng."""
        self.written = 0
        """Answers that nng had written at the last update; there may be more by now."""
        self.closed = False

    def close(self) -> None:
        """Close the connection; an honest frontend reconnects and sends its submissions again."""
        lib.nng_pipe_close(self._pipe)
        self.closed = True


class ConnectionTable:
    """Counts the unwritten answers of each connection, because nng silently drops answers."""

    def __init__(self, count_written: Callable[[], dict[int, int]] | None = None) -> None:
        """`count_written` returns the messages written so far by each open connection, by id."""
        self._count_written: Final = count_written or _written_by_pipe
        self._connections: dict[int, NngConnection] = {}
        self._check_at = CONNECTIONS_CHECKED_MIN

    def get(self, pipe: CData) -> NngConnection:
        """The connection of a pipe of nng; added if it is new."""
        pipe_id = lib.nng_pipe_id(pipe)
        connection = self._connections.get(pipe_id)
        if connection is None:
            if len(self._connections) >= self._check_at:
                self._refresh()
                # Looking at each takes time, so it is done again only for twice as many.
                self._check_at = max(CONNECTIONS_CHECKED_MIN, 2 * len(self._connections))
            connection = self._connections[pipe_id] = NngConnection(pipe)
        return connection

    def can_queue(self, connection: NngConnection) -> bool:
        """Whether nng can queue one more answer, or the connection is closed."""
        if connection.queued - connection.written >= UNWRITTEN_ANSWERS_MAX:
            self._refresh()
        return connection.closed or connection.queued - connection.written < UNWRITTEN_ANSWERS_MAX

    def _refresh(self) -> None:
        """Update from nng's counters (100 us with 20 connections); remove closed connections."""
        written = self._count_written()
        for pipe_id, connection in list(self._connections.items()):
            connection.closed = connection.closed or pipe_id not in written
            if pipe_id not in written:
                del self._connections[pipe_id]
            else:
                connection.written = written[pipe_id]


def _written_by_pipe() -> dict[int, int]:
    """Messages written so far by each open connection, by pipe id."""
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
    """Raise `TransportError` if `error`, the result of a function of nng, is not 0."""
    if error:
        raise TransportError(f"cannot {doing}: {text_of(error)}: check the runtime directory")


def text_of(error: int) -> str:
    """Nng's message for an error code."""
    return ffi.string(lib.nng_strerror(error)).decode()
