"""Moves a position in a session's log on, with the session's sockets and the clock.

A `Subscription` is for any loop that waits with `select`. A `Watch` waits itself, also for the
keyboard and signals. `Watch.wait` returns the next update; the verbs decide what to do with it.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Sequence
from types import FrameType
from typing import Any, NamedTuple, Self

from tiller_client.connecting.connection import DaemonConnection
from tiller_client.connecting.silence import Silence
from tiller_client.connecting.sockets import EventSocket
from tiller_client.errors import Detached, NoAnswer, NoDaemon, RejectedError
from tiller_client.following.catchup import RENEW_S, Follower, ReplayedEvents
from tiller_client.program_name import program
from tiller_protocol.answers import ReplayResult
from tiller_protocol.events import Event
from tiller_protocol.ops import Replay

SILENCE_BUSY_S = 1.0
"""Silence during a turn after which to ask for a replay, as the last event may be lost."""

SILENCE_IDLE_S = 5.0
"""The same limit while no turn is running: the first event of the next turn may be lost."""

RESTART_S = 1.0
"""Time after a lost connection during which somebody else may restart the daemon."""

SHUTDOWN_RETRY_S = 0.2
"""Time between two attempts while a daemon is shutting down, or until the next one starts."""

NEXT_DAEMON_S = 30.0
"""How long a verb that shows one turn waits for the daemon after one that was stopped. A restart
takes less; without one, nobody would start the daemon whose turn a script waits for."""

STOPPED = (
    "the daemon was stopped; waiting for the next one; to start it: {} daemon start; to leave, "
    "press Ctrl-C"
)

TICK_BUSY_S = 0.1
"""Longest wait during a turn, so that the clocks on the screen advance."""

TICK_IDLE_S = 1.0

LINE_BYTES_MAX = 4096
"""Longest line of a terminal in canonical mode (Linux)."""

Ask = Callable[[Replay, type[ReplayResult]], ReplayResult]
"""Submits the op of a replay, like `DaemonConnection.look`."""


class WatchUpdate(NamedTuple):
    """The news since the last wait; all fields are empty if nothing has happened."""

    events: Sequence[Event] = ()
    """The next events, in order."""
    started_over: bool = False
    """Whether the daemon has a new log, whose events follow from the first one on."""
    line: str | None = None
    """A typed line, with its newline."""
    input_ended: bool = False
    """Whether the keyboard's input has ended."""
    interrupted: bool = False
    """Whether a signal that ends a turn has arrived, such as Ctrl-C."""
    continued: bool = False
    """Whether this process was suspended and has been resumed."""
    cut_off: RejectedError | None = None
    """Why the turn has ended without its last events. They come once they can be stored."""


class Wakeup:
    """Ends a wait early, from any thread: `fd` is readable after `wake`. Close it after use."""

    numbers: Collection[int] = ()
    """The signals that end a turn."""
    interrupted = False
    """Whether one of these signals has arrived."""

    def __init__(self) -> None:
        self.fd, self._write = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write, False)

    def wake(self) -> None:
        """End the present wait, or the next one."""
        with contextlib.suppress(BlockingIOError):  # `fd` is readable already
            os.write(self._write, b"\0")

    def take(self) -> bytes:
        """Return the bytes written since the last call: the numbers of signals, or 0 by `wake`."""
        try:
            return os.read(self.fd, 64)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        """Close the pipe; `fd` and `wake` can't be used after this."""
        os.close(self.fd)
        os.close(self._write)


class Signals(Wakeup):
    """Handles signals while entered: `take` reports those that end a turn.

    A second Ctrl-C raises `Detached`; with `leaves`, the first Ctrl-C, SIGTERM or SIGHUP does. `fd`
    is readable after a signal. SIGCONT is handled, too, as a suspended process may lose events.
    """

    def __init__(
        self, detached: str, numbers: Collection[int] = (signal.SIGINT,), *, leaves: bool = False
    ) -> None:
        """`detached` is the message of `Detached`; `numbers` are the signals that end a turn."""
        super().__init__()
        self._detached = detached
        self.numbers = numbers
        self._leaves = leaves
        self._caught: set[int] = set()
        self._old: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._old_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in self.numbers:
            # Ignored signals stay ignored, as under nohup, but Ctrl-C always ends a turn.
            if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:
                self._old[number] = signal.signal(number, self._on_end)
        self._old[signal.SIGCONT] = signal.signal(signal.SIGCONT, lambda _number, _frame: None)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_fd)
        self.close()

    @property
    def timed_out(self) -> bool:
        """Whether SIGALRM has arrived."""
        return signal.SIGALRM in self._caught

    def _on_end(self, number: int, _frame: FrameType | None) -> None:
        again = number == signal.SIGINT and number in self._caught
        self._caught.add(number)
        self.interrupted = True
        if again or (self._leaves and number != signal.SIGALRM):
            raise Detached(self._detached)


