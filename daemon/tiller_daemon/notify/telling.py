"""Brings all targets up to date with what there is to tell, by the rules in use now."""

from collections.abc import Callable, Sequence
from typing import Final

import structlog
import trio

from tiller_daemon.config import Notify
from tiller_daemon.notify.delivery import Delivery, Target
from tiller_daemon.notify.messages import message_about, text_of_end, text_of_request
from tiller_daemon.notify.news import SESSIONS_MAX, SessionNews, Told
from tiller_daemon.store.base import Log, LogError, SessionRow
from tiller_protocol.events import (
    Event,
    RequestOpened,
    RequestResolved,
    SessionArchived,
    SessionSeen,
    TurnEnded,
    TurnStarted,
)

log = structlog.get_logger()

OWNERS_MAX: Final = 20
"""How many owners a sub-agent may have, one above the other."""

RECHECK_S: Final = 5.0
"""How often to look whether somebody still looks, while there is something to tell."""

SETTLED_S: Final = 2.0
"""How long a request is open before it is told: `tiller exec` in a script withdraws at once what
nobody can answer there."""


class _Rule:
    """One rule at work: what it has told, and its target."""

    def __init__(self, rule: Notify, target: Target) -> None:
        self.told = Told(rule)
        self.delivery = Delivery(target, rule.to)
        self.scope = trio.CancelScope()

    async def run(self) -> None:
        with self.scope:
            await self.delivery.run()


class Telling:
    """What there is to tell, and the targets of all rules at work."""

    def __init__(
        self,
        target_of: Callable[[Notify], Target],
        sessions: Log,
        secrets: Callable[[], Sequence[str]],
    ) -> None:
        self._target_of = target_of
        self._log = sessions
        self._secrets = secrets
        self._news: dict[str, SessionNews] = {}
        self._at_work: dict[Notify, _Rule] = {}

    def apply(self, rules: Sequence[Notify], nursery: trio.Nursery) -> None:
        """Start the targets of new rules, and end those of rules that are gone."""
        for rule in self._at_work.keys() - set(rules):
            self._at_work.pop(rule).scope.cancel()
        for rule in rules:
            if rule not in self._at_work:
                self._at_work[rule] = _Rule(rule, self._target_of(rule))
                nursery.start_soon(self._at_work[rule].run)

    async def take(self, event: Event) -> None:
        """Note what an event means for its session, or for the session that it works for."""
        match event.body:
            case RequestOpened(request):
                if row := await self._owner(event.session_id):
                    text = text_of_request(request, self._secrets())
                    told_from = trio.current_time() + SETTLED_S
                    self._of(row.session_id).opened(request, text, event.seq, told_from)
            case RequestResolved(request_id):
                for news in self._news.values():
                    news.resolved(request_id)
            case TurnEnded() as body:
                row = await self._row(event.session_id)
                if row and not row.owner_id:
                    text = text_of_end(body, self._secrets())
                    news = self._of(row.session_id)
                    news.ended(body, event.turn_id or "", text, event.seq)
            case TurnStarted():
                self._of(event.session_id).began()
            case SessionSeen(until):
                self._of(event.session_id).seen(until)
            case SessionArchived(archived=True):
                self._of(event.session_id).seen(event.seq)
            case _:
                pass

    async def tell(self, quiet_s: float | None) -> float:
        """Bring all targets up to date; return after how many seconds to look again."""
        next_s = float("inf")
        for at_work in self._at_work.values():
            told, delivery = at_work.told, at_work.delivery
            for session_id in told.sessions:
                if told.is_over(session_id, self._news.get(session_id, ())):
                    delivery.put(session_id, None)
            for session_id, news in tuple(self._news.items()):
                if not (untold := told.untold(session_id, news)):
                    continue
                if quiet_s is None:
                    next_s = RECHECK_S
                elif quiet_s < told.rule.after_s:
                    next_s = min(next_s, told.rule.after_s - quiet_s)
                elif (soon_s := max(one.told_from for one in untold) - trio.current_time()) > 0:
                    next_s = min(next_s, soon_s)
                elif row := await self._row(session_id):
                    told.tell(session_id, untold)
                    message = message_about(
                        session_id, row.title, row.workspace, untold, self._secrets()
                    )
                    delivery.put(session_id, message)
        self._forget()
        return next_s

    def _of(self, session_id: str) -> SessionNews:
        return self._news.setdefault(session_id, SessionNews())

    def _forget(self) -> None:
        """Forget sessions without news, and the oldest beyond the limit."""
        for session_id in [one for one, news in self._news.items() if not any(news)]:
            del self._news[session_id]
        while len(self._news) > SESSIONS_MAX:
            del self._news[next(iter(self._news))]

    async def _owner(self, session_id: str) -> SessionRow | None:
        """Return the session that the user knows: for a sub-agent, the one that it works for."""
        row = await self._row(session_id)
        for _ in range(OWNERS_MAX):
            if row is None or not row.owner_id:
                break
            row = await self._row(row.owner_id)
        return row

    async def _row(self, session_id: str) -> SessionRow | None:
        try:
            return await self._log.session(session_id)
        except LogError as error:
            log.warning("notification_failed", session_id=session_id, reason=error.message)
            return None
