"""Histories between two turns: what was converted, encoded and counted is there for the next turn.

Only of the sessions that had a turn last, and not for long, as a history takes as much memory as
its text again. Without one, the next turn makes it anew from the session's items, which belong to
the session and cost nothing here.
"""

from typing import Final, NamedTuple

from tiller_daemon.turn.history import History

SESSIONS_MAX: Final = 16
"""The most sessions whose history rests here."""

BYTES_MAX: Final = 8 * 1024 * 1024
"""How long all encoded messages may be that rest here. A full context of 200,000 tokens has some
1 MB."""

REST_S_MAX: Final = 60.0
"""How long a history may rest, in seconds. After that the user is reading or away, and a few
milliseconds more for the next turn don't matter."""


class _Resting(NamedTuple):
    """A history, and since when nobody has used it, in Unix seconds."""

    history: History
    since: float


class RestingHistories:
    """The histories of sessions that have no turn."""

    def __init__(self) -> None:
        self._by_session: dict[str, _Resting] = {}

    def __len__(self) -> int:
        return len(self._by_session)

    def put(self, session_id: str, history: History, now: float) -> None:
        """Keep the history of a turn that has ended."""
        self._by_session.pop(session_id, None)
        self._by_session[session_id] = _Resting(history, now)
        while len(self._by_session) > SESSIONS_MAX or self._bytes() > BYTES_MAX:
            del self._by_session[next(iter(self._by_session))]

    def take(self, session_id: str) -> History | None:
        """Return the history for the session's next turn, which owns it from now on."""
        resting = self._by_session.pop(session_id, None)
        return resting.history if resting else None

    def drop(self, session_id: str) -> None:
        """Drop the history of a session that is no longer in memory."""
        self._by_session.pop(session_id, None)

    def drop_old(self, now: float) -> None:
        """Drop those that have rested for too long."""
        for session_id, resting in list(self._by_session.items()):
            if resting.since < now - REST_S_MAX:
                del self._by_session[session_id]

    def _bytes(self) -> int:
        return sum(one.history.cache.encoded_bytes for one in self._by_session.values())
