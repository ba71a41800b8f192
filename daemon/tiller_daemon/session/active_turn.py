"""A turn while it runs: its cancel scope, its ports, and its one way to end.

`ActiveTurn.run` is the only task of a turn at the session's level. Whatever happens in `run_turn` —
an answer, an interrupt, a bug — the same function closes the turn.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import structlog
import trio
from msgspec import structs

from tiller_daemon.policy.rules import decide
from tiller_daemon.policy.shell.enclosures import UNSANDBOXED, may_run_outside, seems_to_read
from tiller_daemon.session.background import Background
from tiller_daemon.session.calls.enclosing import Enclosing
from tiller_daemon.session.calls.escalation import Escalation
from tiller_daemon.session.calls.permission import Permission
from tiller_daemon.session.calls.toolbox import Toolbox
from tiller_daemon.session.changes import TurnChanges
from tiller_daemon.session.freeze import FrozenTurn, with_grants
from tiller_daemon.session.hooks import TurnHooks
from tiller_daemon.session.mailbox import InputQueue
from tiller_daemon.session.outbox import Outbox
from tiller_daemon.session.requests import OpenRequests, Reply
from tiller_daemon.session.services import ChosenModel, Services
from tiller_daemon.session.sub_agents.delegation import Delegation, Sessions
from tiller_daemon.session.sub_agents.sub_agent_run import SubAgentRun
from tiller_daemon.session.title import Titling
from tiller_daemon.session.trust import hold_of_project
from tiller_daemon.store.base import LogError
from tiller_daemon.tools.base import FileVersions, Requirement
from tiller_daemon.turn.budget import Spent
from tiller_daemon.turn.closing import closing_bodies
from tiller_daemon.turn.context import Ending, TurnContext
from tiller_daemon.turn.history import History
from tiller_daemon.turn.ports import Ports
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.events import (
    AnyBody,
    HistoryCompacted,
    ItemCompleted,
    ItemStarted,
    QueueChanged,
    SessionConfigured,
    StatusChanged,
    TurnEnded,
)
from tiller_protocol.items import Request, Usage
from tiller_protocol.settings import Rule
from tiller_protocol.turns import OpenTurn

log = structlog.get_logger()

COMMAND_PERMISSION = "bash"
"""Its subjects are command lines."""


Main = Callable[[TurnContext, History, Ports], Awaitable[Ending]]
"""What a turn does: `run_turn`, or another function of that shape."""


@dataclass(frozen=True)
class Hands:
    """What turns of one session work with, one after the other."""

    services: Services
    outbox: Outbox
    queue: InputQueue
    requests: OpenRequests
    files: FileVersions
    sessions: Sessions
    background: Background


class ActiveTurn:
    """One turn of one session. `takes_input` is false from its last decision on.

    It `is_over` when its end is in the log; what it did to files may then still be looked at.

    A turn that is not `steerable` takes no input: what comes waits for its end. `titling` is a task
    of the session that runs beside its first turn. `sub_agent_run` is set when a sub-agent runs the
    turn. To its own sub-agents the turn is their `Owner`.
    """

    def __init__(
        self,
        frozen: FrozenTurn,
        main: Main,
        hands: Hands,
        *,
        steerable: bool = True,
        titling: Titling | None = None,
        sub_agent_run: SubAgentRun | None = None,
    ) -> None:
        self.context = frozen.context
        self.steerable = steerable
        self.titling = titling
        self._frozen = frozen
        self._main = main
        self._services = hands.services
        self._outbox = hands.outbox
        self._queue = hands.queue
        self._requests = hands.requests
        self._files = hands.files
        self._background = hands.background
        self._scope = trio.CancelScope()
        self._grants: tuple[Rule, ...] = ()
        self._interrupted = Ending("interrupted")
        self._streamed = Usage()
        self._sub_agent_run = sub_agent_run
        budget = self._services.configuration().turn_budget
        self._changes = TurnChanges(
            self._services, self.context.workspace, self.context.session_id, self._outbox.put
        )
        self.is_over = False
        self._delegation = Delegation(self, hands.sessions, budget)
        self._requests.mirror = sub_agent_run
        if sub_agent_run:
            sub_agent_run.began(self)
        if steerable:
            self._queue.open()

    @property
    def turn_id(self) -> str:
        """The turn's id."""
        return self.context.turn_id

    @property
    def model(self) -> ChosenModel:
        """The turn's model."""
        return self._frozen.model

    @property
    def takes_input(self) -> bool:
        """Whether input can still be steered into this turn or follow it."""
        return self._queue.is_open

    def interrupt(self, reason: ErrorInfo | None = None) -> None:
        """Cancel the turn; it ends as `interrupted` with `reason`. Again: no effect."""
        self._queue.close()
        if not self._scope.cancel_called:
            self._interrupted = Ending("interrupted", reason)
            self._scope.cancel()

    def grant(self, rules: tuple[Rule, ...]) -> None:
        """Let rules that the user granted count from now on, also for open requests."""
        self._grants += rules
        self.reconsider()
        if self._sub_agent_run:
            self._sub_agent_run.granted(rules)

    def granted(self, rules: tuple[Rule, ...]) -> None:
        """Let rules that the user granted to a sub-agent count here too."""
        settings = with_grants(self._outbox.settle().settings, rules)
        self._outbox.put(SessionConfigured(settings))
        self.grant(rules)

    def reconsider(self) -> None:
        """Resolve what is open and by now allowed, here and in sub-agents."""
        self._requests.reconsider(self._is_allowed)
        self._delegation.reconsider()

    def live_rules(self) -> tuple[Rule, ...]:
        """What was granted since the turn began, weakest first."""
        return (*(self._sub_agent_run.live_rules() if self._sub_agent_run else ()), *self._grants)

    def show(self, request: Request) -> None:
        """Show the request of a sub-agent."""
        self._requests.show(request, self.turn_id)

    def hide(self, request_id: str, reply: Reply) -> None:
        """Say how the request of a sub-agent was resolved."""
        self._requests.hide(request_id, reply, self.turn_id)

    def put(self, *bodies: AnyBody) -> None:
        """Put events of the turn; whom it works for sees them too."""
        if self._sub_agent_run:
            self._sub_agent_run.saw(*bodies)
        self._outbox.put(*bodies, turn_id=self.turn_id)

    def open_turn(self) -> OpenTurn:
        """What the turn comes to so far."""
        turn = self._outbox.settle().turn
        assert turn is not None
        return turn

    def elapsed_s(self) -> float:
        """How long the turn has run."""
        return self.open_turn().worked_s(self._services.time())

    def spent_by_others(self) -> Spent:
        """What its sub-agents, and those beside it, spend of its budgets."""
        beside = self._sub_agent_run.spent_beside() if self._sub_agent_run else Spent()
        return self._delegation.spent().plus(beside)

    async def run(self, history: History) -> None:
        """Run the turn to its end and close it; raises `LogError` if that can't be logged."""
        ended = None
        try:
            ended = await self._run(history)
            if self._sub_agent_run:
                # Nobody but the turn that it worked for knows what a sub-agent has left running.
                await self._background.end_all()
            if ended and self.steerable:
                self._hooks().turn_ended(ended)
        finally:
            self._requests.mirror = None
            if self._sub_agent_run:
                self._sub_agent_run.end(ended)
            self._delegation.close()
        if patch := await self._changes.settle():
            self._outbox.put(ItemStarted(patch), ItemCompleted(patch))

    async def _run(self, history: History) -> TurnEnded | None:
        ending = self._interrupted
        try:
            with self._scope:
                ending = await self._main(self.context, history, self._ports())
        except LogError:
            raise
        except Exception as error:
            log.exception("turn_crashed", turn_id=self.turn_id)
            message = f"A defect of the daemon ended this turn: {type(error).__name__}: {error}"
            ending = Ending("failed", ErrorInfo("internal", message))
        if self._scope.cancelled_caught:
            ending = self._interrupted
        ended = self._close(ending)
        await self._outbox.committed()
        self.is_over = True
        return ended

    def _close(self, ending: Ending) -> TurnEnded | None:
        """Put everything that ends the turn, in one go."""
        self._queue.close()
        if self.titling:
            self.titling.turn_ended(interrupted=ending.outcome == "interrupted")
        if self._queue.hand_back() or (self._queue.queue and ending.outcome == "interrupted"):
            self._outbox.put(QueueChanged(self._queue.queue))
        snapshot = self._outbox.settle()
        now, new_id = self._services.time(), self._services.new_id
        cost = self.context.model.price(self._streamed)
        bodies = closing_bodies(snapshot, ending, now, new_id, streamed=self._streamed, cost=cost)
        self.put(*bodies)
        self._outbox.put(StatusChanged("idle"))
        return next((body for body in bodies if isinstance(body, TurnEnded)), None)

    def _ports(self) -> Ports:
        services, hooks = self._services, self._hooks()
        permission = Permission(
            self.context.permissions.approve, self._rules, self._ask, services.new_id
        )
        enclosing = self._enclosing()
        toolbox = Toolbox(
            context=self.context,
            tools=self._frozen.tools,
            permission=permission,
            escalation=Escalation(permission, enclosing),
            enclosing=enclosing,
            emit=self._emit,
            files=self._files,
            spill_directory=services.spill_directory(self.context.session_id),
            journals=services.journals,
            private_addresses=services.configuration().fetch.private_addresses,
            variables=services.variables,
            proxies=services.proxies,
            secrets=services.secrets,
            delegate=self._delegation.run,
            background=self._background,
            diagnostics=services.language_servers,
            hooks=hooks,
            withdraw=partial(self._requests.withdraw, turn_id=self.turn_id),
        )
        return Ports(
            model=self._frozen.model.client,
            compaction_model=self._frozen.compaction.client,
            tools=toolbox,
            emit=self._emit,
            committed=self._outbox.committed,
            mailbox=self._queue,
            changes=self._changes,
            hooks=hooks,
            new_id=services.new_id,
            time=services.time,
            random=services.random,
            spent_by_others=self.spent_by_others,
            streamed=self._note_streamed,
        )

    def _enclosing(self) -> Enclosing:
        services, spill = self._services, self._services.spill_directory(self.context.session_id)
        return Enclosing(services.confiner, self.context, self._rules, spill)

    def _hooks(self) -> TurnHooks:
        """What tells the hooks of this turn; not kept, as it leads back here."""
        hold = partial(hold_of_project, self._services, self.context)
        return TurnHooks(self._services.hooks, self.context, self._emit, hold)

    async def _emit(self, *bodies: AnyBody) -> None:
        if any(isinstance(body, HistoryCompacted) for body in bodies):
            self._files.instructions_sent.clear()
        if self._sub_agent_run:
            self._sub_agent_run.saw(*bodies)
        await self._outbox.emit(*bodies, turn_id=self.turn_id)

    def _note_streamed(self, usage: Usage) -> None:
        self._streamed = usage

    def _rules(self) -> tuple[Rule, ...]:
        return (*self.context.permissions.rules, *self.live_rules())

    async def _ask(self, request: Request) -> Reply:
        self._hooks().requested(request)
        return await self._requests.ask(request, self.turn_id)

    def _is_allowed(self, request: Request) -> bool:
        if request.kind == "question":
            return False
        if request.permission == UNSANDBOXED:
            return all(may_run_outside(command, self._rules()) for command in request.subjects)
        need = Requirement(request.permission, request.subjects)
        if request.permission == COMMAND_PERMISSION:
            # One that seems to read is asked about when it wanted to write: a rule has to say so.
            reads = all(map(seems_to_read, request.subjects))
            most = None if reads else self._enclosing().most_unasked
            need = structs.replace(need, kind="command", most_unasked=most)
        return decide((need,), self._rules(), "ask").action == "allow"
