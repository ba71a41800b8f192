"""The link between a `task` call and its sub-agent's turn.

Rules, budget and interrupts go down to the sub-agent; requests, grants and spending go up to the
owner. `delegation` starts the turns and reports their results.
"""

from collections.abc import Iterable
from typing import Protocol

import trio
from msgspec import Struct, structs

from tiller_daemon.session.background.claims import Claims
from tiller_daemon.session.requests import Reply
from tiller_daemon.turn.budget import Spent
from tiller_daemon.turn.context import Permissions
from tiller_protocol.events import (
    AnyBody,
    HistoryCompacted,
    ItemStarted,
    StepEnded,
    ToolCallUpdated,
    TurnEnded,
)
from tiller_protocol.items import Request, SubAgent, ToolCall, Usage
from tiller_protocol.settings import Budget, Rule, Settings, TurnOverrides
from tiller_protocol.snapshot import Snapshot
from tiller_protocol.turns import add_cost

DEPTH_MAX = 3
"""How deep sub-agents may be nested; at this depth the tool `task` is no longer offered."""

SHOWN_CALLS_MAX = 500
"""How many calls of a sub-agent are shown as live output of the `task` call."""


class Inherited(Struct, frozen=True):
    """The settings that a sub-agent's turn inherits from its owner's turn."""

    permissions: Permissions
    """The owner's permissions. The sub-agent's own rules override the owner's rules, but not the
    sandbox, the scope or the read-only state."""
    depth: int
    """The level of nesting, from 1."""
    model: str
    """The model if the sub-agent's agent is configured without a model."""
    variant: str
    """The variant of `model`; may be empty."""
    budget: Budget
    """The rest of the owner's budget."""
    apart: bool = False
    """Whether the sub-agent works in a worktree of its own."""


class Principal(Protocol):
    """The turn that a sub-agent works for, or the session for a background sub-agent."""

    @property
    def claims(self) -> Claims:
        """The claims of background sub-agents, which this sub-agent must respect."""
        ...

    @property
    def session_id(self) -> str:
        """The session's ULID."""
        ...

    def report(self, item_id: str, totals: SubAgent) -> None:
        """Show the spending so far of a call's sub-agent."""
        ...

    def show_call(self, item_id: str, line: str) -> None:
        """Show a call that a sub-agent makes, under its `task` call."""
        ...

    def spent_by_others(self) -> Spent:
        """Return the spending that counts against the budgets besides the turn's own steps."""
        ...

    def live_rules(self) -> tuple[Rule, ...]:
        """Return the rules that the user granted since the turn, or the sub-agent, began."""
        ...

    def mirror_request(self, request: Request) -> None:
        """Show a sub-agent's request in the session, and in the sessions of its owners."""
        ...

    def mirror_resolution(self, request_id: str, reply: Reply) -> None:
        """Show how a mirrored request was resolved."""
        ...

    def grant_from_sub_agent(self, rules: tuple[Rule, ...]) -> None:
        """Apply the rules that the user granted to a sub-agent to the whole session."""
        ...


class WorkingTurn(Protocol):
    """A sub-agent's turn, as the waiting call sees it."""

    def interrupt(self) -> None:
        """End the turn as `interrupted`."""
        ...

    def reconsider(self) -> None:
        """Resolve open requests that the rules now allow."""
        ...


