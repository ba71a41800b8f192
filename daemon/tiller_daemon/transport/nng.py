# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false
"""The daemon's two nng sockets: `ops` answers submissions, and `events` publishes events.

Only this package imports pynng. It uses nng's C functions instead of pynng's classes, whose
callbacks run Python in nng's threads. The REP socket is opened raw, so that the header of a message
holds the route back and submissions can be answered in any order. A message is received by a
non-blocking call when the descriptor is readable. `nng_connections` counts the answers that
frontends have not read yet.
"""

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

import trio

from tiller_daemon.transport.base import Admission, Handler
from tiller_daemon.transport.nng_connections import (
    CData,
    ConnectionTable,
    NngConnection,
    RoutedAnswer,
    TransportError,
    check,
    ffi,
    lib,
    text_of,
)
from tiller_protocol.codec import encode_publication
from tiller_protocol.places import EVENTS_SOCKET, OPS_SOCKET

SUBMISSIONS_MAX = 64
"""The most submissions that are handled at once; others wait in nng and in their senders."""

SUBMISSION_BYTES_MAX = 64 * 1024 * 1024
"""The bytes of submissions and answers in progress at which no further submission is received."""

UNWRITTEN_POLL_S = 0.005
"""How often to check how much nng has written, because nng does not notify."""

RECEIVE_MESSAGES_MAX = 0
"""How many submissions nng buffers besides one per connection; each of them may be large."""

REFUSALS_MAX = 16
"""A connection with more rejected submissions than this is closed.

An honest frontend has fewer in progress when the daemon restarts with another token.
"""

PENDING_ANSWERS_MAX = 8192
"""The most answers queued for a connection; with more, the connection is closed."""

PUBLICATIONS_MAX = 8191
"""The most publications queued for a slow subscriber, which then loses the oldest ones.

nng 1.11 writes past the end of a full queue that was resized to a power of two (`lmq_put` in its
`lmq.c`). So this is one less than a power of two, and stays so when halved. nng's maximum is 8,192.
"""

PUBLICATION_BYTES_MAX = 4 * 1024 * 1024
"""The most bytes of publications queued for all slow subscribers together, as nng shares the
buffers. A single publication may be larger."""

SEND_S_MAX = 5.0
"""How long an answer may wait until nng takes it, even when the daemon is stopping.

After that the connection is closed. A frontend that still wants the answer reconnects and sends its
submission again.
"""

SOCKET_MODE = 0o600


