"""A turn while it runs: its cancel scope, its ports, and its one way to end.

`ActiveTurn.run` is the only task of a turn at the session's level. Whatever happens in `run_turn` —
an answer, an interrupt, a bug — the same function closes the turn.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog
import trio

from tiller_daemon.policy.rules import decide
from tiller_daemon.session.freeze import FrozenTurn
from tiller_daemon.session.mailbox import InputQueue
from tiller_daemon.session.outbox import Outbox
from tiller_daemon.session.requests import OpenRequests, Reply
from tiller_daemon.session.services import Services
from tiller_daemon.session.title import Titling
from tiller_daemon.session.toolbox import Toolbox
from tiller_daemon.store.base import LogError
from tiller_daemon.tools.base import FileVersions, Need
from tiller_daemon.turn.closing import closing_bodies
from tiller_daemon.turn.context import Ending, TurnContext
from tiller_daemon.turn.history import History
from tiller_daemon.turn.ports import Ports
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.events import AnyBody, QueueChanged, StatusChanged
from tiller_protocol.items import Request
from tiller_protocol.settings import Rule

log = structlog.get_logger()


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


class ActiveTurn:
    """One turn of one session. `takes_input` is false from its last decision on.

    A turn that is not `steerable` takes no input at all: what comes waits for its end. `titling` is
    a task of the session that runs beside its first turn.
    """

    def __init__(
        self,
        frozen: FrozenTurn,
        main: Main,
        hands: Hands,
        *,
        steerable: bool = True,
        titling: Titling | None = None,
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
        self._scope = trio.CancelScope()
        self._grants: tuple[Rule, ...] = ()
        self._interrupted = Ending("interrupted")
        if steerable:
            self._queue.open()

    @property
    def turn_id(self) -> str:
        """The turn's id."""
        return self.context.turn_id

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
        self._requests.reconsider(self._is_allowed)

    async def run(self, history: History) -> None:
        """Run the turn to its end and close it; raises `LogError` if that can't be logged."""
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
        self._close(ending)
        await self._outbox.committed()

    def _close(self, ending: Ending) -> None:
        """Put everything that ends the turn, in one go."""
        self._queue.close()
        if self.titling:
            self.titling.turn_ended(interrupted=ending.outcome == "interrupted")
        if self._queue.hand_back() or (self._queue.queue and ending.outcome == "interrupted"):
            self._outbox.put(QueueChanged(self._queue.queue))
        snapshot = self._outbox.settle()
        bodies = closing_bodies(snapshot, ending, self._services.time(), self._services.new_id)
        self._outbox.put(*bodies, turn_id=self.turn_id)
        self._outbox.put(StatusChanged("idle"))

    def _ports(self) -> Ports:
        async def emit(*bodies: AnyBody) -> None:
            await self._outbox.emit(*bodies, turn_id=self.turn_id)

        offered = {tool.name for tool in self.context.tools}
        services = self._services
        toolbox = Toolbox(
            context=self.context,
            tools={name: tool for name, tool in services.tools.items() if name in offered},
            rules=self._rules,
            ask=self._ask,
            emit=emit,
            new_id=services.new_id,
            files=self._files,
            spill_directory=services.spill_directory(self.context.session_id),
            variables=services.variables,
            secrets=services.secrets,
        )
        return Ports(
            model=self._frozen.model.client,
            compaction_model=self._frozen.compaction and self._frozen.compaction.client,
            tools=toolbox,
            emit=emit,
            committed=self._outbox.committed,
            mailbox=self._queue,
            new_id=services.new_id,
            time=services.time,
            random=services.random,
        )

    def _rules(self) -> tuple[Rule, ...]:
        return (*self.context.rules, *self._grants)

    async def _ask(self, request: Request) -> Reply:
        return await self._requests.ask(request, self.turn_id)

    def _is_allowed(self, request: Request) -> bool:
        if request.kind == "question":
            return False
        kind = "command" if request.permission == "bash" else "plain"
        need = Need(request.permission, request.subjects, kind=kind)
        return decide((need,), self._rules(), "ask").action == "allow"
