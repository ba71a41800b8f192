"""Watching a session: live events, replays, the keyboard and signals in one `select`.

`Watch.wait` returns what happened next; what it means is the verb's business.
"""

import os
import select
import signal
import time
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import NamedTuple, Self

from tiller_client.catchup import Follower, ReplayedEvents
from tiller_client.connection import DaemonConnection
from tiller_client.errors import Detached, RejectedError
from tiller_client.sockets import EventSocket
from tiller_protocol.answers import ReplayResult
from tiller_protocol.events import Event
from tiller_protocol.ops import Replay

SILENCE_BUSY_S = 1.0
"""Silence in a turn after which a replay looks for a lost last event."""

SILENCE_IDLE_S = 5.0
"""The same when no turn runs: the first event of the next turn may be the lost one."""

SHUTDOWN_PATIENCE_S = 30.0
"""How long a daemon that is shutting down is asked again before its refusal is reported."""

SHUTDOWN_RETRY_S = 0.2
TICK_BUSY_S = 0.1
"""How often a running clock on the screen moves."""

TICK_IDLE_S = 1.0

LINE_BYTES_MAX = 4096
"""A terminal in line mode hands over no longer line (`MAX_CANON` of Linux)."""


class WatchUpdate(NamedTuple):
    """What came: events that are next, a typed line (`None`: none), the end of input, Ctrl-C."""

    events: Sequence[Event] = ()
    started_over: bool = False
    line: str | None = None
    input_ended: bool = False
    interrupted: bool = False


class Signals:
    """While entered, Ctrl-C once is reported by `take`, and twice raises `Detached` at once.

    `fd` is readable when a signal came. SIGCONT is caught too: after a stop events may be missing.
    """

    def __init__(self, detached: str) -> None:
        """`detached` is the sentence for the user who pressed Ctrl-C twice."""
        self._detached = detached
        self._count = 0
        self.fd, self._write = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write, False)

    def __enter__(self) -> Self:
        self._old_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._old_interrupt = signal.signal(signal.SIGINT, self._on_interrupt)
        self._old_continue = signal.signal(signal.SIGCONT, lambda _number, _frame: None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._old_interrupt)
        signal.signal(signal.SIGCONT, self._old_continue)
        signal.set_wakeup_fd(self._old_fd)
        os.close(self.fd)
        os.close(self._write)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self._count > 0

    def take(self) -> bytes:
        """The numbers of the signals that came since last time."""
        try:
            return os.read(self.fd, 64)
        except BlockingIOError:
            return b""

    def _on_interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self._count += 1
        if self._count > 1:
            raise Detached(self._detached)


class Watch:
    """One session as one frontend sees it; a context manager. Every event comes once, in order."""

    def __init__(
        self, connection: DaemonConnection, session_id: str, signals: Signals, after: int = 0
    ) -> None:
        """Subscribe; events from `after` + 1 come by `wait`."""
        self._connection = connection
        self._session_id = session_id
        self._signals = signals
        self._follower = Follower(connection.hello.log_id, after)
        self._socket = EventSocket(connection.places.runtime, session_id)
        self._last_event_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    @property
    def caught_up(self) -> bool:
        """Whether everything known to be in the log was delivered."""
        return self._follower.wanted is None

    @property
    def last(self) -> int:
        """The `seq` of the last event delivered."""
        return self._follower.last

    def wait(self, *, busy: bool, keyboard: int | None = None) -> WatchUpdate:
        """Wait for the next thing for a short while; nothing may have happened.

        `busy` says whether a turn runs; `keyboard` is the descriptor to read lines from. Raises as
        `DaemonConnection.submit` when a replay fails, and `Detached` by the second Ctrl-C.
        """
        if (after := self._follower.wanted) is not None:
            delivery = self._replay(after)
            return WatchUpdate(
                delivery.events, delivery.started_over, interrupted=self._interrupted()
            )
        ready = self._select(TICK_BUSY_S if busy else TICK_IDLE_S, keyboard)
        events = self._follower.take_live(self._socket.drain())
        self._check_silence(busy=busy, received=bool(events))
        if self._socket.take_joined():
            self._follower.suspect_gap()
        line = _read_line(keyboard) if keyboard is not None and keyboard in ready else None
        return WatchUpdate(
            events,
            line=line or None,
            input_ended=line == "",
            interrupted=self._interrupted(),
        )

    def typed_ahead(self, keyboard: int) -> list[str]:
        """The lines that were typed and not read yet; an end of input among them is dropped."""
        lines: list[str] = []
        while keyboard in self._select(0, keyboard):
            if line := _read_line(keyboard):
                lines.append(line)
            else:
                break
        return lines

    def _select(self, timeout_s: float, keyboard: int | None) -> list[int]:
        sources = [self._socket.event_fd, self._socket.joined_fd, self._signals.fd]
        if keyboard is not None and _in_foreground(keyboard):
            sources.append(keyboard)
        return select.select(sources, [], [], timeout_s)[0]

    def _interrupted(self) -> bool:
        """Take the signals that came: whether Ctrl-C is among them; a stop is a doubt."""
        numbers = self._signals.take()
        if signal.SIGCONT in numbers:
            self._follower.suspect_gap()
        return signal.SIGINT in numbers

    def _check_silence(self, *, busy: bool, received: bool) -> None:
        now = time.monotonic()
        if received:
            self._last_event_at = now
        elif now - self._last_event_at > (SILENCE_BUSY_S if busy else SILENCE_IDLE_S):
            self._last_event_at = now
            self._follower.suspect_gap()

    def _replay(self, after: int) -> ReplayedEvents:
        result = self._ask_replay(after)
        self._last_event_at = time.monotonic()
        return self._follower.take_replay(result, self._connection.hello.log_id)

    def _ask_replay(self, after: int) -> ReplayResult:
        """Ask; a daemon that is going down answers no more, and the next one will."""
        deadline = time.monotonic() + SHUTDOWN_PATIENCE_S
        while True:
            try:
                return self._connection.ask(Replay(self._session_id, after), ReplayResult)
            except RejectedError as error:
                if error.code != "shutting_down" or time.monotonic() > deadline:
                    raise
                time.sleep(SHUTDOWN_RETRY_S)


def _in_foreground(terminal: int) -> bool:
    """Whether this process may read the terminal; a background job that does is stopped."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return True


def _read_line(descriptor: int) -> str:
    """One line with its end; an empty text at the end of input."""
    try:
        return os.read(descriptor, LINE_BYTES_MAX).decode(errors="replace")
    except (BlockingIOError, InterruptedError):
        return "\n"
    except OSError:
        return ""
