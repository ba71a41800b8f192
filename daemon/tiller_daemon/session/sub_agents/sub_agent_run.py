"""The link between a call of `task` and the turn of the sub-agent that does its work.

Downwards go rules, budget and interrupt; upwards go requests, grants and what was spent. How calls
start such turns and report of them is in `delegation`.
"""

from typing import Protocol

import trio
from msgspec import Struct, structs

from tiller_daemon.session.requests import Reply
from tiller_daemon.turn.budget import Spent
from tiller_daemon.turn.context import Permissions, TurnContext
from tiller_protocol.events import (
    AnyBody,
    HistoryCompacted,
    ItemDelta,
    ItemStarted,
    StepEnded,
    ToolCallUpdated,
    TurnEnded,
)
from tiller_protocol.items import Request, SubAgent, ToolCall, Usage
from tiller_protocol.settings import Budget, Rule
from tiller_protocol.turns import OpenTurn, add_cost

SHOWN_CALLS_MAX = 500
"""How many calls of a sub-agent are shown as live output of the call that waits for it."""


class Inherited(Struct, frozen=True):
    """What a sub-agent's turn has from the turn it works for.

    It may do no more than `permissions` say, whose rules stand below its own. `depth` counts from
    1. It takes the `model`, with its `variant`, if its agent names none. `budget` is what was left.
    """

    permissions: Permissions
    depth: int
    model: str
    variant: str
    budget: Budget


class Owner(Protocol):
    """The turn that sub-agents work for."""

    context: TurnContext

    def put(self, *bodies: AnyBody) -> None:
        """Put events of the turn."""
        ...

    def open_turn(self) -> OpenTurn:
        """What the turn comes to so far, sub-agents included."""
        ...

    def elapsed_s(self) -> float:
        """How long the turn has run."""
        ...

    def spent_by_others(self) -> Spent:
        """What counts against the turn's budgets beyond its own steps."""
        ...

    def live_rules(self) -> tuple[Rule, ...]:
        """What the user granted since the turn began."""
        ...

    def mirror_request(self, request: Request) -> None:
        """Show a sub-agent's request, here and to whom this turn works for."""
        ...

    def mirror_resolution(self, request_id: str, reply: Reply) -> None:
        """Say how a request that is shown was resolved."""
        ...

    def grant_from_sub_agent(self, rules: tuple[Rule, ...]) -> None:
        """Let a grant that a sub-agent got count for all of the session."""
        ...


class WorkingTurn(Protocol):
    """The turn of a sub-agent, as the call that waits for it sees it."""

    def interrupt(self) -> None:
        """End the turn as `interrupted`."""
        ...

    def reconsider(self) -> None:
        """Resolve open requests that are allowed by now."""
        ...


class SubAgentRun:
    """One call of `task` and the turn that does its work; made by the call, told by the turn."""

    def __init__(self, owner: Owner, inherited: Inherited, item_id: str) -> None:
        self.inherited = inherited
        self.done = trio.Event()
        self.ended: TurnEnded | None = None
        self.totals: SubAgent | None = None
        self.turn: WorkingTurn | None = None
        self._owner = owner
        self.item_id = item_id
        self._others_before = owner.spent_by_others()
        self._own = SubAgent("", "")
        self._nested: dict[str, SubAgent] = {}
        self._names: dict[str, str] = {}
        self._calls_shown = 0
        self._attached = True

    def begin(self, session_id: str, agent: str) -> None:
        """Link call and session, before the turn starts."""
        self._own = SubAgent(session_id, agent)
        self._report_totals()

    def turn_started(self, turn: WorkingTurn) -> None:
        """Take the turn that has begun."""
        self.turn = turn

    def turn_ended(self, body: TurnEnded | None) -> None:
        """Say that the turn is over and in the log; `None` if it could not be logged."""
        self.ended = body
        self.turn = None
        self.done.set()

    def detach(self) -> None:
        """Tell the owner nothing any more."""
        self._attached = False

    def observe(self, *bodies: AnyBody) -> None:
        """Look at what the sub-agent's turn emits: count it and show its calls."""
        for body in bodies:
            match body:
                case ItemStarted(ToolCall() as call):
                    self._names[call.id] = call.name
                case ToolCallUpdated(sub_agent=SubAgent() as nested):
                    self._nested[body.item_id] = nested
                    self._report_totals()
                case ToolCallUpdated(state="running"):
                    self._show_nested_call(body)
                case StepEnded():
                    self._count(1, body.usage, body.cost)
                case HistoryCompacted() if body.usage != Usage():
                    self._count(1, body.usage, body.cost)
                case _:
                    pass

    def request_opened(self, request: Request) -> None:
        """Show the request where the sub-agent works for, under the call."""
        if self._attached:
            title = f"{self._own.agent}: {request.title}"
            self._owner.mirror_request(structs.replace(request, item_id=self.item_id, title=title))

    def request_resolved(self, request_id: str, reply: Reply) -> None:
        """Say there how it was resolved."""
        if self._attached:
            self._owner.mirror_resolution(request_id, reply)

    def pass_up_grant(self, rules: tuple[Rule, ...]) -> None:
        """Let the user's grant count for whom the sub-agent works, and so for its other ones."""
        if self._attached:
            self._owner.grant_from_sub_agent(rules)

    def live_rules(self) -> tuple[Rule, ...]:
        """What the user granted to the owner meanwhile."""
        return self._owner.live_rules()

    def spent(self) -> Spent:
        """What the sub-agent and those below it have spent for this call."""
        totals = self.totals
        return Spent(totals.steps, totals.usage.tokens, totals.cost or 0.0) if totals else Spent()

    def spent_beside(self) -> Spent:
        """What the owner's other sub-agents have spent since this one began."""
        others = self._owner.spent_by_others().minus(self._others_before)
        return others.minus(self.spent())

    def _count(self, steps: int, usage: Usage, cost: float | None) -> None:
        own = self._own
        self._own = structs.replace(
            own,
            steps=own.steps + steps,
            usage=own.usage.plus(usage),
            cost=add_cost(own.cost, cost),
        )
        self._report_totals()

    def _report_totals(self) -> None:
        totals = self._own
        for nested in self._nested.values():
            totals = structs.replace(
                totals,
                steps=totals.steps + nested.steps,
                usage=totals.usage.plus(nested.usage),
                cost=add_cost(totals.cost, nested.cost),
            )
        self.totals = totals
        if self._attached:
            self._owner.put(ToolCallUpdated(self.item_id, "running", sub_agent=totals))

    def _show_nested_call(self, update: ToolCallUpdated) -> None:
        self._calls_shown += 1
        if self._attached and self._calls_shown <= SHOWN_CALLS_MAX:
            line = f"{self._names.get(update.item_id, '')} {update.title}".strip()
            self._owner.put(ItemDelta(self.item_id, "output", f"{line}\n"))
