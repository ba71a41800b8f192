"""The session: an actor. One `submission_loop` takes ops one at a time and never awaits a turn.

A turn runs as a child task under its own cancel scope, so that answers, steering and interrupts are
handled while it runs. Handlers are plain functions: what they put and the answer to the submission
are committed together, then the frontend gets its answer (G3).
"""

from dataclasses import dataclass, field

import structlog
import trio
from msgspec import structs

from tiller_daemon.errors import RejectionError
from tiller_daemon.session.active_turn import ActiveTurn
from tiller_daemon.session.checks import check_input, check_settings, check_workspace, handed_back
from tiller_daemon.session.freeze import freeze_context, merge_settings, with_grants
from tiller_daemon.session.mailbox import InputQueue
from tiller_daemon.session.outbox import Outbox
from tiller_daemon.session.requests import OpenRequests, Reply
from tiller_daemon.session.services import Services
from tiller_daemon.store.base import LogError, SubmissionRow
from tiller_daemon.tools.base import FileVersions
from tiller_daemon.turn.history import History
from tiller_protocol.answers import Accepted, AnyAnswer, AnyResult, Queued, Started, Steered
from tiller_protocol.codec import encode_answer
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.events import (
    AnyBody,
    ItemCompleted,
    ItemStarted,
    QueueChanged,
    SessionArchived,
    SessionConfigured,
    SessionTitled,
    StatusChanged,
    TurnStarted,
)
from tiller_protocol.ids import ItemId
from tiller_protocol.items import Delivery, QueuedInput, UserMessage
from tiller_protocol.ops import (
    Answer,
    AnyOp,
    Interrupt,
    QueueEdit,
    SessionArchive,
    SessionConfigure,
    UserInput,
)
from tiller_protocol.settings import TurnOverrides
from tiller_protocol.snapshot import Snapshot

log = structlog.get_logger()

TITLE_CHARS_MAX = 72
"""Longest title taken from a user's words; a line of a list."""

SUBMISSIONS_WAITING_MAX = 64
"""Most submissions that wait for one session's loop; one more is rejected as `overloaded`."""

PASSING = frozenset({"overloaded", "shutting_down", "unavailable", "internal"})
"""Rejections that say nothing about the op itself: the same submission may succeed later."""

SHUTTING_DOWN = ErrorInfo(
    "shutting_down", "The daemon was stopped while this turn ran. Send a message to go on."
)


@dataclass(eq=False)
class Pending:
    """A submission on its way through the loop. `answer` is there once `answered` is set."""

    submission_id: str
    op: AnyOp
    client: str
    digest: bytes
    answered: trio.Event = field(default_factory=trio.Event)
    answer: AnyAnswer | None = None


