# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
"""The two nng sockets of a frontend; the only file that imports pynng, which has no types.

Nothing here blocks longer than it is told to, and no wait is inside nng: Ctrl-C works at once.
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
"""nng sends an unanswered request again after this, and at once on a new connection."""

RECONNECT_MIN_MS = 20
RECONNECT_MAX_MS = 200

BUFFER_MESSAGES = 8_192
"""Events kept by nng while this process is busy or stopped; nng takes no more than this."""

DRAIN_EVENTS_MAX = 512
"""Events taken at once, so that a burst can't keep the keyboard waiting."""

JOIN_DEADLINE_S = 1.0
"""Longest wait for the first connection; without it events come late, by replay."""


class RequestSocket:
    """REQ to the ops socket. One request at a time: a new one takes the old one's place."""

    def __init__(self, runtime: Path) -> None:
        """Begin to connect, and go on trying."""
        with _explained_errors():
            self._socket = pynng.Req0(
                resend_time=RESEND_MS,
                recv_max_size=MESSAGE_BYTES_MAX,
                reconnect_time_min=RECONNECT_MIN_MS,
                reconnect_time_max=RECONNECT_MAX_MS,
            )
        self._socket.dial(f"ipc://{runtime / OPS_SOCKET}", block=False)

    def send(self, frame: bytes, timeout_s: float) -> bool:
        """Hand a request over once the connection stands; false when it does not in time."""
        if not select.select([self._socket.send_fd], [], [], timeout_s)[0]:
            return False
        try:
            self._socket.send(frame, block=False)
        except pynng.TryAgain:
            return False
        return True

    def receive(self, timeout_s: float) -> bytes | None:
        """The answer, or `None` when there is none in time."""
        if not select.select([self._socket.recv_fd], [], [], timeout_s)[0]:
            return None
        try:
            return self._socket.recv(block=False)
        except pynng.TryAgain:
            return None

    def close(self) -> None:
        """Close the socket; an answer that is still due is dropped."""
        self._socket.close()


class EventSocket:
    """SUB to the events of one topic; a context manager. What it misses it does not know.

    `event_fd` is readable when `drain` has something. `joined_fd` is readable after each time that
    the daemon was (re)connected: what was published before may be missing.
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
        """The events that are here now, at most `DRAIN_EVENTS_MAX`; never blocks.

        One that can't be read is left out; the gap it leaves is filled by a replay.
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
        """Whether the daemon was (re)connected since this was last asked."""
        try:
            return bool(os.read(self.joined_fd, 64))
        except BlockingIOError:
            return False

    def _note_joined(self, _pipe: object) -> None:
        """Runs on a thread of nng's."""
        with contextlib.suppress(OSError):
            os.write(self._joined_write, b"j")


@contextlib.contextmanager
def _explained_errors() -> Generator[None]:
    """Say it in a sentence when the system refuses nng its threads or descriptors."""
    try:
        yield
    except (pynng.NoMemory, pynng.OutOfFiles) as error:
        raise TillerError(
            f"the system gives no more threads or files ({error}); end some programs first"
        ) from None