class NngTransport:
    """The daemon's sockets for frontends, in a runtime directory that the caller has locked.

    This is a context manager. Entering it listens, and leaving it closes both sockets. Leave it
    after `serve` and the last `publish`, but before the event loop ends and before the directory is
    unlocked.
    """

    def __init__(self, runtime: Path, message_bytes_max: int) -> None:
        """Use the directory `runtime`.

        A message larger than `message_bytes_max` closes its sender's connection.
        """
        self._runtime = runtime
        self._message_bytes_max = message_bytes_max
        self._ops: CData = None
        self._events: CData = None
        self._receivable = self._sendable = -1
        self._sending = trio.Lock()
        self._connections = ConnectionTable()
        self._queued_sizes: deque[int] = deque()
        self._queued_bytes = 0
        self._publications_max = PUBLICATIONS_MAX
        self._handling = 0
        self._handling_bytes = 0
        self._capacity = trio.lowlevel.ParkingLot()

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
            # Events come first, so that a frontend that can submit can also subscribe.
            self._listen(self._events, EVENTS_SOCKET)
            self._listen(self._ops, OPS_SOCKET)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Close both sockets, submissions first; publications still queued are dropped."""
        self._close()

    async def serve(self, handler: Handler, admit: Admission | None = None) -> None:
        """Answer submissions until cancelled; close a connection with many rejections.

        Cancellation drops submissions without an answer, and their senders send them again.
        """
        async with trio.open_nursery() as nursery:
            while True:
                await trio.lowlevel.wait_readable(self._receivable)
                for message in self._receive(admit):
                    nursery.start_soon(self._answer, handler, message)
                    # Further senders must wait until some answers have been sent.
                    while self._is_full():
                        await self._capacity.park()

    def publish(self, topic: str, event: bytes) -> None:
        """Send an encoded event; a subscriber that does not keep up loses the oldest events."""
        message = encode_publication(topic, event)
        self._bound_publications(len(message))
        error = lib.nng_send(self._events[0], message, len(message), lib.NNG_FLAG_NONBLOCK)
        if error not in (0, lib.NNG_EAGAIN, lib.NNG_ENOMEM):
            raise TransportError(f"cannot publish, so the socket is closed: {text_of(error)}")

    def _bound_publications(self, size: int) -> None:
        """Shrink nng's queue while publications are large, because nng limits only their number."""
        sizes, most = self._queued_sizes, self._publications_max
        sizes.append(size)
        self._queued_bytes += size
        while self._queued_bytes > PUBLICATION_BYTES_MAX and most > 1:
            most //= 2
            self._drop_oldest(most)
        if len(sizes) > most:
            self._drop_oldest(most)
            if most < PUBLICATIONS_MAX and self._queued_bytes < PUBLICATION_BYTES_MAX // 4:
                most = 2 * most + 1
        if most != self._publications_max:
            _set_int(self._events, b"send-buffer", most)
            self._publications_max = most

    def _drop_oldest(self, most: int) -> None:
        while len(self._queued_sizes) > most:
            self._queued_bytes -= self._queued_sizes.popleft()

    def _receive(self, admit: Admission | None) -> Iterator["_Submission"]:
        """Yield the messages that have arrived from our own user, copied out of nng's memory."""
        slot = ffi.new("nng_msg **")
        while lib.nng_recvmsg(self._ops[0], slot, lib.NNG_FLAG_NONBLOCK) == 0:
            message = self._accept(ffi.gc(slot[0], lib.nng_msg_free), admit)
            if message is not None:
                self._handling += 1
                self._handling_bytes += len(message.body)
                yield message

    def _accept(self, handle: CData, admit: Admission | None) -> "_Submission | None":
        if not _is_from_owner(handle):
            return None
        connection = self._connections.get(lib.nng_msg_get_pipe(handle))
        if connection.closed:
            return None
        body = ffi.buffer(lib.nng_msg_body(handle), lib.nng_msg_len(handle))
        header = bytes(ffi.buffer(lib.nng_msg_header(handle), lib.nng_msg_header_len(handle)))
        refusal = admit(memoryview(body)) if admit else None
        if refusal is None:
            return _Submission(connection, header, bytes(body))
        connection.refused += 1
        if connection.refused > REFUSALS_MAX:
            connection.close()
            return None
        return _Submission(connection, header, b"", refusal)

    def _is_full(self) -> bool:
        return self._handling >= SUBMISSIONS_MAX or self._handling_bytes >= SUBMISSION_BYTES_MAX

    async def _answer(self, handler: Handler, message: "_Submission") -> None:
        size = len(message.body)
        try:
            refusal = message.refusal
            answer = await handler(message.body) if refusal is None else refusal
            self._handling_bytes += len(answer)
            message.connection.pending_answers.append(RoutedAnswer(message.header, answer))
        finally:
            self._handling -= 1
            self._handling_bytes -= size
            self._capacity.unpark()
        await self._send_all(message.connection)

    async def _send_all(self, connection: NngConnection) -> None:
        """Send a connection's answers in order; only one task per connection does so."""
        # A frontend that does not read its answers would fill the memory.
        if len(connection.pending_answers) > PENDING_ANSWERS_MAX:
            connection.close()
        if connection.sending:
            return
        connection.sending = True
        try:
            while connection.pending_answers:
                await trio.lowlevel.checkpoint_if_cancelled()
                if not connection.closed:
                    await self._send(connection, connection.pending_answers[0])
                self._handling_bytes -= len(connection.pending_answers.popleft().body)
                self._capacity.unpark()
        finally:
            self._handling_bytes -= sum(len(answer.body) for answer in connection.pending_answers)
            connection.pending_answers.clear()
            connection.sending = False
            self._capacity.unpark()

    async def _send(self, connection: NngConnection, answer: RoutedAnswer) -> None:
        # Shielded, because the submission has taken effect, so its sender should get the answer.
        with trio.move_on_after(SEND_S_MAX, shield=True):
            while not self._connections.can_queue(connection):  # noqa: ASYNC110 - no notification
                await trio.sleep(UNWRITTEN_POLL_S)
            if not connection.closed and await self._send_message(_make_message(answer)):
                connection.queued += 1
            return
        connection.close()

    async def _send_message(self, handle: CData) -> bool:
        """Pass a message to nng; return False if the socket is closed."""
        while (error := self._try_send(handle)) == lib.NNG_EAGAIN:
            async with self._sending:
                await trio.lowlevel.wait_readable(self._sendable)
        return error == 0

    def _try_send(self, handle: CData) -> int:
        error = lib.nng_sendmsg(self._ops[0], handle, lib.NNG_FLAG_NONBLOCK)
        if error == 0:
            ffi.gc(handle, None)  # nng owns the message now and frees it
        return error

    def _listen(self, socket: CData, name: str) -> None:
        path = self._runtime / name
        listener = ffi.new("nng_listener *")
        doing = f"listen at {path}"
        size = self._message_bytes_max
        check(lib.nng_socket_set_size(socket[0], b"recv-size-max", size), "set recv-size-max")
        check(lib.nng_listener_create(listener, socket[0], f"ipc://{path}".encode()), doing)
        check(lib.nng_listener_set_int(listener[0], b"ipc:permissions", SOCKET_MODE), doing)
        check(lib.nng_listener_start(listener[0], 0), doing)

    def _close(self) -> None:
        for descriptor in (self._receivable, self._sendable):
            if descriptor >= 0:
                # Wakes tasks that still wait for the descriptor, which nng closes below.
                trio.lowlevel.notify_closing(descriptor)
        self._receivable = self._sendable = -1
        for socket in (self._ops, self._events):
            if socket is not None:
                lib.nng_close(socket[0])
        self._ops = self._events = None


