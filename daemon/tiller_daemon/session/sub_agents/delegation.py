"""Delegation: a `task` call starts a turn in a separate session, and usually waits for its end.

The sub-agent's session is like any other. Any frontend can attach to it, steer it and answer its
requests. A `SubAgentRun` links the call with the turn.
"""

from typing import Protocol

import trio
from msgspec import structs

from tiller_daemon.errors import RejectionError
from tiller_daemon.session.background.commands import Background
from tiller_daemon.session.sub_agents.background_tasks import BackgroundTasks
from tiller_daemon.session.sub_agents.report import report_of
from tiller_daemon.session.sub_agents.sub_agent_run import Inherited, Owner, SubAgentRun
from tiller_daemon.store.base import LogError
from tiller_daemon.tools.base import Assignment, ToolFailure, ToolResult
from tiller_daemon.turn.budget import Spent, remaining_budget, tighter_budget
from tiller_protocol.settings import Budget, Settings, TurnOverrides
from tiller_protocol.snapshot import Snapshot

DEPTH_MAX = 3
"""How deep sub-agents may be nested; at this depth the tool `task` is no longer offered."""

END_S_MAX = 15.0
"""How many seconds an interrupted call waits for its sub-agent's turn. To kill a process tree that
ignores signals takes a few seconds, and each level of sub-agents waits for the next."""

START_S_MAX = 30.0
"""How many seconds a sub-agent may take to start, which needs two commits to the log."""

TITLE_CHARS_MAX = 100
"""Longest title of a background sub-agent in the list."""

MAY_WRITE_THERE = (
    "Only the sub-agent should write to {scope}, but these background commands may write there, "
    "too: {commands}. End them with bash_kill first, or leave out `background`."
)
NOT_NESTED = (
    "A sub-agent can't start others in the background, as it would end before them. Leave out "
    "`background`."
)
ONLY_READING = (
    "A background agent that writes needs `paths`: the places that nobody else may change until "
    "it ends. Declare them, leave out `background`, or choose a read-only agent: {agents}."
)
STILL_WORKS = (
    "The sub-agent {session_id} is still working on another task. Resume it after its report."
)


class OwnedSession(Protocol):
    """The session of a sub-agent."""

    snapshot: Snapshot
    """The session's current state."""

    async def run_sub_agent(
        self, sub_agent_run: "SubAgentRun", prompt: str, overrides: TurnOverrides
    ) -> None:
        """Start the sub-agent's turn; raises `RejectionError`."""
        ...


class Sessions(Protocol):
    """Creates and finds the sessions of sub-agents."""

    async def create_owned(
        self, workspace: str, settings: Settings, owner_id: str, item_id: str
    ) -> OwnedSession:
        """Create a session for a sub-agent; raises `LogError`."""
        ...

    async def find_owned(self, session_id: str, owner_id: str) -> OwnedSession:
        """Find the session of an earlier sub-agent; raises `RejectionError` or `LogError`."""
        ...


