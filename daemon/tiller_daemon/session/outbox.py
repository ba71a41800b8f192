"""The outbox: every event leaves a session through it.

Events are numbered, folded into the snapshot, committed to the log and published, in that order.
Nothing is published before it is in the log. Deltas of one stream that arrive while a commit is
under way are joined into one event.
"""

from collections.abc import Callable
from dataclasses import dataclass

import trio
from msgspec import msgpack, structs

from tiller_daemon.store.base import (
    Batch,
    EventRow,
    Log,
    LogError,
    SessionRow,
    SubmissionRow,
)
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
from tiller_protocol.fold import fold
from tiller_protocol.items import AssistantMessage, Reasoning, ToolCall
from tiller_protocol.snapshot import Snapshot, summary_of

DELTA_WINDOW_S = 0.02
"""How long after a commit deltas and events of steps wait, so that they share the next commit. The
first event after a pause never waits. 50 updates a second look continuous."""

PENDING_BODIES_MAX = 2_000
"""How many bodies may wait for the log before `emit` blocks the turn."""

Publish = Callable[[str, bytes], None]
"""Publishes an encoded event under a topic."""


def publish_to(*receivers: Publish) -> Publish:
    """Return a function that passes each event to all receivers, in this order.

    The first is the transport. Whatever else needs all events, such as an exporter, is another.
    """

    def publish(topic: str, event: bytes) -> None:
        for receive in receivers:
            receive(topic, event)

    return publish


@dataclass
class _PendingBody:
    """A body without a number. A delta's `pieces` are joined when the body gets its number."""

    body: AnyBody
    turn_id: str | None
    submission_id: str | None
    pieces: list[str]


