"""What there is to tell of each session, and what one rule has told of it. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from tiller_daemon.config import Notify, NotifyMoment
from tiller_protocol.events import TurnEnded
from tiller_protocol.items import Request

SESSIONS_MAX: Final = 1_000
"""Of how many sessions news are kept; the oldest are forgotten first."""

LIMIT_CODES: Final = ("rate_limit", "quota")
"""Codes of errors by which a turn fails at a limit of the provider."""

REJECTED: Final = "rejected"
"""The code of the error of a turn that ended because the user rejected a call."""


class News(Struct, frozen=True):
    """One thing to tell."""

    moment: NotifyMoment
    """Which rules tell it."""
    key: str
    """The id of the request, or of the turn."""
    text: str
    """What happened, for people."""
    seq: int
    """The number of the event in its session."""
    duration_s: float = 0.0
    """How long the turn took."""
    told_from: float = 0.0
    """From when on it may be told, by trio's clock."""


class SessionNews:
    """The present news of one session: its open requests, and the end of its last turn."""

    def __init__(self) -> None:
        self._requests: dict[str, News] = {}
        self._ended: News | None = None

    def __iter__(self) -> Iterator[News]:
        yield from self._requests.values()
        if self._ended:
            yield self._ended

    def opened(self, request: Request, text: str, seq: int, told_from: float = 0.0) -> None:
        """Note an open request. A sub-agent's request is noted twice, but is one."""
        news = News("needs_answer", request.id, text, seq, told_from=told_from)
        self._requests.setdefault(request.id, news)

    def resolved(self, request_id: str) -> None:
        """Note that a request no longer needs an answer."""
        self._requests.pop(request_id, None)

    def began(self) -> None:
        """Note that the session works again, so the end of its last turn is no news."""
        self._ended = None

    def ended(self, body: TurnEnded, turn_id: str, text: str, seq: int) -> None:
        """Note the end of a turn, unless the user has ended it."""
        self._requests.clear()
        moment = moment_of(body)
        self._ended = moment and News(moment, turn_id, text, seq, body.duration_s)

    def seen(self, until: int) -> None:
        """Note that the user has seen the session; what is open stays open."""
        if self._ended and self._ended.seq <= until:
            self._ended = None


def moment_of(body: TurnEnded) -> NotifyMoment | None:
    """Return the moment that the end of a turn is; None if the user has ended the turn."""
    code = body.error.code if body.error else ""
    match body.outcome:
        case "completed":
            return "ended"
        case "limit_reached":
            return "limit"
        case "failed" | "blocked":
            if code == REJECTED:
                return None
            return "limit" if code in LIMIT_CODES else "failed"
        case "interrupted":
            return None


class Told:
    """What one rule has told of each session."""

    def __init__(self, rule: Notify) -> None:
        self.rule = rule
        self._told: dict[str, frozenset[str]] = {}
        """The keys of the news that were told and are still news; empty if none is."""

    def untold(self, session_id: str, news: Iterable[News]) -> list[News]:
        """Return what has to be told as soon as nobody looks, with the news told before first.

        Empty if there is nothing new.
        """
        told = self._told.get(session_id, frozenset())
        wanted = [one for one in news if self._applies(one)]
        new = [one for one in wanted if one.key not in told]
        return [one for one in wanted if one.key in told] + new if new else []

    def tell(self, session_id: str, news: Iterable[News]) -> None:
        """Note that these news were told."""
        self._told[session_id] = frozenset(one.key for one in news)

    def is_over(self, session_id: str, news: Iterable[News]) -> bool:
        """Return once whether all that was told of a session is no news any more."""
        if (told := self._told.get(session_id)) is None:
            return False
        left = told & {one.key for one in news}
        if left:
            self._told[session_id] = left
        else:
            del self._told[session_id]
        return not left

    @property
    def sessions(self) -> Iterable[str]:
        """The sessions of which something was told."""
        return tuple(self._told)

    def _applies(self, news: News) -> bool:
        if news.moment == "ended" and news.duration_s < self.rule.after_s:
            return False
        return news.moment in self.rule.on
