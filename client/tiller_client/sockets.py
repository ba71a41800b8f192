# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
"""The two nng sockets of a frontend; the only module that imports pynng, which has no types.

All waits have a timeout and use `select` instead of nng, so that Ctrl-C works at once.
"""

import contextlib
import os
import select
from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import Self

import pynng

from tiller_client.errors import TillerError
from tiller_protocol.codec import MESSAGE_BYTES_MAX, TOPIC_END, decode_publication
from tiller_protocol.errors import BadMessage
from tiller_protocol.events import Event
from tiller_protocol.places import EVENTS_SOCKET, OPS_SOCKET

RESEND_MS = 10_000
"""After this, nng resends an unanswered request; on a new connection it does so at once."""

RECONNECT_MIN_MS = 20
RECONNECT_MAX_MS = 200

BUFFER_MESSAGES = 8_192
"""Events that nng buffers while this process is busy or stopped; the most it supports."""

DRAIN_EVENTS_MAX = 512
"""Most events to process at once, so that a burst can't block the keyboard."""

JOIN_DEADLINE_S = 1.0
"""Longest wait for the first connection; without one, events come late, by replay."""


class RequestSocket:
    """REQ socket for ops. One request at a time: a new one replaces the previous one."""

    def __init__(self, runtime: Path) -> None:
        """Connect in the background, again after each failure."""
        with _explained_errors():
            self._socket = pynng.Req0(
                resend_time=RESEND_MS,
                recv_max_size=MESSAGE_BYTES_MAX,
                reconnect_time_min=RECONNECT_MIN_MS,
                reconnect_time_max=RECONNECT_MAX_MS,
            )
        self._socket.dial(f"ipc://{runtime / OPS_SOCKET}", block=False)

    def send(self, frame: bytes, timeout_s: float) -> bool:
        """Send a request once there is a connection; false if there is none in time."""
        if not select.select([self._socket.send_fd], [], [], timeout_s)[0]:
            return False
        try:
            self._socket.send(frame, block=False)
        except pynng.TryAgain:
            return False
        return True

    def receive(self, timeout_s: float) -> bytes | None:
        """Return the answer, or `None` if there is none in time."""
        if not select.select([self._socket.recv_fd], [], [], timeout_s)[0]:
            return None
        try:
            return self._socket.recv(block=False)
        except pynng.TryAgain:
            return None

    def close(self) -> None:
        """Close the socket; a pending answer is dropped."""
        self._socket.close()


class EventSocket:
    """SUB socket for the events of one topic; a context manager. It does not detect lost events.

    `event_fd` is readable if `drain` has events. `joined_fd` is readable after each (re)connection:
    events that were published before may be missing.
    """

    def __init__(self, runtime: Path, topic: str) -> None:
        """Subscribe, and wait at most `JOIN_DEADLINE_S` for the connection."""
        self.joined_fd, self._joined_write = os.pipe()
        os.set_blocking(self.joined_fd, False)
        os.set_blocking(self._joined_write, False)
        with _explained_errors():
            self._socket = pynng.Sub0(
                recv_max_size=MESSAGE_BYTES_MAX,
                recv_buffer_size=BUFFER_MESSAGES,
                reconnect_time_min=RECONNECT_MIN_MS,
                reconnect_time_max=RECONNECT_MAX_MS,
            )
        self._socket.add_post_pipe_connect_cb(self._note_joined)
        self._socket.subscribe(topic.encode() + TOPIC_END)
        self._socket.dial(f"ipc://{runtime / EVENTS_SOCKET}", block=False)
        self.event_fd: int = self._socket.recv_fd
        select.select([self.joined_fd], [], [], JOIN_DEADLINE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; pending events are dropped."""
        self._socket.remove_post_pipe_connect_cb(self._note_joined)
        self._socket.close()
        os.close(self.joined_fd)
        os.close(self._joined_write)

    def drain(self) -> list[Event]:
        """Return the events received so far, at most `DRAIN_EVENTS_MAX`; never blocks.

        An event that can't be decoded is dropped; a replay fills the gap.
        """
        events: list[Event] = []
        while len(events) < DRAIN_EVENTS_MAX:
            try:
                data = self._socket.recv(block=False)
            except pynng.TryAgain:
                break
            with contextlib.suppress(BadMessage):
                events.append(decode_publication(data)[1])
        return events

    def take_joined(self) -> bool:
        """Whether there was a (re)connection since the last call."""
        try:
            return bool(os.read(self.joined_fd, 64))
        except BlockingIOError:
            return False

    def _note_joined(self, _pipe: object) -> None:
        """Runs in a thread of nng."""
        with contextlib.suppress(OSError):
            os.write(self._joined_write, b"j")


@contextlib.contextmanager
def _explained_errors() -> Generator[None]:
    """Explain failures to get threads or descriptors in a sentence."""
    try:
        yield
    except (pynng.NoMemory, pynng.OutOfFiles) as error:
        raise TillerError(
            f"the system allows no more threads or open files ({error}); end some programs first"
        ) from None