class SubAgentRun:
    """Links a `task` call, which creates this, with the sub-agent's turn, which reports to it.

    `totals` is the spending for this call of the sub-agent and its own sub-agents. `done` is set
    when the turn is over; `ended` is then its last event, or None if it could not be logged. `turn`
    is the sub-agent's turn while it runs. `branch` is a line about its branch.
    """

    def __init__(self, owner: Principal, inherited: Inherited, item_id: str) -> None:
        self.owner = owner
        self.inherited = inherited
        self.done = trio.Event()
        self.ended: TurnEnded | None = None
        self.totals: SubAgent | None = None
        self.turn: WorkingTurn | None = None
        self.branch = ""
        self.item_id = item_id
        # Already subtracted from the inherited budget, so only later spending counts.
        self._others_before = owner.spent_by_others()
        self._own = SubAgent("", "")
        self._nested: dict[str, SubAgent] = {}
        self._names: dict[str, str] = {}
        self._calls_shown = 0
        self._attached = True

    def begin(self, session_id: str, agent: str) -> None:
        """Link the call with the session, before the turn starts."""
        self._own = SubAgent(session_id, agent)
        self._report_totals()

    def turn_ended(self, body: TurnEnded | None) -> None:
        """Note that the turn's end is in the log; `body` is None if it could not be logged."""
        self.ended = body
        self.turn = None
        self.done.set()

    def detach(self) -> None:
        """Stop reporting to the owner."""
        self._attached = False

    def observe(self, *bodies: AnyBody) -> None:
        """Take the events of the sub-agent's turn, to count its spending and show its calls."""
        for body in bodies:
            match body:
                case ItemStarted(ToolCall() as call):
                    self._names[call.id] = call.name
                case ToolCallUpdated(sub_agent=SubAgent() as nested):
                    # Each update has the totals of its call, so it replaces the previous update.
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
        """Show a request of the sub-agent in the owner's session, under the `task` call."""
        if self._attached:
            # The user must see who asks.
            title = f"{self._own.agent}: {request.title}"
            self.owner.mirror_request(structs.replace(request, item_id=self.item_id, title=title))

    def request_resolved(self, request_id: str, reply: Reply) -> None:
        """Show in the owner's session how a request was resolved."""
        if self._attached:
            self.owner.mirror_resolution(request_id, reply)

    def pass_up_grant(self, rules: tuple[Rule, ...]) -> None:
        """Pass rules that the user granted to the owner, and thereby to its other sub-agents."""
        if self._attached:
            self.owner.grant_from_sub_agent(rules)

    def spent(self) -> Spent:
        """Return the spending for this call of the sub-agent and its own sub-agents."""
        totals = self.totals
        return Spent(totals.steps, totals.usage.tokens, totals.cost or 0.0) if totals else Spent()

    def spent_beside(self) -> Spent:
        """Return the spending of the owner's other sub-agents since this sub-agent began."""
        others = self.owner.spent_by_others().minus(self._others_before)
        return others.minus(self.spent())

    def _count(self, steps: int, usage: Usage, cost: float | None) -> None:
        self._own = _plus(self._own, SubAgent("", "", steps, usage, cost))
        self._report_totals()

    def _report_totals(self) -> None:
        totals = self._own
        for nested in self._nested.values():
            totals = _plus(totals, nested)
        self.totals = totals
        if self._attached:
            self.owner.report(self.item_id, totals)

    def _show_nested_call(self, update: ToolCallUpdated) -> None:
        self._calls_shown += 1
        # The sub-agent's own session shows all of its calls.
        if self._attached and self._calls_shown <= SHOWN_CALLS_MAX:
            line = f"{self._names.get(update.item_id, '')} {update.title}".strip()
            self.owner.show_call(self.item_id, line)


def spent_by(runs: Iterable[SubAgentRun]) -> Spent:
    """Return the spending of several sub-agents."""
    total = Spent()
    for run in runs:
        total = total.plus(run.spent())
    return total


def _plus(totals: SubAgent, more: SubAgent) -> SubAgent:
    """Return `totals` with more spending added."""
    return structs.replace(
        totals,
        steps=totals.steps + more.steps,
        usage=totals.usage.plus(more.usage),
        cost=add_cost(totals.cost, more.cost),
    )


class OwnedSession(Protocol):
    """The session of a sub-agent."""

    snapshot: Snapshot
    """The session's current state."""

    async def run_sub_agent(
        self, sub_agent_run: SubAgentRun, prompt: str, overrides: TurnOverrides
    ) -> None:
        """Start the sub-agent's turn; raises `RejectionError`."""
        ...


class Sessions(Protocol):
    """Creates and finds the sessions of sub-agents."""

    async def create_owned(
        self,
        workspace: str,
        settings: Settings,
        owner_id: str,
        item_id: str,
        *,
        apart: bool = False,
    ) -> OwnedSession:
        """Create a session for a sub-agent, `apart` in a new worktree of the workspace.

        Raises `LogError` or `RejectionError`.
        """
        ...

    async def find_owned(self, session_id: str, owner_id: str) -> OwnedSession:
        """Find the session of an earlier sub-agent; raises `RejectionError` or `LogError`."""
        ...