class Subscription:
    """Follows a session: call `take` when a source is readable or `wait_s_max` has passed."""

    def __init__(self, connection: DaemonConnection, session_id: str, after: int = 0) -> None:
        """Subscribe; the events after number `after` are wanted."""
        self.connection = connection
        self.session_id = session_id
        self._follower = Follower(connection.hello.log_id, after)
        self._socket = EventSocket(connection.places, session_id)
        self._last_event_at = self._replayed_at = time.monotonic()
        self._retry_at = 0.0
        self._was_connected = self.connected

    def close(self) -> None:
        """Close the socket for events; the caller closes the connection."""
        self._socket.close()

    @property
    def sources(self) -> list[int]:
        """The descriptors to wait for."""
        return self._socket.sources

    @property
    def connected(self) -> bool:
        """Whether a daemon that sends events is connected, as far as is known."""
        return bool(self._socket.sources)

    @property
    def caught_up(self) -> bool:
        """Whether all events known to be in the log were delivered."""
        return self._follower.wanted is None

    @property
    def last(self) -> int:
        """The number of the last event delivered."""
        return self._follower.last

    @property
    def others(self) -> Sequence[str]:
        """Names of the other frontends that have the session open, as of some seconds ago."""
        return self._follower.others

    def look(self, *, focus: bool) -> None:
        """Note whether a person looks at this frontend; a change is told by the next replay."""
        if focus != self._follower.focus:
            self._follower.focus = focus
            self._follower.suspect_gap()

    def suspect_gap(self) -> None:
        """Require a replay, which also updates `others`."""
        self._follower.suspect_gap()

    def wait_s_max(self, *, busy: bool) -> float:
        """The longest time until the next `take`."""
        if self.caught_up:
            return min(self._socket.wait_s_max, SILENCE_BUSY_S if busy else SILENCE_IDLE_S)
        return min(self._socket.wait_s_max, max(0.0, self._retry_at - time.monotonic()))

    def take(self, ask: Ask, *, busy: bool) -> ReplayedEvents:
        """Return the next events: from a replay, for which it may `ask`, or those that have come.

        `busy` says whether a turn is running. Raises the same errors as `ask`; some time after
        `NoDaemon`, it asks again.
        """
        if self.caught_up or time.monotonic() < self._retry_at:
            return ReplayedEvents(self._take_live(busy=busy))
        try:
            result = ask(self._follower.replay(self.session_id), ReplayResult)
        except NoDaemon:
            self._retry_at = time.monotonic() + RESTART_S
            raise
        except RejectedError as error:
            if error.is_cut_off:
                self._follower.take_cut_off()
            if error.code != "shutting_down":  # the next daemon will answer
                raise
            self._retry_at = time.monotonic() + SHUTDOWN_RETRY_S
            return ReplayedEvents([])
        finally:
            self._last_event_at = self._replayed_at = time.monotonic()
        return self._follower.take_replay(result, self.connection.hello.log_id)

    def _take_live(self, *, busy: bool) -> list[Event]:
        """Return the live events that are next; require a replay if others may be missing."""
        events = self._follower.take_live(self._socket.drain())
        now = time.monotonic()
        if events:
            self._last_event_at = now
        is_silent = now - self._last_event_at > (SILENCE_BUSY_S if busy else SILENCE_IDLE_S)
        was_connected, self._was_connected = self._was_connected, self.connected
        is_changed = was_connected != self.connected
        if is_changed:
            self._retry_at = 0.0 if self.connected else now + RESTART_S
        has_joined = self._socket.take_joined()
        if is_silent or is_changed or has_joined or now - self._replayed_at > RENEW_S:
            self._follower.suspect_gap()
        return events