class Outbox:
    """The events of one session on their way to the log; `run` writes them.

    `time` returns the time of the next event. `snapshot` holds all numbered events; `fold_pending`
    brings it up to date. `broken` is the error that stopped the writer. The session then ends and
    is loaded again from the log.
    """

    def __init__(
        self, snapshot: Snapshot, log: Log, publish: Publish, time: Callable[[], float]
    ) -> None:
        self.snapshot = snapshot
        self.broken: LogError | None = None
        self._log = log
        self._publish = publish
        self.time = time
        self._pending: list[_PendingBody] = []
        self._joinable: dict[tuple[str, str], _PendingBody] = {}
        self._numbered: list[Event] = []
        self._submission: SubmissionRow | None = None
        self._puts = 0
        self._puts_committed = 0
        self._writing = False
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
        """Queue bodies for one commit, together with the answer to the submission if given."""
        for body in bodies:
            if isinstance(body, ItemDelta):
                self._put_delta(body, turn_id)
            else:
                # To join a delta from before this body with a later delta would reorder events.
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
        """Put bodies of a turn. If too many are pending, block until all are in the log."""
        self.put(*bodies, turn_id=turn_id)
        # This is a turn's only backpressure: a slow disk slows down the model's stream.
        if len(self._pending) >= PENDING_BODIES_MAX:
            await self.committed()

    async def committed(self) -> None:
        """Wait until everything put so far is in the log and published; raises `LogError`."""
        # Count calls of `put`, not bodies, because joined deltas share a number.
        target = self._puts
        self._urgent.set()
        while self._puts_committed < target:
            if self.broken:
                raise self.broken
            await self._progress.wait()

    async def commit(self, stored: Callable[[], None]) -> None:
        """Like `committed`, but this task writes, which saves waking the writer and waiting for it.

        `stored` is called when everything is in the log. Tasks that it wakes run before the events
        are published. Only for tasks that are cancelled together with `run`, because nobody would
        publish the events that a cancelled task has written.
        """
        if self._writing:
            await self.committed()
            stored()
        else:
            await self._write(stored)

    @property
    def is_committed(self) -> bool:
        """Whether everything put so far is in the log."""
        return self._puts_committed == self._puts

    def fold_pending(self) -> Snapshot:
        """Number and fold the pending bodies, and return the snapshot, now up to date."""
        for pending in self._pending:
            body = pending.body
            if isinstance(body, ItemDelta):
                body = structs.replace(body, delta="".join(pending.pieces))
            event = Event(
                self.snapshot.seq + 1,
                self.snapshot.session_id,
                self.time(),
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
        """Stop writing: tasks that wait in `committed` get an error."""
        if self.broken is None:
            message = (
                "The session was closed because of a bug in the daemon. "
                "See the daemon's log for details."
            )
            self.broken = LogError("closed", message)
        self._wake_waiters()

    async def run(self) -> None:
        """Write batches until cancelled; raises `LogError` if the log can't be written."""
        while True:
            await self._wake.wait()
            if self._writing:
                await self._progress.wait()
                continue
            is_recent = trio.current_time() - self._written_at < DELTA_WINDOW_S
            if is_recent and not self._urgent.is_set():
                with trio.move_on_after(DELTA_WINDOW_S):
                    await self._urgent.wait()
            # `commit` may have written meanwhile, or may be writing.
            if not self._writing and not self.is_committed:
                await self._write()

    def _put_delta(self, body: ItemDelta, turn_id: str | None) -> None:
        key = (body.item_id, body.channel)
        pending = self._joinable.get(key)
        if pending is None:
            pending = self._joinable[key] = _PendingBody(body, turn_id, None, [])
            self._pending.append(pending)
        pending.pieces.append(body.delta)

    async def _write(self, stored: Callable[[], None] | None = None) -> None:
        if self.broken:  # what follows lost events would fail for another reason
            raise self.broken
        # `run` may be waiting for more to write.
        self._urgent.set()
        # Renewed before the write, so that a put during the write causes another write.
        self._wake, self._urgent = trio.Event(), trio.Event()
        self._writing = True
        self.fold_pending()
        # Taken before the write, as bodies put during the write belong to the next batch.
        puts = self._puts
        events, self._numbered = self._numbered, []
        submission, self._submission = self._submission, None
        bodies = [encode_event(event) for event in events]
        rows = tuple(EventRow(e.seq, e.time, b) for e, b in zip(events, bodies, strict=True))
        synced = submission is not None or not all(map(_may_be_lost, events))
        row = session_row(self.snapshot)
        try:
            await self._log.append(
                Batch(row, rows, submission, tuple(request_rows(events)), synced)
            )
        except LogError as error:
            self.broken = error
            self._wake_waiters()
            raise
        else:
            if stored:
                stored()
                # In the first round of the loop, this task may run before the woken tasks.
                await trio.lowlevel.checkpoint()
                await trio.lowlevel.checkpoint()
        finally:
            self._writing = False
        self._written_at = trio.current_time()
        # No checkpoint until all is published, so committed events are also published.
        self._puts_committed = puts
        for event, body in zip(events, bodies, strict=True):
            self._publish(event.session_id, body)
            # Frontends that list sessions need these events without subscribing to each session.
            if isinstance(event.body, LIFECYCLE_BODIES):
                self._publish(LIFECYCLE_TOPIC, body)
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        """Wake the tasks that wait in `committed`."""
        progress, self._progress = self._progress, trio.Event()
        progress.set()


def _can_wait(body: AnyBody) -> bool:
    """Whether the body may wait to share a commit, as a delta may, instead of delaying others."""
    match body:
        case StepStarted() | StepEnded() | ToolCallUpdated() | ItemCompleted():
            return True
        case ItemStarted():
            return isinstance(body.item, ToolCall)
        case _:
            return False


def _may_be_lost(event: Event) -> bool:
    """Whether a power failure may lose the event, as a part of a response that is still streamed.

    The response is then requested again. Nothing has been done because of these parts.
    """
    match event.body:
        case ItemDelta() | StepStarted():
            return True
        case ItemStarted(item=AssistantMessage() | Reasoning()):
            return True
        case _:
            return False


def session_row(snapshot: Snapshot) -> SessionRow:
    """Return the row of a snapshot in the log's table of sessions."""
    return SessionRow(
        session_id=snapshot.session_id,
        workspace=snapshot.workspace,
        created_at=snapshot.created_at,
        updated_at=snapshot.updated_at,
        head=snapshot.seq,
        title=snapshot.title,
        archived=snapshot.archived,
        unfinished=snapshot.turn is not None,
        parent_id=snapshot.parent_id or "",
        owner_id=snapshot.owner_id or "",
        summary=msgpack.encode(summary_of(snapshot)),
    )
