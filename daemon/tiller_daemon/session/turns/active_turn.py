"""A running turn: its cancel scope, its ports, and how it ends.

`ActiveTurn.run` is the turn's task. However `run_turn` ends, the same function closes the turn.
"""

from collections.abc import Awaitable, Callable
from functools import partial

import structlog
import trio
from msgspec import structs

from tiller_daemon.policy.readable import Readable
from tiller_daemon.session.background.claims import Claims
from tiller_daemon.session.background.jobs import BackgroundJobs
from tiller_daemon.session.calls.environments import Environments
from tiller_daemon.session.calls.escalation import Escalation
from tiller_daemon.session.calls.permission import Permission
from tiller_daemon.session.calls.toolbox import Toolbox
from tiller_daemon.session.calls.turn_diagnostics import TurnDiagnostics
from tiller_daemon.session.calls.turn_sandboxes import TurnSandboxes
from tiller_daemon.session.calls.turn_tools import TurnTools
from tiller_daemon.session.calls.write_limits import WriteLimits
from tiller_daemon.session.context.freeze import FrozenTurn, with_grants
from tiller_daemon.session.context.project_trust import turn_hooks
from tiller_daemon.session.editor_files import EditorsOfSession
from tiller_daemon.session.hooks import TurnHooks
from tiller_daemon.session.inputs.attachments import left_out
from tiller_daemon.session.requests import IsAllowed, Reply
from tiller_daemon.session.services import ChosenModel
from tiller_daemon.session.session_parts import SessionParts
from tiller_daemon.session.sub_agents.delegation import Delegation
from tiller_daemon.session.sub_agents.sub_agent_run import SubAgentRun
from tiller_daemon.session.turns.title import TitleRequest
from tiller_daemon.session.turns.turn_changes import TurnChanges
from tiller_daemon.store.base import LogError
from tiller_daemon.tools.base import FileAccess, WebAccess
from tiller_daemon.turn.budget import Spent
from tiller_daemon.turn.closing import closing_bodies
from tiller_daemon.turn.context import Ending, TurnContext
from tiller_daemon.turn.history import History
from tiller_daemon.turn.ports import Ports, Spending
from tiller_daemon.turn.retry import RetriedModel
from tiller_daemon.turn.user_tasks import TaskRejected
from tiller_daemon.workspace.repository import checked_out
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.events import (
    AnyBody,
    HistoryCompacted,
    ItemCompleted,
    ItemDelta,
    ItemStarted,
    SessionConfigured,
    StatusChanged,
    ToolCallUpdated,
    TurnEnded,
)
from tiller_protocol.items import Request, SubAgent, Usage
from tiller_protocol.settings import Rule
from tiller_protocol.turns import OpenTurn

log = structlog.get_logger()

Main = Callable[[TurnContext, History, Ports], Awaitable[Ending]]
"""The body of a turn: `run_turn`, or another function with its signature."""


