"""A frontend's two sockets: REQ for ops, SUB for the events of one topic.

All waits have a timeout, so that Ctrl-C works at once. There are no background threads: a socket
reads and reconnects only when it is used.
"""

import contextlib
import errno
import math
import os
import select
import time
from typing import Self

from tiller_client.connecting.nng_pipe import PUB, REP, REQ, SUB, ConnectionLost, NngPipe
from tiller_client.connecting.runtime import runtime_of
from tiller_client.errors import TillerError
from tiller_protocol.codec import TOPIC_END, decode_event
from tiller_protocol.errors import BadMessage
from tiller_protocol.events import Event
from tiller_protocol.places import EVENTS_SOCKET, OPS_SOCKET, Places

RESEND_S = 10.0
"""Time after which an unanswered request is sent again; a new connection gets it at once."""

RECONNECT_S = 0.05
"""Shortest time between two attempts to connect for events."""

JOIN_DEADLINE_S = 1.0
"""Longest wait for the first connection; without a connection, events come later, by replay."""

REQUEST_ID_BYTES = 4
LAST_PART = 0x8000_0000
"""The bit that marks the last number of a route in nng; here routes have only one number."""

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class RequestSocket:
    """REQ socket for ops. Has one request at a time: a new request replaces the previous one."""

    def __init__(self, places: Places) -> None:
        """Prepare the socket; `connect` connects it to the daemon that then runs."""
        self._places = places
        self._pipe: NngPipe | None = None
        self._number = int.from_bytes(os.urandom(REQUEST_ID_BYTES), "big")
        self._id = b""
        self._frame: bytes | None = None
        self._sent_at = 0.0

    @property
    def connected(self) -> bool:
        """Whether the socket is connected, as far as is known."""
        return self._pipe is not None

    def connect(self, greeting_s: float = 0.0) -> bool:
        """Connect if there is no connection; return false if no daemon listens.

        With `greeting_s`, a daemon that sends no greeting within this time does not count as
        listening. A new connection gets the unanswered request again.
        """
        if self._pipe is None:
            self._pipe = _open(self._places, OPS_SOCKET, REQ, REP)
            if self._pipe and greeting_s and not _is_greeted(self._pipe, greeting_s):
                self.close()
            self._send()
        return self._pipe is not None

    def send(self, frame: bytes) -> None:
        """Send a request, either now or once the socket is connected."""
        self._number += 1
        self._id = (self._number & (LAST_PART - 1) | LAST_PART).to_bytes(REQUEST_ID_BYTES, "big")
        self._frame = frame
        self._send()

    def receive(self, timeout_s: float) -> bytes | None:
        """Return the answer; `None` if it does not arrive in time or the connection is lost."""
        deadline = time.monotonic() + timeout_s
        try:
            while self._pipe and (left := deadline - time.monotonic()) > 0:
                if time.monotonic() - self._sent_at > RESEND_S and not self._pipe.has_unsent:
                    self._send()
                if (answer := self._take(self._pipe, min(left, RESEND_S))) is not None:
                    self._frame = None
                    return answer
        except ConnectionLost:
            self.close()
        return None

    def close(self) -> None:
        """Close the connection; a pending answer is dropped."""
        if self._pipe:
            self._pipe.close()
            self._pipe = None

    def _send(self) -> None:
        if self._pipe and self._frame is not None:
            self._pipe.send((self._id, self._frame))
            self._sent_at = time.monotonic()

    def _take(self, pipe: NngPipe, timeout_s: float) -> bytes | None:
        """Wait once until the connection is ready; return the answer if it has arrived."""
        unsent = [pipe] if pipe.has_unsent else []
        readable, writable, _ = select.select([pipe], unsent, [], timeout_s)
        if writable:
            pipe.write()
        for message in pipe.read() if readable else ():
            if len(message) < REQUEST_ID_BYTES:
                raise ConnectionLost
            if message.startswith(self._id):
                return message[REQUEST_ID_BYTES:]
        return None


class EventSocket:
    """SUB socket for the events of one topic; a context manager. It does not detect lost events.

    If `select` says that one of `sources` is readable, `drain` may have events.
    """

    def __init__(self, places: Places, topic: str) -> None:
        """Subscribe, and wait at most `JOIN_DEADLINE_S` for the connection.

        Events that arrive while connecting are dropped, so ask for a replay after this.
        """
        self._places = places
        self._prefix = topic.encode() + TOPIC_END
        self._pipe: NngPipe | None = None
        self._tried_at = -math.inf
        self._joined = False
        try:
            self._await_joined(time.monotonic() + JOIN_DEADLINE_S)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def sources(self) -> list[int]:
        """The descriptor to wait for; empty without a connection."""
        return [self._pipe.fileno()] if self._pipe else []

    @property
    def wait_s_max(self) -> float:
        """The longest time until the next `drain`, which also connects again."""
        return math.inf if self._pipe else RECONNECT_S

    def close(self) -> None:
        """Close the connection; pending events are dropped."""
        if self._pipe:
            self._pipe.close()
            self._pipe = None

    def drain(self) -> list[Event]:
        """Return the events that have arrived, `READ_BYTES` of them at most; never blocks.

        An event that can't be decoded is dropped; a replay fills the gap.
        """
        events: list[Event] = []
        for body in self.drain_bodies():
            with contextlib.suppress(BadMessage):
                events.append(decode_event(body))
        return events

    def drain_bodies(self) -> list[bytes]:
        """Like `drain`, but return the bodies of messages with the topic, not decoded."""
        start = len(self._prefix)
        return [one[start:] for one in self.drain_all() if one.startswith(self._prefix)]

    def drain_all(self) -> list[bytes]:
        """Return the messages of all topics that have arrived, with their topics.

        The daemon sends every topic to everyone. Connects again if the connection was lost.
        """
        now = time.monotonic()
        if self._pipe is None and now - self._tried_at > RECONNECT_S:
            self._tried_at = now
            self._pipe = _open(self._places, EVENTS_SOCKET, SUB, PUB)
        if self._pipe is None:
            return []
        was_greeted = self._pipe.greeted
        try:
            messages = self._pipe.read()
        except ConnectionLost:
            self.close()
            return []
        self._joined = self._joined or (self._pipe.greeted and not was_greeted)
        return messages

    def take_joined(self) -> bool:
        """Return whether the socket has connected since the last call, so events may be missing."""
        joined, self._joined = self._joined, False
        return joined

    def _await_joined(self, deadline: float) -> None:
        self.drain_all()
        while not self.take_joined() and (left := deadline - time.monotonic()) > 0:
            select.select(self.sources, [], [], min(left, self.wait_s_max))
            self.drain_all()


def _is_greeted(pipe: NngPipe, timeout_s: float) -> bool:
    """Wait for the peer's greeting; return false if the peer is gone or sends none in time."""
    deadline = time.monotonic() + timeout_s
    with contextlib.suppress(ConnectionLost):
        while not pipe.greeted and (left := deadline - time.monotonic()) > 0:
            if select.select([pipe], [], [], left)[0]:
                pipe.read()
    return pipe.greeted


def _open(places: Places, name: str, own: int, peer: int) -> NngPipe | None:
    """Connect; return `None` if no daemon listens, or if too many connections wait."""
    try:
        return NngPipe(runtime_of(places) / name, own, peer)
    except OSError as error:
        if error.errno in _EXHAUSTED:
            raise TillerError(
                f"the system allows no more open files ({error.strerror}); end some programs first"
            ) from None
        return None
