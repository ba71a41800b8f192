"""Delegation: a `task` call starts a turn in a separate session, and usually waits for its end.

The sub-agent's session is like any other. Any frontend can attach to it, steer it and answer its
requests. A `SubAgentRun` links the call with the turn.
"""

import trio
from msgspec import structs

from tiller_daemon.errors import RejectionError
from tiller_daemon.session.session_parts import SessionParts
from tiller_daemon.session.sub_agents.owner import Owner
from tiller_daemon.session.sub_agents.report import report_of
from tiller_daemon.session.sub_agents.sub_agent_run import Inherited, SubAgentRun, spent_by
from tiller_daemon.store.base import LogError
from tiller_daemon.tools.base import Assignment, ToolFailure, ToolResult
from tiller_daemon.turn.budget import Spent, remaining_budget, tighter_budget
from tiller_protocol.settings import Budget, Settings, TurnOverrides

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
NOT_APART = (
    "No sub-agent was started: your task lets you change only {scope}, so your sub-agents can't "
    "work in a worktree. Leave out `isolation`."
)
STILL_WORKS = (
    "The sub-agent {session_id} is still working on another task. Resume it after its report."
)


class Delegation:
    """The sub-agents of one turn."""

    def __init__(self, owner: Owner, session: SessionParts) -> None:
        self._owner = owner
        self._session = session
        self._default_budget = session.services.user.configuration().turn_budget

    async def run(self, item_id: str, assignment: Assignment) -> ToolResult:
        """Give an assignment to a sub-agent and return its report.

        Raises `ToolFailure`. On cancellation the sub-agent's turn is interrupted, and this waits up
        to `END_S_MAX` for its end. A background sub-agent is only started.
        """
        if assignment.background:
            return await self._run_in_background(item_id, assignment)
        sub_agent_run = SubAgentRun(self._owner, self._inherited(assignment), item_id)
        self._owner.runs.append(sub_agent_run)
        try:
            # Shielded, since a cancellation in here could leave a turn that has no owner.
            with trio.fail_after(START_S_MAX, shield=True):
                await self._start(sub_agent_run, assignment)
            await sub_agent_run.done.wait()
        except (RejectionError, LogError) as error:
            raise ToolFailure(f"No sub-agent was started: {error.message}") from error
        finally:
            await _end_turn(sub_agent_run)
        return report_of(sub_agent_run)

    async def _run_in_background(self, item_id: str, assignment: Assignment) -> ToolResult:
        context, tasks = self._owner.context, self._session.tasks
        if context.depth:
            raise ToolFailure(NOT_NESTED)
        read_only = [one.name for one in context.prompt.sub_agents if one.read_only]
        scope = assignment.scope
        if assignment.agent in read_only or context.permissions.read_only or assignment.apart:
            scope = None
        elif scope is None:
            raise ToolFailure(ONLY_READING.format(agents=", ".join(sorted(read_only))))
        elif writing := self._session.background.writing_to(scope):
            names = ", ".join(writing)
            raise ToolFailure(MAY_WRITE_THERE.format(commands=names, scope=scope))
        inherited = self._inherited(assignment)
        writes = f" (may change {scope})" if scope else ""
        title = f"{assignment.agent or 'resumed'}{writes}: {' '.join(assignment.prompt.split())}"
        task = tasks.begin(item_id, title[:TITLE_CHARS_MAX], scope)
        task.run = sub_agent_run = SubAgentRun(task, inherited, item_id)
        try:
            with trio.fail_after(START_S_MAX, shield=True):
                await self._start(sub_agent_run, assignment)
        except BaseException as error:
            # First, because this frees the places that it has claimed.
            await _end_turn(sub_agent_run)
            tasks.fail(task)
            if isinstance(error, (RejectionError, LogError)):
                raise ToolFailure(f"No sub-agent was started: {error.message}") from error
            raise
        return tasks.watch(task)

    async def _start(self, sub_agent_run: SubAgentRun, assignment: Assignment) -> None:
        agent, resume = assignment.agent, assignment.resume
        context, inherited = self._owner.context, sub_agent_run.inherited
        offered = next((one for one in context.prompt.sub_agents if one.name == agent), None)
        model, variant = inherited.model, inherited.variant
        if offered and offered.has_model:
            model = variant = None
        if offered and offered.has_variant:
            variant = None
        if resume:
            session = await self._session.sessions.find_owned(resume, context.session_id)
        else:
            settings = Settings(agent=agent, model=model, variant=variant)
            session = await self._session.sessions.create_owned(
                context.workspace,
                settings,
                context.session_id,
                sub_agent_run.item_id,
                apart=assignment.apart,
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

    def _inherited(self, assignment: Assignment) -> Inherited:
        context = self._owner.context
        if assignment.apart and context.permissions.scope:
            raise ToolFailure(NOT_APART.format(scope=context.permissions.scope))
        scope = assignment.scope or context.permissions.scope
        return Inherited(
            permissions=structs.replace(context.permissions, scope=scope),
            depth=context.depth + 1,
            apart=assignment.apart,
            model=context.model.name,
            variant=context.model.variant,
            budget=self._budget_left(),
        )

    def _budget_left(self) -> Budget:
        """Return the rest of the turn's and its session's budgets after the current step."""
        budgets, outbox = self._owner.context.budgets, self._session.outbox
        turn = outbox.fold_pending().turn
        assert turn is not None
        beside = self._owner.spent_by_others().minus(spent_by(self._owner.runs))
        spent = Spent(
            turn.steps_ended + turn.step_open + turn.delegated_steps,
            turn.usage.tokens,
            turn.cost or 0.0,
            turn.worked_s(outbox.time()),
        ).plus(beside)
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
