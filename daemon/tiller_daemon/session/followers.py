"""Knows who has a session open: the frontends that asked for its events a short while ago.

Frontends make these requests anyway, so the list costs almost nothing, and a frontend that is
killed is soon forgotten. The list is not in the log, but right again soon after the daemon
restarts.
"""

from collections.abc import Callable
from typing import Final

from tiller_protocol.ops import Replay
from tiller_protocol.sessions import FOLLOW_LEASE_S

FOLLOWERS_MAX: Final = 10_000
"""How many frontends of all sessions are remembered; the oldest are forgotten first."""


class Followers:
    """The frontends that follow sessions, each under its own id."""

    def __init__(self, steady: Callable[[], float]) -> None:
        """`steady` returns seconds and never jumps."""
        self._steady = steady
        self._asked_at: dict[tuple[str, str], float] = {}
        """When each frontend last asked, by session and id; the latest at the end."""
        self._names: dict[str, dict[str, str]] = {}
        """The frontends' names by id, for each session."""

    def note(self, op: Replay, name: str) -> tuple[str, ...]:
        """Note the frontend that asks for events if it is a follower; return the others' names."""
        if op.follower is not None:
            self._drop(op.session_id, op.follower)
        if op.follower is not None and not op.leaves:
            self._asked_at[op.session_id, op.follower] = self._steady()
            self._names.setdefault(op.session_id, {})[op.follower] = name
        self._forget()
        names = self._names.get(op.session_id, {})
        return tuple(sorted(name for id_, name in names.items() if id_ != op.follower))

    def _forget(self) -> None:
        """Forget frontends that have not asked for too long, and the oldest beyond the limit."""
        now = self._steady()
        while self._asked_at:
            oldest = next(iter(self._asked_at))
            is_over = now - self._asked_at[oldest] > FOLLOW_LEASE_S
            if not is_over and len(self._asked_at) <= FOLLOWERS_MAX:
                return
            self._drop(*oldest)

    def _drop(self, session_id: str, follower: str) -> None:
        if self._asked_at.pop((session_id, follower), None) is None:
            return
        del self._names[session_id][follower]
        if not self._names[session_id]:
            del self._names[session_id]
