"""Knows when somebody last looked at a frontend, or did something in one.

Frontends say in `replay` whether somebody looks at them. Whatever a person submits shows, too, that
somebody is there. This is not in the log: after a restart, nobody looks until a frontend says so.
"""

from collections.abc import Callable
from typing import Final

from tiller_protocol.ops import Replay
from tiller_protocol.sessions import FOLLOW_LEASE_S

LOOKING_MAX: Final = 1_000
"""At how many frontends somebody may look at the same time; the oldest are forgotten first."""


class Presence:
    """Whether somebody looks. A frontend that stops to say so counts for `FOLLOW_LEASE_S`."""

    def __init__(self, steady: Callable[[], float]) -> None:
        """`steady` returns seconds and never jumps."""
        self._steady = steady
        self._looking: dict[str, float] = {}
        """Until when somebody looks at a frontend, by its id; the latest at the end."""
        self._last = float("-inf")

    def note(self, op: Replay) -> None:
        """Note what a frontend says of itself when it asks for events."""
        if op.follower is None:
            return
        was_looking = self._looking.pop(op.follower, None)
        if op.focus and not op.leaves:
            self._looking[op.follower] = self._steady() + FOLLOW_LEASE_S
        if op.focus or was_looking is not None:
            self.acted()
        if len(self._looking) > LOOKING_MAX:
            del self._looking[next(iter(self._looking))]

    def acted(self) -> None:
        """Note that somebody has done something just now."""
        self._last = self._steady()

    def quiet_s(self) -> float | None:
        """Return for how many seconds nobody has looked; None as long as somebody does."""
        now = self._steady()
        while self._looking and next(iter(self._looking.values())) <= now:
            del self._looking[next(iter(self._looking))]
        return None if self._looking else now - self._last