class Delegation:
    """The sub-agents of one turn."""

    def __init__(
        self,
        sessions: Sessions,
        default_budget: Budget,
        background: BackgroundTasks,
        commands: Background,
    ) -> None:
        self._sessions = sessions
        self._default_budget = default_budget
        self._background = background
        self._commands = commands
        self._sub_agent_runs: list[SubAgentRun] = []

    def spent(self) -> Spent:
        """Return the spending of all sub-agents of the turn so far."""
        total = Spent()
        for sub_agent_run in self._sub_agent_runs:
            total = total.plus(sub_agent_run.spent())
        return total

    def reconsider(self) -> None:
        """Resolve open requests of sub-agents that the rules now allow."""
        for sub_agent_run in self._sub_agent_runs:
            if sub_agent_run.turn:
                sub_agent_run.turn.reconsider()

    def close(self) -> None:
        """Drop the runs, because they refer to the turn, which must be freed once it has ended."""
        self._sub_agent_runs.clear()

    async def run(self, owner: Owner, item_id: str, assignment: Assignment) -> ToolResult:
        """Give an assignment to a sub-agent of `owner` and return its report.

        Raises `ToolFailure`. On cancellation the sub-agent's turn is interrupted, and this waits up
        to `END_S_MAX` for its end. A background sub-agent is only started.
        """
        if assignment.background:
            return await self._run_in_background(owner, item_id, assignment)
        sub_agent_run = SubAgentRun(owner, self._inherited(owner, assignment), item_id)
        self._sub_agent_runs.append(sub_agent_run)
        try:
            # Shielded, since a cancellation in here could leave a turn that has no owner.
            with trio.fail_after(START_S_MAX, shield=True):
                await self._start(owner, sub_agent_run, assignment)
            await sub_agent_run.done.wait()
        except (RejectionError, LogError) as error:
            raise ToolFailure(f"No sub-agent was started: {error.message}") from error
        finally:
            await _end_turn(sub_agent_run)
        return report_of(sub_agent_run)

    async def _run_in_background(
        self, owner: Owner, item_id: str, assignment: Assignment
    ) -> ToolResult:
        if owner.context.depth:
            raise ToolFailure(NOT_NESTED)
        read_only = [one.name for one in owner.context.prompt.sub_agents if one.read_only]
        scope = assignment.scope
        if assignment.agent in read_only or owner.context.permissions.read_only:
            scope = None
        elif scope is None:
            raise ToolFailure(ONLY_READING.format(agents=", ".join(sorted(read_only))))
        elif writing := self._commands.writing_to(scope):
            names = ", ".join(writing)
            raise ToolFailure(MAY_WRITE_THERE.format(commands=names, scope=scope))
        inherited = self._inherited(owner, assignment)
        writes = f" (may change {scope})" if scope else ""
        title = f"{assignment.agent or 'resumed'}{writes}: {' '.join(assignment.prompt.split())}"
        task = self._background.begin(item_id, title[:TITLE_CHARS_MAX], scope)
        task.run = sub_agent_run = SubAgentRun(task, inherited, item_id)
        try:
            with trio.fail_after(START_S_MAX, shield=True):
                await self._start(owner, sub_agent_run, assignment)
        except BaseException as error:
            # First, because this frees the places that it has claimed.
            await _end_turn(sub_agent_run)
            self._background.fail(task)
            if isinstance(error, (RejectionError, LogError)):
                raise ToolFailure(f"No sub-agent was started: {error.message}") from error
            raise
        return self._background.watch(task)

    async def _start(
        self, owner: Owner, sub_agent_run: SubAgentRun, assignment: Assignment
    ) -> None:
        agent, resume = assignment.agent, assignment.resume
        context, inherited = owner.context, sub_agent_run.inherited
        offered = next((one for one in context.prompt.sub_agents if one.name == agent), None)
        model, variant = inherited.model, inherited.variant
        if offered and offered.has_model:
            model = variant = None
        if offered and offered.has_variant:
            variant = None
        if resume:
            session = await self._sessions.find_owned(resume, context.session_id)
        else:
            settings = Settings(agent=agent, model=model, variant=variant)
            session = await self._sessions.create_owned(
                context.workspace, settings, context.session_id, sub_agent_run.item_id
            )
        known = agent or session.snapshot.settings.agent or ""
        sub_agent_run.begin(session.snapshot.session_id, known)
        overrides = TurnOverrides(
            agent=agent or None,
            # A resumed sub-agent keeps its model.
            model=model if agent else None,
            variant=variant if agent else None,
            approve=context.permissions.approve,
            turn_budget=sub_agent_run.inherited.budget,
        )
        try:
            await session.run_sub_agent(sub_agent_run, assignment.prompt, overrides)
        except RejectionError as error:
            # A session has only one turn at a time, whoever asks for another turn.
            if error.code != "busy":
                raise
            message = STILL_WORKS.format(session_id=session.snapshot.session_id)
            raise RejectionError(error.code, message) from None

    def _inherited(self, owner: Owner, assignment: Assignment) -> Inherited:
        context = owner.context
        scope = assignment.scope or context.permissions.scope
        return Inherited(
            permissions=structs.replace(context.permissions, scope=scope),
            depth=context.depth + 1,
            model=context.model.name,
            variant=context.model.variant,
            budget=self._budget_left(owner),
        )

    def _budget_left(self, owner: Owner) -> Budget:
        """Return the rest of the turn's and its session's budgets after the current step."""
        budgets = owner.context.budgets
        turn = owner.open_turn()
        spent = Spent(
            turn.steps_ended + turn.step_open + turn.delegated_steps,
            turn.usage.tokens,
            turn.cost or 0.0,
            owner.elapsed_s(),
        ).plus(owner.spent_by_others().minus(self.spent()))
        left = remaining_budget(budgets.turn, spent)
        of_session = remaining_budget(budgets.session, budgets.spent_before.plus(spent))
        # Checked here, since the step that calls `task` may have used up the budget.
        if left is None or of_session is None:
            raise ToolFailure("No sub-agent was started: the budget of this turn is used up.")
        return tighter_budget(tighter_budget(left, of_session), self._default_budget)


async def _end_turn(sub_agent_run: SubAgentRun) -> None:
    """Interrupt the sub-agent's turn if it is still running, and wait for its end."""
    if sub_agent_run.turn:
        sub_agent_run.turn.interrupt()
        # Shielded, since this also runs when the call has been cancelled.
        with trio.move_on_after(END_S_MAX, shield=True):
            await sub_agent_run.done.wait()
    sub_agent_run.detach()
