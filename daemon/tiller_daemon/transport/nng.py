# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false
"""The two nng sockets of the daemon: `ops` answers submissions, `events` publishes.

The only file of the daemon that imports pynng, and it goes below its classes: sockets without
callbacks, so that no Python runs in a thread of nng and none waits for the interpreter there. REP
is opened raw: a message carries the way back in its header, so that any number of submissions is
answered in any order, and receiving is a non-blocking call after the descriptor became readable.
"""

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import pynng
import trio

from tiller_daemon.transport.base import Handler
from tiller_protocol.codec import TOPIC_END
from tiller_protocol.places import EVENTS_SOCKET, OPS_SOCKET

CData = Any  # pynng has no types

ffi: CData = pynng.ffi
lib: CData = pynng.lib

SUBMISSIONS_MAX = 64
"""Submissions being handled at the same time; further ones wait in nng and in their senders."""

SUBMISSION_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of submissions and of answers on their way, beyond which no submission is received."""

UNWRITTEN_ANSWERS_MAX = 64
"""Answers of one connection that nng keeps until they are written: it drops what is beyond."""

UNWRITTEN_POLL_S = 0.005
"""How long until nng, which tells nobody, is asked again what it has written."""

CONNECTIONS_COUNTED_MAX = 256
"""Connections whose answers are counted before those that are gone are looked for."""

RECEIVE_MESSAGES_MAX = 16
"""Submissions that nng holds ready for us, beside one per connection."""

PUBLICATIONS_MAX = 8191
"""Publications kept for a slow subscriber; then it loses the oldest.

One below a power of two, as is every half of it: nng 1.11 writes behind a full queue that was
resized to a power of two (`lmq_put` in its `lmq.c`). It allows 8,192.
"""

PUBLICATION_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of publications kept for the slow subscribers together (nng shares them), beside one."""

SEND_S_MAX = 5.0
"""How long an answer may wait for nng to take it, even when the daemon is stopping.

Then its connection is closed: a frontend that still wants answers dials and asks again.
"""

SOCKET_MODE = 0o600


class TransportError(Exception):
    """A socket can't be opened; the message says which and what to do."""


