"""The outbox: the only way out of a session. Number, fold, commit, publish — in that order.

Pieces of a stream that arrive while a commit is under way are joined into one event. Nothing is
published before it is in the log (G1).
"""

from collections.abc import Callable
from dataclasses import dataclass

import trio

from tiller_daemon.store.base import Batch, EventRow, Log, LogError, SessionRow, SubmissionRow
from tiller_daemon.store.projection import request_rows
from tiller_protocol.codec import encode_event
from tiller_protocol.events import (
    LIFECYCLE_BODIES,
    LIFECYCLE_TOPIC,
    AnyBody,
    Event,
    ItemCompleted,
    ItemDelta,
    ItemStarted,
    StepEnded,
    StepStarted,
    ToolCallUpdated,
)
from tiller_protocol.items import ToolCall
from tiller_protocol.snapshot import Snapshot, fold

DELTA_WINDOW_S = 0.02
"""A piece of a stream, or of a step, waits at most this long after a commit for the next ones; the
first one never. 50 frames a second look continuous."""

PENDING_BODIES_MAX = 2_000
"""How many bodies may wait for the log before `emit` makes the turn wait."""

Publish = Callable[[str, bytes], None]


@dataclass
class _PendingBody:
    """A body that has no number yet; `pieces` are those of a delta, joined when it gets one."""

    body: AnyBody
    turn_id: str | None
    submission_id: str | None
    pieces: list[str]


class Outbox:
    """Takes bodies, keeps `snapshot` true, and is written out by `run` in the session's nursery.

    `broken` holds the error that ended the writer: the session then ends and is loaded anew.
    """

    def __init__(
        self, snapshot: Snapshot, log: Log, publish: Publish, time: Callable[[], float]
    ) -> None:
        self.snapshot = snapshot
        self.broken: LogError | None = None
        self._log = log
        self._publish = publish
        self._time = time
        self._pending: list[_PendingBody] = []
        self._joinable: dict[tuple[str, str], _PendingBody] = {}
        self._numbered: list[Event] = []
        self._submission: SubmissionRow | None = None
        self._puts = 0
        self._puts_committed = 0
        self._written_at = float("-inf")
        self._wake = trio.Event()
        self._urgent = trio.Event()
        self._progress = trio.Event()

    def put(
        self,
        *bodies: AnyBody,
        turn_id: str | None = None,
        submission_id: str | None = None,
        submission: SubmissionRow | None = None,
    ) -> None:
        """Take bodies to be committed together, with the answer to the submission behind them."""
        for body in bodies:
            if isinstance(body, ItemDelta):
                self._put_delta(body, turn_id)
            else:
                self._joinable.clear()
                self._pending.append(_PendingBody(body, turn_id, submission_id, []))
                if not _can_wait(body):
                    self._urgent.set()
        if submission:
            self._submission = submission
            self._urgent.set()
        self._puts += 1
        self._wake.set()

    async def emit(self, *bodies: AnyBody, turn_id: str) -> None:
        """Put bodies of a turn; waits while too much is waiting for the log."""
        self.put(*bodies, turn_id=turn_id)
        if len(self._pending) >= PENDING_BODIES_MAX:
            await self.committed()

    async def committed(self) -> None:
        """Wait until all that was put is in the log and published; raises `LogError`."""
        target = self._puts
        self._urgent.set()
        while self._puts_committed < target:
            if self.broken:
                raise self.broken
            await self._progress.wait()

    @property
    def is_committed(self) -> bool:
        """Whether all that was put is in the log."""
        return self._puts_committed == self._puts

    def fold_pending(self) -> Snapshot:
        """Number what waits, so that `snapshot` has it, and return the snapshot."""
        for pending in self._pending:
            body = pending.body
            if isinstance(body, ItemDelta):
                body = ItemDelta(body.item_id, body.channel, "".join(pending.pieces))
            event = Event(
                self.snapshot.seq + 1,
                self.snapshot.session_id,
                self._time(),
                body,
                pending.turn_id,
                pending.submission_id,
            )
            fold(self.snapshot, event)
            self._numbered.append(event)
        self._pending.clear()
        self._joinable.clear()
        return self.snapshot

    def close(self) -> None:
        """Say that nothing is written any more: whoever waits in `committed` gets an error."""
        if self.broken is None:
            message = "The session was closed by a defect of the daemon; its log has more."
            self.broken = LogError("closed", message)
        self._wake_waiters()

    async def run(self) -> None:
        """Write batches until cancelled; raises `LogError` when the log can't be written."""
        while True:
            await self._wake.wait()
            is_recent = trio.current_time() - self._written_at < DELTA_WINDOW_S
            if is_recent and not self._urgent.is_set():
                with trio.move_on_after(DELTA_WINDOW_S):
                    await self._urgent.wait()
            self._wake, self._urgent = trio.Event(), trio.Event()
            await self._write()

    def _put_delta(self, body: ItemDelta, turn_id: str | None) -> None:
        key = (body.item_id, body.channel)
        pending = self._joinable.get(key)
        if pending is None:
            pending = self._joinable[key] = _PendingBody(body, turn_id, None, [])
            self._pending.append(pending)
        pending.pieces.append(body.delta)

    async def _write(self) -> None:
        self.fold_pending()
        puts = self._puts
        events, self._numbered = self._numbered, []
        submission, self._submission = self._submission, None
        bodies = [encode_event(event) for event in events]
        rows = tuple(EventRow(e.seq, e.time, b) for e, b in zip(events, bodies, strict=True))
        requests = tuple(request_rows(events))
        try:
            await self._log.append(Batch(session_row(self.snapshot), rows, submission, requests))
        except LogError as error:
            self.broken = error
            self._wake_waiters()
            raise
        self._written_at = trio.current_time()
        self._puts_committed = puts
        for event, body in zip(events, bodies, strict=True):
            self._publish(event.session_id, body)
            if isinstance(event.body, LIFECYCLE_BODIES):
                self._publish(LIFECYCLE_TOPIC, body)
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        """Wake whoever waits in `committed`."""
        progress, self._progress = self._progress, trio.Event()
        progress.set()


def _can_wait(body: AnyBody) -> bool:
    """Whether it waits like a delta for what comes next: a commit of its own would delay that."""
    match body:
        case StepStarted() | StepEnded() | ToolCallUpdated() | ItemCompleted():
            return True
        case ItemStarted():
            return isinstance(body.item, ToolCall)
        case _:
            return False


def session_row(snapshot: Snapshot) -> SessionRow:
    """What the log's table of sessions keeps of a snapshot."""
    return SessionRow(
        session_id=snapshot.session_id,
        workspace=snapshot.workspace,
        created_at=snapshot.created_at,
        updated_at=snapshot.updated_at,
        head=snapshot.seq,
        title=snapshot.title,
        archived=snapshot.archived,
        turns=snapshot.turns,
        cost=snapshot.cost,
        unfinished=snapshot.turn is not None,
        parent_id=snapshot.parent_id or "",
        owner_id=snapshot.owner_id or "",
    )
