"""A running turn: its task, its cancel scope, and how it ends.

`ActiveTurn.run` is the turn's task. However `run_turn` ends, the same function closes the turn.
`wiring` makes the turn's ports, and `Owner` connects the turn with its sub-agents.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog
import trio

from tiller_daemon.session.calls.write_limits import WriteLimits
from tiller_daemon.session.context.freeze import FrozenTurn
from tiller_daemon.session.context.project_trust import turn_hooks
from tiller_daemon.session.services import ChosenModel
from tiller_daemon.session.session_parts import SessionParts
from tiller_daemon.session.sub_agents.owner import Owner
from tiller_daemon.session.sub_agents.sub_agent_run import SubAgentRun
from tiller_daemon.session.turns.title import TitleRequest
from tiller_daemon.session.turns.turn_changes import TurnChanges
from tiller_daemon.session.turns.wiring import make_emit, make_ports
from tiller_daemon.store.base import LogError
from tiller_daemon.turn.closing import closing_bodies
from tiller_daemon.turn.context import Ending, TurnContext
from tiller_daemon.turn.history import History
from tiller_daemon.turn.ports import Ports
from tiller_daemon.turn.user_tasks import TaskRejected
from tiller_daemon.workspace.repository import checked_out
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.events import ItemCompleted, ItemStarted, StatusChanged, TurnEnded
from tiller_protocol.items import Usage

log = structlog.get_logger()

Main = Callable[[TurnContext, History, Ports], Awaitable[Ending]]
"""The body of a turn: `run_turn`, or another function with its signature."""


DROPPED = "[worktree: removed, as nothing was changed or left in it]"
"""What a report says of a sub-agent's worktree that has gone."""


class ActiveTurn:
    """One turn of one session, which continues a history.

    The turn `takes_input` until it decides to end. It `is_over` once its end is in the log; its
    task may then still be ending commands and running hooks.

    If a turn is not `steerable`, input waits for its end. `title_request` runs as a task of the
    session once the session's first turn has ended. `sub_agent_run` is set for a sub-agent's turn.
    `owner` connects the turn with its own sub-agents.
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
        self.owner = Owner(self.context, session, sub_agent_run)
        self._frozen = frozen
        self._main = main
        self._session = session
        self._history = history
        self._sub_agent_run = sub_agent_run
        self._scope = trio.CancelScope()
        self._interrupted = Ending("interrupted")
        self._step_usage = Usage()
        self._changes = TurnChanges(
            session.services,
            self.context.workspace,
            self.context.session_id,
            session.outbox.put,
            WriteLimits(
                self.context.permissions.scope,
                self.owner.claims,
                session.services.commands.sandboxes.off_limits(Path(self.context.workspace)),
            ),
            session.told,
        )
        emit = make_emit(frozen, session, self.owner)
        self._hooks = turn_hooks(session.services, frozen.hooks, self.context, emit)
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
    def model(self) -> ChosenModel:
        """The model for the turn's steps."""
        return self._frozen.model

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

    def reconsider(self) -> None:
        """Resolve open requests that the rules now allow, here and in sub-agents."""
        self.owner.reconsider()

    async def run(self) -> None:
        """Run the turn and close it; raises `LogError` if its end can't be logged."""
        ended = None
        try:
            ended = await self._run()
            if self._sub_agent_run:
                # Only the owner's turn could later end commands that a sub-agent left running, but
                # the owner does not know these commands.
                await self._session.background.end_all()
            await self._publish_branch()
            # Hooks run for turns of the model, not for compactions and the user's own commands.
            if ended and self.steerable:
                self._hooks.turn_ended(ended)
            if ended and self._sub_agent_run:
                self._hooks.sub_agent_ended(ended, self._sub_agent_run.owner.session_id)
        finally:
            # These refer to the turn; without this an ended turn would stay in memory.
            self._session.requests.observer = None
            if self._sub_agent_run:
                self._sub_agent_run.turn_ended(ended)
            else:
                # A sub-agent rarely has another turn.
                services = self._session.services
                services.histories.put(self.context.session_id, self._history, services.time())
            self.owner.runs.clear()

    async def _publish_branch(self) -> None:
        """Publish the branch of the session's worktree, if any; a sub-agent's report names it.

        A sub-agent's worktree goes if nothing was done there.
        """
        worktrees, run = self._session.services.files.worktrees, self._sub_agent_run
        if worktrees is None:
            return
        if run and run.inherited.apart:
            is_gone = await worktrees.drop_if_untouched(self.context.workspace)
            run.branch = DROPPED if is_gone else await worktrees.describe(self.context.workspace)
        else:
            worktrees.turn_ended(self.context.workspace)

    async def _run(self) -> TurnEnded | None:
        ending = self._interrupted
        try:
            with self._scope:
                ports = make_ports(
                    self._frozen,
                    self._session,
                    self.owner,
                    self._changes,
                    self._hooks,
                    self._note_step_usage,
                )
                ending = await self._main(self.context, self._history, ports)
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
            self.owner.put(ItemStarted(patch), ItemCompleted(patch))
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
        self.owner.put(*bodies)
        # Without the turn's id: the event concerns the session, which is idle after the turn.
        self._session.outbox.put(StatusChanged("idle"))
        return next((body for body in bodies if isinstance(body, TurnEnded)), None)

    def _note_step_usage(self, usage: Usage) -> None:
        self._step_usage = usage