class NngTransport:
    """Keeps `Transport` over nng in a runtime directory that the caller holds (T6).

    A context manager: entering listens, leaving closes both sockets. Leave it before the loop ends
    and before the directory is given up, after `serve` and every `publish`.
    """

    def __init__(self, runtime: Path, message_bytes_max: int) -> None:
        """Messages over `message_bytes_max` close the connection that they come from."""
        self._runtime = runtime
        self._message_bytes_max = message_bytes_max
        self._ops: CData = None
        self._events: CData = None
        self._receivable = self._sendable = -1
        self._sending = trio.Lock()
        self._answered = _Answered()
        self._kept_sizes: deque[int] = deque()
        self._kept_bytes = 0
        self._publications_max = PUBLICATIONS_MAX
        self._handling = 0
        self._handling_bytes = 0
        self._room = trio.lowlevel.ParkingLot()

    def __enter__(self) -> Self:
        """Open both sockets; raises `TransportError`."""
        try:
            self._events = _open(lib.nng_pub0_open)
            _set_int(self._events, b"send-buffer", PUBLICATIONS_MAX)
            self._ops = _open(lib.nng_rep0_open_raw)
            _set_int(self._ops, b"recv-buffer", RECEIVE_MESSAGES_MAX)
            _set_int(self._ops, b"send-buffer", SUBMISSIONS_MAX)
            self._receivable = _descriptor(self._ops, b"recv-fd")
            self._sendable = _descriptor(self._ops, b"send-fd")
            self._listen(self._events, EVENTS_SOCKET)
            self._listen(self._ops, OPS_SOCKET)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close both sockets, submissions first; what waits for a slow subscriber is dropped."""
        self._close()

    async def serve(self, handler: Handler) -> None:
        """Answer submissions until cancelled; several are handled at the same time.

        Cancellation: a submission without an answer is dropped, its sender sends it again.
        """
        async with trio.open_nursery() as nursery:
            while True:
                await trio.lowlevel.wait_readable(self._receivable)
                for message in self._waiting():
                    nursery.start_soon(self._answer, handler, message)
                    while self._is_full():
                        await self._room.park()

    def publish(self, topic: str, event: bytes) -> None:
        """Send an encoded event to the subscribers of `topic`; never blocks.

        A subscriber that does not keep up loses the oldest ones in silence; replay helps (T4).
        """
        message = topic.encode() + TOPIC_END + event
        self._bound_publications(len(message))
        error = lib.nng_send(self._events[0], message, len(message), lib.NNG_FLAG_NONBLOCK)
        if error not in (0, lib.NNG_EAGAIN, lib.NNG_ENOMEM):
            raise TransportError(f"cannot publish: {_text(error)}; the socket is closed")

    def _bound_publications(self, size: int) -> None:
        """Let nng keep fewer messages while they are large; it bounds their number only."""
        sizes, most = self._kept_sizes, self._publications_max
        sizes.append(size)
        self._kept_bytes += size
        while self._kept_bytes > PUBLICATION_BYTES_MAX and most > 1:
            most //= 2
            self._forget(most)
        if len(sizes) > most:
            self._forget(most)
            if most < PUBLICATIONS_MAX and self._kept_bytes < PUBLICATION_BYTES_MAX // 4:
                most = 2 * most + 1
        if most != self._publications_max:
            _set_int(self._events, b"send-buffer", most)
            self._publications_max = most

    def _forget(self, most: int) -> None:
        while len(self._kept_sizes) > most:
            self._kept_bytes -= self._kept_sizes.popleft()

    def _waiting(self) -> Iterator["_Message"]:
        """The messages that are there, from our own user only."""
        slot = ffi.new("nng_msg **")
        while lib.nng_recvmsg(self._ops[0], slot, lib.NNG_FLAG_NONBLOCK) == 0:
            handle = ffi.gc(slot[0], lib.nng_msg_free)
            if not _is_from_owner(handle):
                continue
            body = bytes(ffi.buffer(lib.nng_msg_body(handle), lib.nng_msg_len(handle)))
            self._handling += 1
            self._handling_bytes += len(body)
            yield _Message(handle, body)

    def _is_full(self) -> bool:
        return self._handling >= SUBMISSIONS_MAX or self._handling_bytes >= SUBMISSION_BYTES_MAX

    async def _answer(self, handler: Handler, message: "_Message") -> None:
        size = len(message.body)
        try:
            try:
                answer = await handler(message.body)
            finally:
                self._handling -= 1
                self._room.unpark()
            self._handling_bytes += len(answer) - size
            size = len(answer)
            await self._send(message.handle, answer)
        finally:
            self._handling_bytes -= size
            self._room.unpark()

    async def _send(self, handle: CData, answer: bytes) -> None:
        """Put the answer in the place of the question; its header knows the way back."""
        lib.nng_msg_clear(handle)
        _check(lib.nng_msg_append(handle, answer, len(answer)), "keep an answer")
        pipe = lib.nng_msg_get_pipe(handle)
        connection = self._answered.by(lib.nng_pipe_id(pipe))
        async with connection.sending:
            with trio.move_on_after(SEND_S_MAX, shield=True):
                while not self._answered.has_room(connection):  # noqa: ASYNC110 - nng tells nobody
                    await trio.sleep(UNWRITTEN_POLL_S)
                if await self._give(handle):
                    connection.given += 1
                return
            lib.nng_pipe_close(pipe)
            connection.gone = True

    async def _give(self, handle: CData) -> bool:
        """Whether nng has the message; else its socket is closed."""
        while (error := self._try_send(handle)) == lib.NNG_EAGAIN:
            async with self._sending:
                await trio.lowlevel.wait_readable(self._sendable)
        return error == 0

    def _try_send(self, handle: CData) -> int:
        error = lib.nng_sendmsg(self._ops[0], handle, lib.NNG_FLAG_NONBLOCK)
        if error == 0:
            ffi.gc(handle, None)  # it is nng's now
        return error

    def _listen(self, socket: CData, name: str) -> None:
        path = self._runtime / name
        listener = ffi.new("nng_listener *")
        doing = f"listen at {path}"
        _set_size(socket, b"recv-size-max", self._message_bytes_max)
        _check(lib.nng_listener_create(listener, socket[0], f"ipc://{path}".encode()), doing)
        _check(lib.nng_listener_set_int(listener[0], b"ipc:permissions", SOCKET_MODE), doing)
        _check(lib.nng_listener_start(listener[0], 0), doing)

    def _close(self) -> None:
        for descriptor in (self._receivable, self._sendable):
            if descriptor >= 0:
                trio.lowlevel.notify_closing(descriptor)
        self._receivable = self._sendable = -1
        for socket in (self._ops, self._events):
            if socket is not None:
                lib.nng_close(socket[0])
        self._ops = self._events = None


class _Connection:
    """One that questions came by, and how many answers were given to nng for it."""

    def __init__(self) -> None:
        self.sending = trio.Lock()
        self.given = 0
        self.written = 0
        """As nng counted when it was last asked; more since, perhaps."""
        self.gone = False


class _Answered:
    """Counts for each connection what nng has not written yet, for it drops answers in silence."""

    def __init__(self) -> None:
        self._connections: dict[int, _Connection] = {}

    def by(self, pipe_id: int) -> _Connection:
        found = self._connections.get(pipe_id)
        if found is None:
            if len(self._connections) >= CONNECTIONS_COUNTED_MAX:
                self._ask()
            found = self._connections[pipe_id] = _Connection()
        return found

    def has_room(self, connection: _Connection) -> bool:
        """Whether nng keeps one more answer for it, or it needs none any more."""
        if connection.given - connection.written >= UNWRITTEN_ANSWERS_MAX:
            self._ask()
        return connection.gone or connection.given - connection.written < UNWRITTEN_ANSWERS_MAX

    def _ask(self) -> None:
        """Read nng's own counters (100 us with 20 connections) and forget who is gone."""
        written = _written_by_pipe()
        for pipe_id, connection in list(self._connections.items()):
            connection.gone = pipe_id not in written
            if connection.gone:
                del self._connections[pipe_id]
            else:
                connection.written = written[pipe_id]


