"""The session, an actor: its `submission_loop` handles one op at a time and never awaits a turn.

A turn runs as a child task in its own cancel scope, so answers, steering and interrupts are handled
while it runs. The events of a handler and the answer to its submission are one commit; only then
does the frontend get the answer, so a retried submission takes effect once.
"""

from functools import partial

import trio
from msgspec import structs

from tiller_daemon.errors import RejectionError
from tiller_daemon.session.handlers import handle, overloaded
from tiller_daemon.session.inputs.input_queue import CLIENT
from tiller_daemon.session.recovery import recovery_of
from tiller_daemon.session.rejections import record_rejection
from tiller_daemon.session.requests import (
    CANCELLED,
    NoWaitingTask,
    already_resolved,
    unknown_request,
)
from tiller_daemon.session.reverting import background_sub_agents, put_back
from tiller_daemon.session.services import Services
from tiller_daemon.session.state import (
    PendingSubmission,
    SessionState,
    SetUp,
    SubAgentEnded,
    SubAgentPrompt,
)
from tiller_daemon.session.sub_agents.background_tasks import BackgroundTask
from tiller_daemon.session.sub_agents.sub_agent_run import Sessions, SubAgentRun
from tiller_daemon.session.turns.active_turn import ActiveTurn
from tiller_daemon.session.turns.resuming import resume
from tiller_daemon.store.base import LogError
from tiller_daemon.turn.closing import DAEMON_STOPPED
from tiller_protocol.answers import Accepted, AnyAnswer, AnyResult, Rejected
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.op_traits import OPS, traits_of
from tiller_protocol.ops import Revert, Unrevert, UserInput
from tiller_protocol.settings import Rule, TurnOverrides
from tiller_protocol.snapshot import Snapshot

SUBMISSIONS_WAITING_MAX = 64
"""How many submissions may wait for one session's loop; any more are rejected as `overloaded`."""

DELIVER_AGAIN_S = 1.0
"""The delay before a sub-agent's end is reported again to a loop that was overloaded."""

SHUTTING_DOWN = ErrorInfo(
    "shutting_down",
    "The daemon was stopped while this turn ran. Continue the turn, or send a message.",
)