class Watch(Subscription):
    """The updates of one session; a context manager. Every event comes once, in order."""

    def __init__(
        self,
        connection: DaemonConnection,
        session_id: str,
        wakeup: Wakeup,
        after: int = 0,
        *,
        patient: bool = False,
        leaves_stopped: bool = False,
    ) -> None:
        """Subscribe; `wait` returns the events after number `after`. `wakeup` ends a wait early.

        With `patient`, wait for a daemon that does not answer, however long that takes. With
        `leaves_stopped`, raise `NoDaemon` if none follows a daemon that was stopped.
        """
        self._patient = patient
        self._leaves_stopped = leaves_stopped
        if patient:
            connection.leave = (
                f"to leave, press Ctrl-C twice; to return: {program()} attach {session_id}"
            )
        super().__init__(connection, session_id, after)
        self._wakeup = wakeup

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self, *, busy: bool, keyboard: int | None = None) -> WatchUpdate:
        """Wait a short time for an update, which may be empty.

        `busy` says whether a turn is running. Lines are read from the descriptor `keyboard`. Raises
        the same errors as `DaemonConnection.submit` if a replay fails, and `Detached` after a
        second Ctrl-C.
        """
        longest = min(TICK_BUSY_S if busy else TICK_IDLE_S, self.wait_s_max(busy=busy))
        ready = self._select(longest, keyboard if longest else None)
        try:
            taken = self.take(self._ask_replay, busy=busy)
        except RejectedError as error:
            if not error.is_cut_off:
                raise
            return self._with_signals(WatchUpdate(cut_off=error))
        line = _read_line(keyboard) if keyboard is not None and keyboard in ready else None
        return self._with_signals(WatchUpdate(*taken, line=line or None, input_ended=line == ""))

    def typed_ahead(self, keyboard: int) -> list[str]:
        """Return the lines that were typed but not read yet; drop an end of input."""
        lines: list[str] = []
        while keyboard in self._select(0, keyboard):
            if line := _read_line(keyboard):
                lines.append(line)
            else:
                break
        return lines

    def _select(self, timeout_s: float, keyboard: int | None) -> list[int]:
        sources = [*self._socket.sources, self._wakeup.fd]
        if keyboard is not None and _in_foreground(keyboard):
            sources.append(keyboard)
        return select.select(sources, [], [], timeout_s)[0]

    def _with_signals(self, update: WatchUpdate) -> WatchUpdate:
        """Add the signals since the last update, after which a replay shows whether a turn runs."""
        numbers = self._wakeup.take()
        continued = signal.SIGCONT in numbers
        interrupted = any(number in self._wakeup.numbers for number in numbers)
        if continued or interrupted:
            self._follower.suspect_gap()
        return update._replace(interrupted=interrupted, continued=continued)

    def _ask_replay(self, op: Replay, kind: type[ReplayResult]) -> ReplayResult:
        """Ask for a replay.

        Turns run without frontends. So a patient watch asks a silent daemon, which may be suspended
        or busy, again until a signal arrives. If the user has stopped the daemon, the watch waits
        until somebody starts it, unless it `leaves_stopped`, and never starts it itself.
        """
        began = time.monotonic()
        stopped = Silence(lambda: STOPPED.format(self.connection.program))
        while True:
            try:
                return self.connection.look(op, kind)
            except (NoAnswer, NoDaemon) as error:
                if not self._patient or self._wakeup.interrupted:
                    raise
                if isinstance(error, NoDaemon):
                    if self._leaves_stopped and time.monotonic() - began > NEXT_DAEMON_S:
                        raise
                    stopped.check()
                    time.sleep(SHUTDOWN_RETRY_S)


def _in_foreground(terminal: int) -> bool:
    """Whether this process may read the terminal; a background job that reads it is suspended."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return True


def _read_line(descriptor: int) -> str:
    """Read one line, with its newline; empty at the end of input."""
    try:
        return os.read(descriptor, LINE_BYTES_MAX).decode(errors="replace")
    except (BlockingIOError, InterruptedError):
        return "\n"
    except OSError:
        return ""
