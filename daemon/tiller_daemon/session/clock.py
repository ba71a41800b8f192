"""Tells the time of a session's events: wall time, but without jumps during a turn."""

import time
from collections.abc import Callable

from msgspec import Struct


class Clock(Struct, frozen=True):
    """The daemon's two clocks."""

    wall: Callable[[], float]
    """Returns Unix seconds; it jumps when somebody sets the clock."""
    steady: Callable[[], float]
    """Returns seconds since some moment; it never jumps, and keeps counting during sleep."""


def system_clock() -> Clock:
    """Return the clocks of this machine."""
    return Clock(time.time, _since_boot if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic)


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SessionClock:
    """Tells the time of one session; while a turn runs, time passes evenly.

    So the durations of turns, steps and calls are differences between the times of their events,
    even if the wall clock is set meanwhile. The next turn uses the new wall time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._booted_at: float | None = None

    def begin_turn(self) -> None:
        """Let time pass without jumps from now on."""
        self._booted_at = self._clock.wall() - self._clock.steady()

    def end_turn(self) -> None:
        """Follow the wall clock again."""
        self._booted_at = None

    def time(self) -> float:
        """Return Unix seconds."""
        if self._booted_at is None:
            return self._clock.wall()
        return self._booted_at + self._clock.steady()
