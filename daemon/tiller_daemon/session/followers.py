"""Who has a session open: the frontends that asked for its events a short while ago.

Kept by what they ask anyway, so it costs nothing while nobody asks, needs no end that could be
missed, and is right again soon after the daemon was restarted. None of it is in the log.
"""

from collections.abc import Callable
from typing import Final

from tiller_protocol.ops import FOLLOW_LEASE_S, Replay

FOLLOWERS_MAX: Final = 10_000
"""Frontends of all sessions that are remembered; the one that asked longest ago is forgotten."""


class Followers:
    """The frontends that follow sessions, each under an id of its own."""

    def __init__(self, steady: Callable[[], float]) -> None:
        """`steady` is a clock in seconds."""
        self._steady = steady
        self._names: dict[tuple[str, str], tuple[float, str]] = {}
        """When each has asked last, and its name, by session and id; the latest at the end."""

    def note(self, op: Replay, name: str) -> tuple[str, ...]:
        """Remember that a frontend asks for events, if it follows; the names of all others."""
        if op.follower is not None:
            self._names.pop((op.session_id, op.follower), None)
            self._names[op.session_id, op.follower] = self._steady(), name
        self._forget()
        others = (
            name
            for (session_id, follower), (_, name) in self._names.items()
            if session_id == op.session_id and follower != op.follower
        )
        return tuple(sorted(others))

    def _forget(self) -> None:
        """Forget those whose time is over, and those that are too many."""
        now = self._steady()
        while self._names:
            oldest = next(iter(self._names))
            is_over = now - self._names[oldest][0] > FOLLOW_LEASE_S
            if not is_over and len(self._names) <= FOLLOWERS_MAX:
                return
            del self._names[oldest]