class _Message(NamedTuple):
    handle: CData
    body: bytes


def _open(opener: CData) -> CData:
    socket = ffi.new("nng_socket *")
    _check(opener(socket), "open a socket")
    return socket


def _set_int(socket: CData, option: bytes, value: int) -> None:
    _check(lib.nng_socket_set_int(socket[0], option, value), f"set {option.decode()}")


def _set_size(socket: CData, option: bytes, value: int) -> None:
    _check(lib.nng_socket_set_size(socket[0], option, value), f"set {option.decode()}")


def _descriptor(socket: CData, option: bytes) -> int:
    value = ffi.new("int *")
    _check(lib.nng_socket_get_int(socket[0], option, value), f"get {option.decode()}")
    return value[0]


def _written_by_pipe() -> dict[int, int]:
    """Messages written by each connection that is open, by the connection's id."""
    slot = ffi.new("nng_stat **")
    _check(lib.nng_stats_get(slot), "count what was answered")
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


def _is_from_owner(handle: CData) -> bool:
    """Whether the sender's uid is ours; false too when it can't be told, or it is gone."""
    uid = ffi.new("uint64_t *")
    error = lib.nng_pipe_get_uint64(lib.nng_msg_get_pipe(handle), b"ipc:peer-uid", uid)
    return error == 0 and uid[0] == os.geteuid()


def _check(error: int, doing: str) -> None:
    if error:
        raise TransportError(f"cannot {doing}: {_text(error)}; look at the runtime directory")


def _text(error: int) -> str:
    return ffi.string(lib.nng_strerror(error)).decode()
