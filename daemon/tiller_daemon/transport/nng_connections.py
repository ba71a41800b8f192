# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false
"""The connections that submissions come by, and how many answers each of them has yet to read."""

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import pynng

CData = Any  # pynng has no types

ffi: CData = pynng.ffi
lib: CData = pynng.lib

UNWRITTEN_ANSWERS_MAX = 64
"""Answers of one connection that nng keeps until they are written: it drops what is beyond."""

CONNECTIONS_COUNTED_MAX = 256
"""Connections whose answers are counted before those that are gone are looked for."""


class TransportError(Exception):
    """A socket can't be opened; the message says which and what to do."""


class RoutedAnswer(NamedTuple):
    """An answer, and the header of its question, which knows the way back."""

    header: bytes
    body: bytes


class NngConnection:
    """One that questions came by, and how many answers were given to nng for it."""

    def __init__(self, pipe: CData) -> None:
        self._pipe = pipe
        self.pending_answers: deque[RoutedAnswer] = deque()
        self.sending = False
        self.refused = 0
        self.queued = 0
        self.written = 0
        """As nng counted when it was last asked; more since, perhaps."""
        self.closed = False

    def close(self) -> None:
        """Send the other side away: if it is honest, it dials and asks again."""
        lib.nng_pipe_close(self._pipe)
        self.closed = True


class ConnectionTable:
    """Counts for each connection what nng has not written yet, for it drops answers in silence."""

    def __init__(self) -> None:
        self._connections: dict[int, NngConnection] = {}

    def get(self, pipe: CData) -> NngConnection:
        """The connection that is this pipe of nng's."""
        pipe_id = lib.nng_pipe_id(pipe)
        found = self._connections.get(pipe_id)
        if found is None:
            if len(self._connections) >= CONNECTIONS_COUNTED_MAX:
                self._refresh()
            found = self._connections[pipe_id] = NngConnection(pipe)
        return found

    def can_queue(self, connection: NngConnection) -> bool:
        """Whether nng keeps one more answer for it, or it needs none any more."""
        if connection.queued - connection.written >= UNWRITTEN_ANSWERS_MAX:
            self._refresh()
        return connection.closed or connection.queued - connection.written < UNWRITTEN_ANSWERS_MAX

    def _refresh(self) -> None:
        """Read nng's own counters (100 us with 20 connections) and forget who is gone."""
        written = _written_by_pipe()
        for pipe_id, connection in list(self._connections.items()):
            connection.closed = connection.closed or pipe_id not in written
            if pipe_id not in written:
                del self._connections[pipe_id]
            else:
                connection.written = written[pipe_id]


def _written_by_pipe() -> dict[int, int]:
    """Messages written by each connection that is open, by the connection's id."""
    slot = ffi.new("nng_stat **")
    check(lib.nng_stats_get(slot), "count what was answered")
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
    """Raise `TransportError` for what a function of nng returned, if that is an error."""
    if error:
        raise TransportError(f"cannot {doing}: {text_of(error)}; look at the runtime directory")


def text_of(error: int) -> str:
    """What nng says of an error."""
    return ffi.string(lib.nng_strerror(error)).decode()
