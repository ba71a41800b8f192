"""Caches histories between turns, so that the next turn need not convert, encode and count again.

The histories of the latest turns are kept for a short time, as a history takes as much memory as
its text. Without the cache, a turn makes its history from the session's items.
"""

from typing import Final, NamedTuple

from tiller_daemon.turn.history import History

SESSIONS_MAX: Final = 16
"""How many sessions' histories are cached at most."""

BYTES_MAX: Final = 8 * 1024 * 1024
"""How many bytes of encoded messages are cached at most; 200,000 tokens are about 1 MB."""

IDLE_S_MAX: Final = 60.0
"""How many seconds a history stays. After that time the user is reading or away, and a few more
milliseconds for the next turn don't matter."""


class _IdleHistory(NamedTuple):
    """A history, and the Unix time since which nobody has used it."""

    history: History
    since: float


class IdleHistories:
    """The histories of sessions that have no turn."""

    def __init__(self) -> None:
        self._by_session: dict[str, _IdleHistory] = {}

    def __len__(self) -> int:
        return len(self._by_session)

    def put(self, session_id: str, history: History, now: float) -> None:
        """Keep the history of a turn that has ended."""
        self._by_session.pop(session_id, None)
        self._by_session[session_id] = _IdleHistory(history, now)
        while len(self._by_session) > SESSIONS_MAX or self._bytes() > BYTES_MAX:
            del self._by_session[next(iter(self._by_session))]

    def take(self, session_id: str) -> History | None:
        """Return the history for the session's next turn, which owns it from now on."""
        idle = self._by_session.pop(session_id, None)
        return idle.history if idle else None

    def drop(self, session_id: str) -> None:
        """Drop the history of a session that is no longer in memory."""
        self._by_session.pop(session_id, None)

    def drop_old(self, now: float) -> None:
        """Drop histories that nobody has used for too long."""
        for session_id, idle in list(self._by_session.items()):
            if idle.since < now - IDLE_S_MAX:
                del self._by_session[session_id]

    def _bytes(self) -> int:
        return sum(one.history.cache.encoded_bytes for one in self._by_session.values())