class Session:
    """One loaded session. `run` is its task; it ends when cancelled, or raises `LogError`.

    `snapshot` is the session's state, including numbered events that are not in the log yet.
    `active_at` is the Unix time of the last activity. `stopped_by` says why there may be an
    unfinished turn. `recovered` is set once the events that close or resume that turn are in the
    outbox, or the session has ended.
    """

    def __init__(
        self,
        services: Services,
        snapshot: Snapshot,
        sessions: Sessions,
        stopped_by: ErrorInfo = DAEMON_STOPPED,
    ) -> None:
        self._state = SessionState(services, snapshot, sessions)
        self.outbox = self._state.outbox
        self.snapshot = snapshot
        self.active_at = services.time()
        self._stopped_by = stopped_by
        self._services = services
        self._turn_over = trio.Event()
        # A session without a turn counts as a session whose turn is over.
        self._turn_over.set()
        self._deferred: list[PendingSubmission] = []
        self._pending: dict[str, PendingSubmission] = {}
        self._send, self._receive = trio.open_memory_channel[PendingSubmission](
            SUBMISSIONS_WAITING_MAX
        )
        self._nursery: trio.Nursery | None = None
        self._scope = trio.CancelScope()
        self.recovered = trio.Event()
        self._ended = trio.Event()
        self._closed = False

    @property
    def is_idle(self) -> bool:
        """Whether the session can be unloaded without losing anything."""
        return (
            self._turn_over.is_set()
            and not self.is_busy
            and not self._state.background.is_running
            and not self._state.tasks.is_running
            and self.outbox.is_committed
        )

    @property
    def is_busy(self) -> bool:
        """Whether a turn is running or a submission is waiting."""
        turn = self._state.turn
        return (turn is not None and not turn.is_over) or bool(self._pending)

    @property
    def turn_is_running(self) -> bool:
        """Whether a turn is active, even if only the commands that it started are still ending."""
        return self._state.turn is not None

    @property
    def is_working(self) -> bool:
        """Whether the session has a turn or background work, even if its tasks were cancelled.

        The snapshot may already have the end of a turn that could not be stored.
        """
        return self.turn_is_running or any(
            entry.state == "running" for entry in self.snapshot.background
        )

    def awaits(self, request_id: str) -> bool:
        """Whether a task of this session waits for an answer to this request."""
        return request_id in self._state.requests

    def reconsider(self) -> None:
        """Resolve open requests that the rules now allow."""
        self._state.reconsider()

    async def run(self, *, resumes: bool = False) -> None:
        """Handle submissions until cancelled, and then reject all unanswered submissions.

        First, an unfinished turn in the log is closed, or continued if `resumes` is set and this is
        possible.
        """
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    # Recover before the loop runs, so that no op sees the session half recovered.
                    self._recover(resumes=resumes)
                    self.recovered.set()
                    nursery.start_soon(self.outbox.run)
                    nursery.start_soon(self._state.background.run)
                    nursery.start_soon(self._state.tasks.run, self)
                    nursery.start_soon(self.submission_loop)
        finally:
            self._closed = True
            self.recovered.set()
            self.outbox.close()
            # The submitting tasks wait outside this session's nursery and would wait for ever.
            for pending in list(self._pending.values()):
                self._answer(pending, self._unavailable(pending))
            self._ended.set()

    def stop(self) -> None:
        """End the session's task. Only call this for an idle session, which loses nothing."""
        self._closed = True
        self._scope.cancel()

    async def submit(self, pending: PendingSubmission) -> AnyAnswer:
        """Queue a submission and return its answer: a rejection if the queue is full.

        Cancelling the wait does not withdraw the submission.
        """
        self.active_at = self._services.time()
        if self._closed:
            return self._unavailable(pending)
        try:
            self._send.send_nowait(pending)
        except trio.WouldBlock:
            # A rejection tells the frontend at once, while blocking would not.
            return overloaded(pending).answer(pending.submission_id)
        self._pending[pending.submission_id] = pending
        await pending.answered.wait()
        assert pending.answer is not None
        return pending.answer

    async def run_sub_agent(
        self, sub_agent_run: SubAgentRun, prompt: str, overrides: TurnOverrides
    ) -> None:
        """Start a sub-agent's turn in this session; raises `RejectionError`."""
        op = UserInput(self.snapshot.session_id, prompt, delivery="start", overrides=overrides)
        # The id is new and stays inside the daemon, so no retry will be compared by digest.
        prompted = SubAgentPrompt(sub_agent_run, op)
        new_id = self._services.new_id()
        answer = await self.submit(PendingSubmission(new_id, prompted, CLIENT, b""))
        if isinstance(answer, Rejected):
            raise RejectionError(answer.code, answer.message)

    def grant(self, rules: tuple[Rule, ...]) -> None:
        """Apply rules that the user granted to a background sub-agent to the whole session."""
        self._state.grant(rules)

    async def deliver(self, task: BackgroundTask) -> None:
        """Pass the end of a background sub-agent to the loop."""
        while True:
            new_id = self._services.new_id()
            answer = await self.submit(PendingSubmission(new_id, SubAgentEnded(task), CLIENT, b""))
            if not isinstance(answer, Rejected) or answer.code != "overloaded":
                return
            await trio.sleep(DELIVER_AGAIN_S)

    async def shut_down(self) -> None:
        """Interrupt the active turn and end background work; raises `LogError`.

        When this returns, everything is in the log.
        """
        self._state.tasks.starts_turns = False
        if self._state.turn:
            self._state.turn.interrupt(SHUTTING_DOWN)
        await self._turn_over.wait()
        await self._state.background.end_all()
        await self._state.tasks.end_all()
        await self.outbox.committed()

    async def suspend(self) -> None:
        """End the session and its processes; its turn stays unfinished in the log, to resume it."""
        await self.outbox.committed()
        self._scope.cancel()
        await self._ended.wait()

    async def wait_for_turn(self) -> None:
        """Wait until no turn is active."""
        await self._turn_over.wait()

    async def submission_loop(self) -> None:
        """Take submissions one at a time; handle each, commit its events, and answer it."""
        async for pending in self._receive:
            await self._process(pending)
            # While the loop waits, this name would keep the last submission and its images alive.
            del pending

    async def _process(self, pending: PendingSubmission) -> None:
        if self._must_defer(pending):
            self._deferred.append(pending)
            return
        try:
            await self._revert_files(pending)
            # No checkpoint until the answer is in the outbox: events and answer are one commit.
            result = handle(self._state, pending)
            self._run_begun_turn()
        except RejectionError as rejection:
            await self._reject(pending, rejection)
        except NoWaitingTask as answer:
            await self._reject(pending, await self._unanswerable(answer.request_id))
        else:
            await self._accept(pending, result)
            # The event is in the log, so the journal that could undo the revert is not needed now.
            if pending.files and self._services.files.snapshots:
                self._services.files.snapshots.confirm_restore(self.snapshot.workspace)

    async def _revert_files(self, pending: PendingSubmission) -> None:
        """Put files back for a revert. No turn can begin meanwhile, since the loop waits here."""
        if self._state.turn is None and isinstance(pending.op, (Revert, Unrevert)):
            services, snapshot, op = self._services, self.outbox.fold_pending(), pending.op
            kept = ()
            if isinstance(op, Revert):
                kept = await background_sub_agents(services.log, snapshot, op)
            files = await put_back(services.files.snapshots, snapshot, op, pending.submission_id)
            pending.files = structs.replace(files, sub_agents=kept)

    async def _unanswerable(self, request_id: str) -> RejectionError:
        """Return the rejection of an answer that no task waits for.

        Earlier submissions have been committed, so the log shows which requests they resolved. A
        request that is open in the log belongs to a turn that is ending and will cancel it.
        """
        try:
            rows = await self._services.log.requests(request_id)
        except LogError as error:
            return RejectionError("unavailable", error.message)
        if not rows:
            return unknown_request(request_id)
        return already_resolved(request_id, rows[0].resolution or CANCELLED.resolution, rows[0].by)

    def _must_defer(self, pending: PendingSubmission) -> bool:
        """Whether to keep the submission until a turn that ends or takes no input is over."""
        turn, op = self._state.turn, pending.op
        of_daemon = isinstance(op, (SubAgentPrompt, SubAgentEnded, SetUp))
        traits = OPS[UserInput] if of_daemon else traits_of(op)
        if turn and turn.is_over:
            # Other ops neither touch files nor start a turn.
            return traits.needs_rest
        if turn is None or turn.takes_input or traits.starts != "turn":
            return False
        return turn.steerable or not isinstance(op, UserInput) or op.delivery != "steer"

    async def _accept(self, pending: PendingSubmission, result: AnyResult | None) -> None:
        answer = Accepted(pending.submission_id, result)
        self.outbox.put(submission=pending.row(answer))
        await self.outbox.commit(partial(self._answer, pending, answer))

    async def _reject(self, pending: PendingSubmission, rejection: RejectionError) -> None:
        self._answer(pending, await record_rejection(self._services, pending, rejection))

    def _answer(self, pending: PendingSubmission, answer: AnyAnswer) -> None:
        pending.answer = answer
        pending.answered.set()
        self._pending.pop(pending.submission_id, None)

    def _unavailable(self, pending: PendingSubmission) -> AnyAnswer:
        message = self.outbox.broken.message if self.outbox.broken else "The session is closing."
        return RejectionError("unavailable", message).answer(pending.submission_id)

    def _recover(self, *, resumes: bool) -> None:
        why = resume(self._state) if resumes else self._stopped_by
        if why is None:
            self._run_begun_turn()
            return
        state, snapshot = self._state, self.outbox.fold_pending()
        of_turn, of_session = recovery_of(snapshot, state.queue, self._services.new_id, why)
        if snapshot.turn:
            self.outbox.put(*of_turn, turn_id=snapshot.turn.turn_id)
        if of_session:
            self.outbox.put(*of_session)

    def _run_begun_turn(self) -> None:
        """Start the task of the turn that a handler has begun, if any."""
        turn = self._state.take_begun()
        if turn is None:
            return
        # A new event, since a trio event can't be cleared.
        self._turn_over = trio.Event()
        assert self._nursery is not None
        self._nursery.start_soon(self._run_turn, turn)
        if turn.title_request:
            self._nursery.start_soon(turn.title_request.run)

    async def _run_turn(self, turn: ActiveTurn) -> None:
        # The frontend gets its answer before the turn uses the processor.
        await trio.lowlevel.checkpoint()
        await turn.run()
        self._state.end_turn()
        self._turn_over.set()
        self.active_at = self._services.time()
        # Deferred submissions go through the channel again, as only the loop may handle them.
        deferred, self._deferred = self._deferred, []
        for pending in deferred:
            try:
                self._send.send_nowait(pending)
            except trio.WouldBlock:
                answer = overloaded(pending).answer(pending.submission_id)
                self._answer(pending, answer)
