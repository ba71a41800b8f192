"""Sub-agents: a call of `task` becomes a turn of a session of its own, and waits for its end.

The sub-agent's session is like any other: it has its own log, any frontend may attach to it, steer
it and answer its requests. An `Errand` links the call with that turn. How a session is made and
found is the supervisor's business.
"""

from typing import Protocol

import trio

from tiller_daemon.errors import RejectionError
from tiller_daemon.session.sub_agents.sub_agent_run import Errand, Inherited, Owner
from tiller_daemon.store.base import LogError
from tiller_daemon.tools.base import ToolFailure, ToolResult
from tiller_daemon.tools.output import cut_text
from tiller_daemon.turn.budget import Spent, least, left_of
from tiller_protocol.settings import Budget, Settings, TurnOverrides
from tiller_protocol.snapshot import Snapshot

DEPTH_MAX = 3
"""How deep sub-agents may start sub-agents; at this depth the tool is not offered any more."""

END_S_MAX = 15.0
"""How long an interrupted call waits for its sub-agent's turn: killing a process tree that does not
listen takes a few seconds, and each level of depth waits for the one below."""

START_S_MAX = 30.0
"""How long a sub-agent may take to start: two commits to the log."""

CLIENT = "task"
"""Whose input a sub-agent's prompt is."""


class OwnedSession(Protocol):
    """A session that works for another one."""

    @property
    def snapshot(self) -> Snapshot:
        """The session as it is."""
        ...

    async def run_errand(self, errand: "Errand", prompt: str, overrides: TurnOverrides) -> None:
        """Start the turn; raises `RejectionError` when that can't be."""
        ...


class Sessions(Protocol):
    """Where sub-agents live."""

    async def create_owned(
        self, workspace: str, settings: Settings, owner_id: str, item_id: str
    ) -> OwnedSession:
        """Make a session for a sub-agent; raises `LogError`."""
        ...

    async def find_owned(self, session_id: str, owner_id: str) -> OwnedSession:
        """Find a sub-agent of this session; raises `RejectionError` or `LogError`."""
        ...


class Delegation:
    """The sub-agents of one turn."""

    def __init__(self, owner: Owner, sessions: Sessions, default_budget: Budget) -> None:
        self._owner = owner
        self._sessions = sessions
        self._default_budget = default_budget
        self._errands: list[Errand] = []

    def spent(self) -> Spent:
        """What all sub-agents of the turn have spent so far."""
        total = Spent()
        for errand in self._errands:
            total = total.plus(errand.spent())
        return total

    def reconsider(self) -> None:
        """Resolve open requests of sub-agents that are allowed by now."""
        for errand in self._errands:
            if errand.turn and not errand.over.is_set():
                errand.turn.reconsider()

    def close(self) -> None:
        """Let go of the turn, which has ended: in a ring with it, it would be kept for long."""
        self._errands.clear()
        del self._owner

    async def run(self, item_id: str, prompt: str, agent: str, resume: str) -> ToolResult:
        """Give `prompt` to a sub-agent and return its report; raises `ToolFailure`.

        On cancellation its turn is interrupted, and has ended when this returns.
        """
        errand = Errand(self._owner, self._inherited(), item_id)
        self._errands.append(errand)
        try:
            # Cancelled in here, a turn could start of which nobody knows.
            with trio.fail_after(START_S_MAX, shield=True):
                await self._start(errand, item_id, prompt, agent, resume)
            await errand.over.wait()
        except (RejectionError, LogError) as error:
            raise ToolFailure(f"No sub-agent was started: {error.message}") from error
        finally:
            await _bring_to_an_end(errand)
        return _report(errand)

    async def _start(
        self, errand: Errand, item_id: str, prompt: str, agent: str, resume: str
    ) -> None:
        context, own_model = self._owner.context, self._own_model(agent)
        model = None if own_model else errand.inherited.model
        variant = None if own_model else errand.inherited.variant or None
        if resume:
            session = await self._sessions.find_owned(resume, context.session_id)
        else:
            settings = Settings(agent=agent, model=model, variant=variant)
            session = await self._sessions.create_owned(
                context.workspace, settings, context.session_id, item_id
            )
        known = agent or session.snapshot.settings.agent or ""
        errand.begin(session.snapshot.session_id, known)
        overrides = TurnOverrides(
            agent=agent or None,
            model=model if agent else None,
            variant=variant if agent else None,
            approve=context.permissions.approve,
            turn_budget=errand.inherited.budget,
        )
        await session.run_errand(errand, prompt, overrides)

    def _own_model(self, agent: str) -> bool:
        return any(one.name == agent and one.has_model for one in self._owner.context.sub_agents)

    def _inherited(self) -> Inherited:
        context = self._owner.context
        return Inherited(
            permissions=context.permissions,
            depth=context.depth + 1,
            model=context.model.name,
            variant=context.model.variant,
            budget=self._budget_left(),
        )

    def _budget_left(self) -> Budget:
        """What the turn and its session may still spend, the step that runs now counted."""
        owner, budgets = self._owner, self._owner.context.budgets
        turn = owner.open_turn()
        spent = Spent(
            turn.steps_ended + 1 + turn.delegated_steps,
            turn.usage.tokens,
            turn.cost or 0.0,
            owner.elapsed_s(),
        ).plus(owner.spent_by_others().minus(self.spent()))
        left = left_of(budgets.turn, spent)
        of_session = left_of(budgets.session, budgets.spent_before.plus(spent))
        if left is None or of_session is None:
            raise ToolFailure("No sub-agent was started: the budget of this turn is used up.")
        return least(least(left, of_session), self._default_budget)


async def _bring_to_an_end(errand: Errand) -> None:
    """Interrupt the sub-agent's turn if it still runs, and wait for its end."""
    if errand.turn and not errand.over.is_set():
        errand.turn.interrupt()
        with trio.move_on_after(END_S_MAX, shield=True):
            await errand.over.wait()
    errand.abandon()


def _report(errand: Errand) -> ToolResult:
    sums = errand.sums
    assert sums is not None
    body = errand.ended
    footer = f"[sub-agent {sums.agent}, {sums.session_id}: `resume` it to go on from here]"
    if body is None:
        said = "The sub-agent's session could not be logged, and ended."
    elif body.outcome == "completed":
        said = body.last_message or "The sub-agent ended without a word."
    else:
        reason = f": {body.error.message}" if body.error else "."
        said = f"The sub-agent's turn ended as {body.outcome}{reason}"
        if body.last_message:
            said += f"\nThe last that it said:\n{body.last_message}"
    failed = body is None or body.outcome != "completed"
    # A no to a sub-agent is a no to what it was to do: it is the user's turn to speak.
    rejected = body is not None and body.outcome == "blocked"
    output = f"{cut_text(said)}\n\n{footer}"
    return ToolResult(output, failed=failed, rejected=rejected, sub_agent=sums)