class _Submission(NamedTuple):
    """A submission; if it was rejected, `refusal` is the answer, and the body is empty."""

    connection: NngConnection
    header: bytes
    body: bytes
    refusal: bytes | None = None


def _open(opener: CData) -> CData:
    socket = ffi.new("nng_socket *")
    check(opener(socket), "open a socket")
    return socket


def _set_int(socket: CData, option: bytes, value: int) -> None:
    check(lib.nng_socket_set_int(socket[0], option, value), f"set {option.decode()}")


def _descriptor(socket: CData, option: bytes) -> int:
    value = ffi.new("int *")
    check(lib.nng_socket_get_int(socket[0], option, value), f"get {option.decode()}")
    return value[0]


def _is_from_owner(handle: CData) -> bool:
    """Whether the sender has our uid; False if the uid is unknown or the sender is gone."""
    uid = ffi.new("uint64_t *")
    error = lib.nng_pipe_get_uint64(lib.nng_msg_get_pipe(handle), b"ipc:peer-uid", uid)
    return error == 0 and uid[0] == os.geteuid()


def _make_message(answer: RoutedAnswer) -> CData:
    slot = ffi.new("nng_msg **")
    check(lib.nng_msg_alloc(slot, 0), "copy an answer")
    handle = ffi.gc(slot[0], lib.nng_msg_free)
    header, body = answer
    check(lib.nng_msg_header_append(handle, header, len(header)), "copy an answer")
    check(lib.nng_msg_append(handle, body, len(body)), "copy an answer")
    return handle
