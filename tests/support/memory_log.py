"""A log in memory, for tests and simulation: the counterpart of `SqliteLog`, with planned faults.

It uses no threads and no clock, so that runs are reproducible from a seed. To simulate a restart,
pass the same `MemoryLog` to another daemon.
"""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import trio

from tiller_daemon.store.base import (
    Batch,
    EventRow,
    LogError,
    LogErrorKind,
    RequestRow,
    SessionRow,
    SubmissionRow,
    head_conflict,
    read_cursor,
    seq_before,
    submission_conflict,
)

CrashPoint = Callable[[], Awaitable[None]]


async def _checkpoint() -> None:
    # A real log takes time, so a simulation must be able to run other tasks in between.
    await trio.lowlevel.checkpoint()


class MemoryLog:
    """Implements `Log` in memory.

    If `fail_next` is set, the next write (`append`, `record`, `delete`) stores nothing and raises
    that kind. `before_commit` and `after_commit` are awaited around each write, which passes on
    their exceptions and cancellation; nothing, or everything, is stored then. `commits` lists the
    session and new head of each batch, and `unsynced` those that a power failure might lose.
    """

    def __init__(
        self,
        log_id: str = "memory",
        *,
        before_commit: CrashPoint = _checkpoint,
        after_commit: CrashPoint = _checkpoint,
    ) -> None:
        self.log_id = log_id
        self.path = ":memory:"
        self.fail_next: LogErrorKind | None = None
        self.before_commit = before_commit
        self.after_commit = after_commit
        self.commits: list[tuple[str, int]] = []
        self.unsynced: list[Batch] = []
        self._sessions: dict[str, SessionRow] = {}
        self._events: dict[str, list[EventRow]] = {}
        self._submissions: dict[str, SubmissionRow] = {}
        self._requests: dict[tuple[str, str], RequestRow] = {}

    async def append(self, batch: Batch) -> None:
        """Store a batch; see `Log.append`."""
        before = seq_before(batch)
        await self.before_commit()
        self._raise_planned_fault()
        row = batch.session
        head = self.head_now(row.session_id)
        if head != before:
            raise head_conflict(row.session_id, before, head)
        if batch.submission is not None:
            self._add_submission(batch.submission)
        self._sessions[row.session_id] = row
        self._events.setdefault(row.session_id, []).extend(batch.events)
        self._requests |= {(r.request_id, r.session_id): r for r in batch.requests}
        self.commits.append((row.session_id, row.head))
        if not batch.synced:
            self.unsynced.append(batch)
        await self.after_commit()

    async def record(self, submission: SubmissionRow) -> None:
        """Store an answer; see `Log.record`."""
        await self.before_commit()
        self._raise_planned_fault()
        self._add_submission(submission)
        await self.after_commit()

    async def delete(self, session_id: str) -> None:
        """Remove a session; see `Log.delete`."""
        await self.before_commit()
        self._raise_planned_fault()
        self._sessions.pop(session_id, None)
        self._events.pop(session_id, None)
        self._requests = {key: row for key, row in self._requests.items() if key[1] != session_id}
        await self.after_commit()

    async def events(self, session_id: str, after: int, limit: int, bytes_max: int) -> list[bytes]:
        """Bodies after `after`; see `Log.events`."""
        await _checkpoint()
        bodies: list[bytes] = []
        total = 0
        for event in self._events.get(session_id, [])[max(after, 0) :][:limit]:
            total += len(event.body)
            if bodies and total > bytes_max:
                break
            bodies.append(event.body)
        return bodies

    async def head(self, session_id: str) -> int:
        """The last `seq`; see `Log.head`."""
        await _checkpoint()
        return self.head_now(session_id)

    async def submission(self, submission_id: str) -> SubmissionRow | None:
        """The stored answer; see `Log.submission`."""
        await _checkpoint()
        return self._submissions.get(submission_id)

    async def highest_submission(self) -> str:
        """The greatest submission id; see `Log.highest_submission`."""
        await _checkpoint()
        return max(self._submissions, default="")

    async def requests(self, request_id: str) -> list[RequestRow]:
        """The rows of a request; see `Log.requests`."""
        await _checkpoint()
        rows = [row for row in self._requests.values() if row.request_id == request_id]
        return sorted(rows, key=lambda row: (row.resolution == "", row.session_id))

    async def session(self, session_id: str) -> SessionRow | None:
        """The row of a session; see `Log.session`."""
        await _checkpoint()
        return self._sessions.get(session_id)

    async def sessions(
        self,
        *,
        workspace: str | None,
        owner_id: str | None = "",
        archived: bool | None,
        limit: int,
        after: str | None,
        session_ids: Sequence[str] | None = None,
        beside: Sequence[str] = (),
    ) -> list[SessionRow]:
        """A page of rows; see `Log.sessions`."""
        await _checkpoint()
        end = None if after is None else read_cursor(after)
        rows = sorted(self._sessions.values(), key=_sort_key, reverse=True)
        return [
            row
            for row in rows
            if archived in (None, row.archived)
            and (session_ids is None or row.session_id in session_ids)
            and owner_id in (None, row.owner_id)
            and (workspace is None or row.workspace in (workspace, *beside))
            and (end is None or _sort_key(row) < end)
        ][:limit]

    async def unfinished(self) -> list[str]:
        """Sessions with an open turn; see `Log.unfinished`."""
        await _checkpoint()
        return sorted(row.session_id for row in self._sessions.values() if row.unfinished)

    async def forks(self, session_id: str) -> list[str]:
        """Sessions that were forked from this one; see `Log.forks`."""
        await _checkpoint()
        rows = self._sessions.values()
        return sorted(row.session_id for row in rows if row.parent_id == session_id)

    async def sub_agents(self, session_id: str) -> list[str]:
        """Sub-agents' sessions of this session; see `Log.sub_agents`."""
        await _checkpoint()
        rows = self._sessions.values()
        return sorted(row.session_id for row in rows if row.owner_id == session_id)

    async def count(self) -> int:
        """The number of sessions."""
        await _checkpoint()
        return len(self._sessions)

    async def back_up(self, file: Path) -> int:
        """Fail: memory needs no backup."""
        raise LogError("io", f"{file} was not made: this log is in memory")

    def problems(self) -> tuple[str, ...]:
        """Always empty, as memory is not damaged."""
        return ()

    def head_now(self, session_id: str) -> int:
        """Return the head without yielding to other tasks."""
        row = self._sessions.get(session_id)
        return row.head if row else 0

    def _add_submission(self, submission: SubmissionRow) -> None:
        if submission.submission_id in self._submissions:
            raise submission_conflict(submission.submission_id)
        self._submissions[submission.submission_id] = submission

    def _raise_planned_fault(self) -> None:
        kind, self.fail_next = self.fail_next, None
        if kind is not None:
            raise LogError(kind, f"planned fault of the log in memory ({kind}); nothing was stored")


def _sort_key(row: SessionRow) -> tuple[float, str]:
    return row.updated_at, row.session_id