class Session:
    """One loaded session. `run` is its task; it ends when cancelled, or raises `LogError`."""

    def __init__(self, services: Services, snapshot: Snapshot) -> None:
        self.outbox = Outbox(snapshot, services.log, services.publish, services.time)
        self.active_at = services.time()
        self._services = services
        self._queue = InputQueue(snapshot.queue)
        self._requests = OpenRequests(self.outbox)
        self._files = FileVersions()
        self._turn: ActiveTurn | None = None
        self._resting = trio.Event()
        self._resting.set()
        self._deferred: list[Pending] = []
        self._pending: dict[str, Pending] = {}
        self._send, self._receive = trio.open_memory_channel[Pending](SUBMISSIONS_WAITING_MAX)
        self._nursery: trio.Nursery | None = None
        self._scope = trio.CancelScope()
        self._over = False

    @property
    def snapshot(self) -> Snapshot:
        """The session as it is, with events that are still on their way to the log."""
        return self.outbox.snapshot

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost by unloading the session now."""
        return self._turn is None and not self._pending and self.outbox.is_committed

    @property
    def turn_runs(self) -> bool:
        """Whether a turn is active."""
        return self._turn is not None

    def has_request(self, request_id: str) -> bool:
        """Whether this request is or was open here since the session was loaded."""
        return request_id in self._requests

    async def run(self) -> None:
        """Serve until cancelled; whoever still waits for an answer then gets a rejection."""
        try:
            with self._scope:
                await self._serve()
        finally:
            self._over = True
            for pending in list(self._pending.values()):
                self._answer(pending, self._ended(pending))

    async def _serve(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self.outbox.run)
            nursery.start_soon(self.submission_loop)

    def stop(self) -> None:
        """End the session's task. Only for a session that is idle: nothing is then lost."""
        self._over = True
        self._scope.cancel()

    def reload_queue(self) -> None:
        """Take the queue from the snapshot, after recovery has put steering back into it."""
        self._queue.restore(self.outbox.settle().queue)

    async def submit(self, pending: Pending) -> AnyAnswer:
        """Queue a submission and wait for its answer.

        A full queue is a rejection. Cancelling the wait does not withdraw the submission.
        """
        self.active_at = self._services.time()
        if self._over:
            return self._ended(pending)
        try:
            self._send.send_nowait(pending)
        except trio.WouldBlock:
            return _overloaded(pending).answer(pending.submission_id)
        self._pending[pending.submission_id] = pending
        await pending.answered.wait()
        assert pending.answer is not None
        return pending.answer

    async def shut_down(self) -> None:
        """Interrupt the active turn, and return when all is in the log; raises `LogError`."""
        if self._turn:
            self._turn.interrupt(SHUTTING_DOWN)
        await self._resting.wait()
        await self.outbox.committed()

    async def rest(self) -> None:
        """Wait until no turn is active."""
        await self._resting.wait()

    async def submission_loop(self) -> None:
        """Take submissions one at a time: handle, commit, answer."""
        async for pending in self._receive:
            if self._must_wait(pending):
                self._deferred.append(pending)
                continue
            try:
                result = self._handle(pending)
            except RejectionError as rejection:
                await self._reject(pending, rejection)
            else:
                await self._accept(pending, result)

    def _must_wait(self, pending: Pending) -> bool:
        """Whether this is input for after a turn that has begun to end."""
        ending = self._turn is not None and not self._turn.takes_input
        return ending and isinstance(pending.op, UserInput)

    async def _accept(self, pending: Pending, result: AnyResult | None) -> None:
        answer = Accepted(pending.submission_id, result)
        row = SubmissionRow(pending.submission_id, pending.digest, encode_answer(answer))
        self.outbox.put(submission=row)
        await self.outbox.committed()
        self._answer(pending, answer)

    async def _reject(self, pending: Pending, rejection: RejectionError) -> None:
        answer = rejection.answer(pending.submission_id)
        if rejection.code not in PASSING:
            row = SubmissionRow(pending.submission_id, pending.digest, encode_answer(answer))
            try:
                await self._services.log.record(row)
            except LogError as error:
                log.warning("rejection_not_recorded", reason=error.message)
        self._answer(pending, answer)

    def _answer(self, pending: Pending, answer: AnyAnswer) -> None:
        pending.answer = answer
        pending.answered.set()
        self._pending.pop(pending.submission_id, None)

    def _ended(self, pending: Pending) -> AnyAnswer:
        broken = self.outbox.broken
        message = broken.message if broken else "The session was closed by a defect of the daemon."
        return RejectionError("unavailable", message).answer(pending.submission_id)

    def _handle(self, pending: Pending) -> AnyResult | None:
        match pending.op:
            case UserInput() as op:
                return self._take_input(op, pending)
            case Interrupt() as op:
                return self._interrupt(op)
            case Answer() as op:
                return self._answer_request(op, pending)
            case QueueEdit() as op:
                self._edit_queue(op, pending)
            case SessionConfigure() as op:
                check_settings(self._services, op.settings)
                settings = merge_settings(self.snapshot.settings, op.settings)
                self._put(pending, SessionConfigured(settings))
            case SessionArchive() as op:
                self._put(pending, SessionArchived(op.archived))
            case _ as op:
                name = op.__struct_config__.tag
                raise RejectionError("unavailable", f"This daemon can't do {name} yet.")
        return None

    def _put(self, pending: Pending, *bodies: AnyBody, turn_id: str | None = None) -> None:
        self.outbox.put(*bodies, turn_id=turn_id, submission_id=pending.submission_id)

    def _take_input(self, op: UserInput, pending: Pending) -> AnyResult:
        check_input(op)
        turn = self._turn
        given = QueuedInput(
            self._services.new_id(), op.text, "queue", op.images, op.files, pending.client
        )
        if turn is None:
            return self._input_at_rest(op, given, pending)
        if op.expected_turn_id not in (None, turn.turn_id):
            raise _mismatch(turn, op.expected_turn_id)
        match op.delivery:
            case "start":
                raise _busy(turn)
            case "queue":
                self._enqueue(given, pending)
                return Queued(given.id, len(self._queue.queue) - 1)
            case "steer" | "auto":
                self._enqueue(_as(given, "steer"), pending)
                return Steered(turn.turn_id, given.id)

    def _input_at_rest(self, op: UserInput, given: QueuedInput, pending: Pending) -> AnyResult:
        if op.delivery == "steer" or op.expected_turn_id is not None:
            message = "No turn is running, so there is nothing to steer. Your input is in `data`."
            raise RejectionError("no_active_turn", message, handed_back(op))
        first = given
        if op.delivery == "queue" and self._queue.queue:
            self._queue.put(given)
            first = self._queue.take_follow_ups("one_at_a_time")[0]
        try:
            turn_id = self._start_turn(first, op.overrides, pending)
        except RejectionError:
            self._queue.restore(self.snapshot.queue)
            raise
        return Started(turn_id) if first is given else Queued(given.id, len(self._queue.queue) - 1)

    def _enqueue(self, given: QueuedInput, pending: Pending) -> None:
        if self._queue.is_full:
            raise _overloaded(pending)
        self._queue.put(given)
        self._put(pending, QueueChanged(self._queue.queue))

    def _edit_queue(self, op: QueueEdit, pending: Pending) -> None:
        position = self._queue.position(op.input_id)
        if position is None:
            message = f"Input {op.input_id} is not queued: it was taken, removed, or never there."
            raise RejectionError("not_found", message)
        match op.action:
            case "edit":
                check_input(UserInput(op.session_id, op.text))
                self._queue.edit(position, op.text)
            case "remove":
                self._queue.remove(position)
            case "move":
                self._queue.move(position, op.position)
            case "promote":
                self._queue.promote(position)
        self._put(pending, QueueChanged(self._queue.queue))

    def _start_turn(self, first: QueuedInput, overrides: TurnOverrides, pending: Pending) -> str:
        snapshot = self.outbox.settle()
        check_workspace(snapshot.workspace)
        context, model = freeze_context(
            self._services,
            snapshot.session_id,
            snapshot.workspace,
            snapshot.settings,
            overrides,
            first_ordinal=snapshot.steps,
        )
        message = UserMessage(
            ItemId(first.id), first.text, "start", first.images, first.files, first.client
        )
        history = History([*snapshot.items, message])
        bodies: list[AnyBody] = [TurnStarted(context.shown()), StatusChanged("busy")]
        if self._queue.queue != snapshot.queue:
            bodies.append(QueueChanged(self._queue.queue))
        bodies += [ItemStarted(message), ItemCompleted(message)]
        if not snapshot.title:
            self._put(pending, SessionTitled(first_title(first.text)))
        self._put(pending, *bodies, turn_id=context.turn_id)
        self._turn = ActiveTurn(
            context, model, self._services, self.outbox, self._queue, self._requests, self._files
        )
        self._resting = trio.Event()
        assert self._nursery is not None
        self._nursery.start_soon(self._run_turn, self._turn, history)
        return context.turn_id

    async def _run_turn(self, turn: ActiveTurn, history: History) -> None:
        await turn.run(history)
        self._turn = None
        self._resting.set()
        self.active_at = self._services.time()
        deferred, self._deferred = self._deferred, []
        for pending in deferred:
            try:
                self._send.send_nowait(pending)
            except trio.WouldBlock:
                answer = _overloaded(pending).answer(pending.submission_id)
                self._answer(pending, answer)

    def _interrupt(self, op: Interrupt) -> None:
        if self._turn is None:
            raise RejectionError("no_active_turn", "No turn is running, so none was interrupted.")
        if op.turn_id not in (None, self._turn.turn_id):
            raise _mismatch(self._turn, op.turn_id)
        self._turn.interrupt()

    def _answer_request(self, op: Answer, pending: Pending) -> None:
        grants = self._requests.answer(op.request_id, Reply(op.decision, op.text, pending.client))
        if grants:
            self._put(pending, SessionConfigured(with_grants(self.snapshot.settings, grants)))
            if self._turn:
                self._turn.grant(grants)


def first_title(text: str) -> str:
    """The title of a session until it gets a better one: the beginning of what was asked first."""
    line = " ".join(text.split()) or "(no text)"
    return line if len(line) <= TITLE_CHARS_MAX else f"{line[: TITLE_CHARS_MAX - 1]}…"


def _as(given: QueuedInput, delivery: Delivery) -> QueuedInput:
    return structs.replace(given, delivery=delivery)


def _busy(turn: ActiveTurn) -> RejectionError:
    return RejectionError(
        "busy",
        "A turn is running. Steer it, queue your input, or wait until it ends.",
        {"turn_id": turn.turn_id},
    )


def _mismatch(turn: ActiveTurn, expected: str | None) -> RejectionError:
    return RejectionError(
        "expected_turn_mismatch",
        f"The running turn is {turn.turn_id}, not {expected}.",
        {"turn_id": turn.turn_id},
    )


def _overloaded(pending: Pending) -> RejectionError:
    data = handed_back(pending.op) if isinstance(pending.op, UserInput) else {}
    return RejectionError("overloaded", "Too much waits in this session. Try again later.", data)