class ActiveTurn:
    """One turn of one session, which continues a history.

    The turn `takes_input` until it decides to end. It `is_over` once its end is in the log; its
    task may then still be ending commands and running hooks.

    If a turn is not `steerable`, input waits for its end. `title_request` runs as a task of the
    session once the session's first turn has ended. `sub_agent_run` is set for a sub-agent's turn.
    The turn is the `Owner` of its own sub-agents.
    """

    def __init__(
        self,
        frozen: FrozenTurn,
        main: Main,
        session: SessionParts,
        history: History,
        *,
        steerable: bool = True,
        title_request: TitleRequest | None = None,
        sub_agent_run: SubAgentRun | None = None,
    ) -> None:
        self.context = frozen.context
        self.steerable = steerable
        self.title_request = title_request
        self.is_over = False
        self._frozen = frozen
        self._main = main
        self._session = session
        self._history = history
        self._sub_agent_run = sub_agent_run
        self._scope = trio.CancelScope()
        self._grants: tuple[Rule, ...] = ()
        self._interrupted = Ending("interrupted")
        self._step_usage = Usage()
        services, outbox = session.services, session.outbox
        self._changes = TurnChanges(
            services,
            self.context.workspace,
            self.session_id,
            outbox.put,
            self._limits,
            session.told,
        )
        budget = services.user.configuration().turn_budget
        self._delegation = Delegation(session.sessions, budget, session.tasks, session.background)
        self._background_before = session.tasks.spent()
        # Set before the turn can ask anything, so that the owner sees every request.
        session.requests.observer = sub_agent_run
        if sub_agent_run:
            sub_agent_run.turn = self
        if steerable:
            session.queue.open()

    @property
    def turn_id(self) -> str:
        """The turn's ULID."""
        return self.context.turn_id

    @property
    def session_id(self) -> str:
        """The ULID of the turn's session."""
        return self.context.session_id

    @property
    def model(self) -> ChosenModel:
        """The model for the turn's steps."""
        return self._frozen.model

    @property
    def claims(self) -> Claims:
        """The claims of background sub-agents in the session that the user talks to."""
        run = self._sub_agent_run
        return run.owner.claims if run else self._session.tasks.claims

    @property
    def _limits(self) -> WriteLimits:
        return WriteLimits(self.context.permissions.scope, self.claims)

    @property
    def takes_input(self) -> bool:
        """Whether input can still be steered into this turn or follow it."""
        return self._session.queue.is_open

    def interrupt(self, reason: ErrorInfo | None = None) -> None:
        """Cancel the turn; it ends as `interrupted` with `reason`. A second call has no effect."""
        # Input that arrives from now on is for the next turn.
        self._session.queue.close()
        if not self._scope.cancel_called:
            self._interrupted = Ending("interrupted", reason)
            self._scope.cancel()

    def grant(self, rules: tuple[Rule, ...]) -> None:
        """Apply rules that the user granted to all later calls and to open requests."""
        self._grants += rules
        self.reconsider()
        if self._sub_agent_run:
            self._sub_agent_run.pass_up_grant(rules)

    def revoke(self, rule: Rule) -> None:
        """Stop applying a rule of the session for the rest of the turn."""
        self._grants += (structs.replace(rule, action="ask"),)

    def grant_from_sub_agent(self, rules: tuple[Rule, ...]) -> None:
        """Apply the rules that the user granted to a sub-agent to this whole session."""
        settings = with_grants(self._session.outbox.fold_pending().settings, rules)
        self._session.outbox.put(SessionConfigured(settings))
        self.grant(rules)
        self._session.tasks.reconsider()

    def reconsider(self) -> None:
        """Resolve open requests that the rules now allow, here and in sub-agents."""
        self._session.requests.reconsider()
        self._delegation.reconsider()

    def live_rules(self) -> tuple[Rule, ...]:
        """Return the rules granted since the turn began, weakest first."""
        # This session's grants come last, so they are the strongest.
        run = self._sub_agent_run
        return (*(run.owner.live_rules() if run else ()), *self._grants)

    def mirror_request(self, request: Request) -> None:
        """Show a sub-agent's request in this session."""
        self._session.requests.mirror(request, self.turn_id)

    def mirror_resolution(self, request_id: str, reply: Reply) -> None:
        """Show how a sub-agent's request was resolved."""
        self._session.requests.resolve_mirrored(request_id, reply, self.turn_id)

    def put(self, *bodies: AnyBody) -> None:
        """Put events of the turn into the outbox; a sub-agent's owner sees them, too."""
        if self._sub_agent_run:
            self._sub_agent_run.observe(*bodies)
        self._session.outbox.put(*bodies, turn_id=self.turn_id)

    def report(self, item_id: str, totals: SubAgent) -> None:
        """Show the spending so far of a call's sub-agent."""
        self.put(ToolCallUpdated(item_id, "running", sub_agent=totals))

    def show_call(self, item_id: str, line: str) -> None:
        """Show a call that a sub-agent makes, as live output of the `task` call."""
        self.put(ItemDelta(item_id, "output", f"{line}\n", "tool_call"))

    def open_turn(self) -> OpenTurn:
        """Return the turn's totals so far."""
        turn = self._session.outbox.fold_pending().turn
        assert turn is not None
        return turn

    def elapsed_s(self) -> float:
        """Return how many seconds the turn has worked."""
        return self.open_turn().worked_s(self._session.outbox.time())

    def spent_by_others(self) -> Spent:
        """Return the spending that counts against the budgets besides the turn's own steps.

        This is the spending of the turn's sub-agents, of its siblings if it is a sub-agent's turn,
        and of the background sub-agents since the turn began.
        """
        beside = self._sub_agent_run.spent_beside() if self._sub_agent_run else Spent()
        background = self._session.tasks.spent().minus(self._background_before)
        return self._delegation.spent().plus(beside).plus(background)

    async def run(self) -> None:
        """Run the turn and close it; raises `LogError` if its end can't be logged."""
        ended = None
        try:
            ended = await self._run()
            if self._sub_agent_run:
                # Only the owner's turn could later end commands that a sub-agent left running, but
                # the owner does not know these commands.
                await self._session.background.end_all()
            # Hooks run for turns of the model, not for compactions and the user's own commands.
            if ended and self.steerable:
                self._hooks().turn_ended(ended)
            if ended and self._sub_agent_run:
                self._hooks().sub_agent_ended(ended, self._sub_agent_run.owner.session_id)
        finally:
            # These refer to the turn; without this an ended turn would stay in memory.
            self._session.requests.observer = None
            if self._sub_agent_run:
                self._sub_agent_run.turn_ended(ended)
            else:
                # A sub-agent rarely has another turn.
                services = self._session.services
                services.histories.put(self.session_id, self._history, services.time())
            self._delegation.close()

    async def _run(self) -> TurnEnded | None:
        ending = self._interrupted
        try:
            with self._scope:
                ending = await self._main(self.context, self._history, self._ports())
        except TaskRejected as rejected:
            ending = Ending("blocked", rejected.reason)
        # Without the log the session can only end; it is loaded again later.
        except LogError:
            raise
        except Exception as error:
            # A bug must not end the session, so the turn ends as `failed`.
            log.exception("turn_crashed", turn_id=self.turn_id)
            message = f"A bug in the daemon ended this turn: {type(error).__name__}: {error}"
            ending = Ending("failed", ErrorInfo("internal", message))
        # An interrupt wins over whatever `main` returned while it was being cancelled.
        if self._scope.cancelled_caught:
            ending = self._interrupted
        # Before the turn's end is in the log, as what anybody changes after that is not the turn's.
        if patch := await self._changes.finish():
            self.put(ItemStarted(patch), ItemCompleted(patch))
        ended = self._close(ending)
        await self._session.outbox.committed()
        self.is_over = True
        if self.title_request:
            self.title_request.turn_ended(ending.outcome)
        return ended

    def _close(self, ending: Ending) -> TurnEnded | None:
        """Put all events that end the turn, without a checkpoint in between."""
        self._session.queue.close()
        self._session.queue.hand_back()
        # Input that a turn leaves in the queue does not start by itself, so frontends must know.
        if self._session.queue.queue:
            self._session.outbox.put(self._session.queue.changed())
        snapshot = self._session.outbox.fold_pending()
        services, now = self._session.services, self._session.outbox.time()
        bodies = closing_bodies(
            snapshot,
            ending,
            now,
            services.new_id,
            step_usage=self._step_usage,
            cost=self.context.model.price(self._step_usage),
            unrecorded=self._changes.is_open,
            branch=checked_out(self.context.workspace),
        )
        self.put(*bodies)
        # Without the turn's id: the event concerns the session, which is idle after the turn.
        self._session.outbox.put(StatusChanged("idle"))
        return next((body for body in bodies if isinstance(body, TurnEnded)), None)

    def _ports(self) -> Ports:
        services, hooks = self._session.services, self._hooks()
        return Ports(
            model=self._retried(self.model),
            compaction_model=self._retried(self._frozen.compaction),
            tools=Toolbox(self._frozen.tools, self._frozen.tools_of_user, self._turn_tools(hooks)),
            emit=self._emit,
            committed=self._session.outbox.committed,
            mailbox=self._session.queue,
            changes=self._changes,
            hooks=hooks,
            new_id=services.new_id,
            time=self._session.outbox.time,
            spending=Spending(self.spent_by_others, self._note_step_usage),
        )

    def _retried(self, model: ChosenModel) -> RetriedModel:
        services = self._session.services
        limits = services.user.configuration().retry
        return RetriedModel(model.client, limits, services.time, services.random)

    def _turn_tools(self, hooks: TurnHooks) -> TurnTools:
        services, context = self._session.services, self.context
        spill_directory = services.files.spill_directory(context.session_id)
        approve, new_id = context.permissions.approve, services.new_id
        permission = Permission(
            context.workspace, approve, self._rules, self._ask, new_id, self._granted
        )
        sandboxes = TurnSandboxes(
            services.commands.sandboxes, context, self._rules, spill_directory, self._limits
        )
        environments = Environments(
            context=context,
            permission=permission,
            files=FileAccess(
                versions=self._session.files,
                readable=Readable(self._rules()),
                diagnostics=TurnDiagnostics(services.tools.language_servers, sandboxes),
                spill_directory=spill_directory,
                journals=services.files.journals,
                editors=EditorsOfSession(
                    services.tools.editors, context.session_id, context.workspace
                ),
            ),
            commands=services.commands,
            background=BackgroundJobs(self._session.background, self._session.tasks),
            web=WebAccess(
                services.user.configuration().fetch.private_addresses, services.commands.proxies
            ),
            emit=self._emit,
            delegate=partial(self._delegation.run, self),
            withdraw=self._session.requests.withdraw,
        )
        escalation = Escalation(permission, sandboxes)
        return TurnTools(context, permission, sandboxes, escalation, environments, hooks)

    def _hooks(self) -> TurnHooks:
        """Return the turn's hooks.

        They refer to the turn. To store them on the turn would make a reference cycle, which would
        keep an ended turn in memory.
        """
        return turn_hooks(self._session.services, self._frozen.hooks, self.context, self._emit)

    async def _emit(self, *bodies: AnyBody) -> None:
        # A summary replaces the instructions of subdirectories that came with earlier results.
        if any(isinstance(body, HistoryCompacted) for body in bodies):
            self._session.files.instructions_sent.clear()
        bodies += tuple(left_out(bodies, self.model))
        if self._sub_agent_run:
            self._sub_agent_run.observe(*bodies)
        await self._session.outbox.emit(*bodies, turn_id=self.turn_id)

    def _note_step_usage(self, usage: Usage) -> None:
        self._step_usage = usage

    def _rules(self) -> tuple[Rule, ...]:
        lasting = self._session.services.user.lasting_rules.of(self.context.workspace)
        return (*self.context.permissions.rules, *self.live_rules(), *lasting)

    def _granted(self) -> tuple[Rule, ...]:
        settings = self._session.outbox.fold_pending().settings
        return (*(settings.permissions or ()), *self.live_rules())

    async def _ask(self, request: Request, is_allowed: IsAllowed) -> Reply:
        self._hooks().request_opened(request)
        return await self._session.requests.ask(request, self.turn_id, is_allowed)
