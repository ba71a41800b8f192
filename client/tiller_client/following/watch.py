"""Watches a session: waits for live events, replays, the keyboard and signals in one `select`.

`Watch.wait` returns the next update; the verbs decide what to do with it.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Collection, Sequence
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

SILENCE_BUSY_S = 1.0
"""Silence during a turn after which to ask for a replay, as the last event may be lost."""

SILENCE_IDLE_S = 5.0
"""The same limit while no turn is running: the first event of the next turn may be lost."""

RESTART_S = 1.0
"""Time after a lost connection during which somebody else may restart the daemon."""

SHUTDOWN_TIMEOUT_S = 30.0
"""How long to retry while a daemon is shutting down."""

NEXT_DAEMON_S = 30.0
"""How long a verb that shows one turn waits for the daemon after one that was stopped. A restart
takes less; without one, nobody would start the daemon whose turn a script waits for."""

SHUTDOWN_RETRY_S = 0.2
STOPPED = (
    "the daemon was stopped; waiting for the next one; to start it: {} daemon start; to leave, "
    "press Ctrl-C"
)

TICK_BUSY_S = 0.1
"""Longest wait during a turn, so that the clocks on the screen advance."""

TICK_IDLE_S = 1.0

LINE_BYTES_MAX = 4096
"""Longest line of a terminal in canonical mode (Linux)."""


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
    """A subscription to one session's events, with the times after which a replay is due."""

    def __init__(self, connection: DaemonConnection, session_id: str, after: int = 0) -> None:
        """Subscribe; the events after number `after` are wanted."""
        self.connection = connection
        self.session_id = session_id
        self._follower = Follower(connection.hello.log_id, after)
        self._socket = EventSocket(connection.places, session_id)
        self._last_event_at = self._replayed_at = time.monotonic()

    def close(self) -> None:
        """Close the socket for events; the caller closes the connection."""
        self._socket.close()

    @property
    def caught_up(self) -> bool:
        """Whether all events known to be in the log were delivered."""
        return self._follower.wanted is None

    @property
    def connected(self) -> bool:
        """Whether a daemon that sends events is connected, as far as is known."""
        return bool(self._socket.sources)

    def _take_live(self, *, busy: bool) -> list[Event]:
        """Return the live events that are next; require a replay if others may be missing."""
        events = self._follower.take_live(self._socket.drain())
        now = time.monotonic()
        if events:
            self._last_event_at = now
        is_silent = now - self._last_event_at > (SILENCE_BUSY_S if busy else SILENCE_IDLE_S)
        if is_silent or now - self._replayed_at > RENEW_S:
            self._last_event_at = self._replayed_at = now
            self._follower.suspect_gap()
        if self._socket.take_joined():
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
        self._connected_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def others(self) -> Sequence[str]:
        """Names of the other frontends that have the session open, as of some seconds ago."""
        return self._follower.others

    def look_for_others(self) -> None:
        """Let the next `wait` bring `others` up to date."""
        self._follower.suspect_gap()

    @property
    def last(self) -> int:
        """The number of the last event delivered."""
        return self._follower.last

    def wait(self, *, busy: bool, keyboard: int | None = None) -> WatchUpdate:
        """Wait a short time for an update, which may be empty.

        `busy` says whether a turn is running. Lines are read from the descriptor `keyboard`. Raises
        the same errors as `DaemonConnection.submit` if a replay fails, and `Detached` after a
        second Ctrl-C.
        """
        if self._follower.wanted is not None:
            try:
                delivery = self._replay()
            except RejectedError as error:
                if not error.is_cut_off:
                    raise
                self._follower.take_cut_off()
                return self._with_signals(WatchUpdate(cut_off=error))
            return self._with_signals(WatchUpdate(delivery.events, delivery.started_over))
        ready = self._select(TICK_BUSY_S if busy else TICK_IDLE_S, keyboard)
        events = self._take_live(busy=busy)
        if self._is_lost():
            self._follower.suspect_gap()
        line = _read_line(keyboard) if keyboard is not None and keyboard in ready else None
        update = WatchUpdate(events, line=line or None, input_ended=line == "")
        return self._with_signals(update)

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
        return select.select(sources, [], [], min(timeout_s, self._socket.wait_s_max))[0]

    def _with_signals(self, update: WatchUpdate) -> WatchUpdate:
        """Add the signals since the last update, after which a replay shows whether a turn runs."""
        numbers = self._wakeup.take()
        continued = signal.SIGCONT in numbers
        interrupted = any(number in self._wakeup.numbers for number in numbers)
        if continued or interrupted:
            self._follower.suspect_gap()
        return update._replace(interrupted=interrupted, continued=continued)

    def _is_lost(self) -> bool:
        """Whether the connection has been lost for a while, so that a replay should be tried."""
        now = time.monotonic()
        if self.connected:
            self._connected_at = now
        return now - self._connected_at > RESTART_S

    def _replay(self) -> ReplayedEvents:
        try:
            result = self._ask_replay()
        finally:
            self._last_event_at = self._replayed_at = time.monotonic()
        return self._follower.take_replay(result, self.connection.hello.log_id)

    def _ask_replay(self) -> ReplayResult:
        """Ask for a replay; retry while the daemon is shutting down, as the next one will answer.

        Turns run without frontends. So a patient watch asks a silent daemon, which may be suspended
        or busy, again until a signal arrives. If the user has stopped the daemon, the watch waits
        until somebody starts it, unless it `leaves_stopped`, and never starts it itself.
        """
        began = time.monotonic()
        stopped = Silence(lambda: STOPPED.format(self.connection.program))
        op = self._follower.replay(self.session_id)
        while True:
            try:
                return self.connection.look(op, ReplayResult)
            except (NoAnswer, NoDaemon) as error:
                if not self._patient or self._wakeup.interrupted:
                    raise
                if isinstance(error, NoDaemon):
                    if self._leaves_stopped and time.monotonic() - began > NEXT_DAEMON_S:
                        raise
                    stopped.check()
                    time.sleep(SHUTDOWN_RETRY_S)
            except RejectedError as error:
                if error.code != "shutting_down" or time.monotonic() - began > SHUTDOWN_TIMEOUT_S:
                    raise
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
