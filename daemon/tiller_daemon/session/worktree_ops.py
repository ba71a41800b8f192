"""Answers ops on worktrees."""

from collections.abc import Iterable
from pathlib import Path

import trio
from msgspec import structs

from tiller_daemon.config import Worktree
from tiller_daemon.errors import RejectionError
from tiller_daemon.session.context.project_trust import configuration_for
from tiller_daemon.session.loaded_sessions import LoadedSessions
from tiller_daemon.session.services import Services
from tiller_daemon.session.worktrees import worktrees_of
from tiller_daemon.worktrees import removing
from tiller_daemon.worktrees.git import WorktreeProblem
from tiller_daemon.worktrees.landing import Conflict
from tiller_daemon.worktrees.making import find_source
from tiller_daemon.worktrees.records import Record, real
from tiller_daemon.worktrees.worktrees import Worktrees
from tiller_protocol.events import WarningRaised
from tiller_protocol.sessions import LIST_LIMIT_MAX
from tiller_protocol.snapshot import Snapshot
from tiller_protocol.worktrees import (
    WorktreeLand,
    WorktreeLanded,
    WorktreeList,
    WorktreeListResult,
    WorktreeRemove,
    WorktreeRestore,
    WorktreeResult,
    WorktreeSummary,
)

WORKERS_MAX = 4
"""How many worktrees are looked at side by side."""

MERGE_TASK = (
    "Merge the branch `{onto}` into `{name}`: git merge {onto}. Resolve the conflicts in {files}, "
    "run the tests, and commit the result."
)

LANDED = "The commits of `{name}` have landed: `{onto}` is at {commit}."

AnyWorktreeOp = WorktreeList | WorktreeLand | WorktreeRemove | WorktreeRestore


async def answer_worktrees(
    services: Services, sessions: LoadedSessions, op: AnyWorktreeOp
) -> WorktreeListResult | WorktreeLanded | WorktreeResult:
    """Answer an op on worktrees; raises `RejectionError`."""
    worktrees = worktrees_of(services)
    try:
        if isinstance(op, WorktreeList):
            return WorktreeListResult(await _list(services, worktrees, op))
        record = worktrees.find(op.worktree_id)
        if isinstance(op, WorktreeRestore):
            record = await worktrees.restore(record)
            return WorktreeResult(await _summary(services, worktrees, record))
        _check_idle(sessions, record)
        settings = _settings(services, record)
        if isinstance(op, WorktreeRemove):
            record = await worktrees.remove(record, settings, force=op.force)
            return WorktreeResult(await _summary(services, worktrees, record))
        landed = await worktrees.land(record, op.how, op.onto, settings)
        told = LANDED.format(name=record.name, onto=landed.onto, commit=landed.commit[:12])
        for session_id in await _sessions_in(services, record):
            (await sessions.find(session_id)).outbox.put(WarningRaised("landed", told))
        return WorktreeLanded(*landed)
    except Conflict as conflict:
        files = ", ".join(conflict.files)
        name = worktrees.find(op.worktree_id).name if not isinstance(op, WorktreeList) else ""
        task = MERGE_TASK.format(onto=conflict.onto, name=name, files=files)
        data = {"onto": conflict.onto, "files": list(conflict.files), "task": task}
        raise RejectionError("conflict", str(conflict), data) from conflict
    except WorktreeProblem as problem:
        raise RejectionError("worktree", str(problem)) from problem


async def drop_worktree_made_for(services: Services, empty: Snapshot) -> None:
    """Delete the worktree that was made for a session without input, if no other one uses it."""
    worktrees = services.files.worktrees
    record = worktrees.records.around(empty.workspace) if worktrees else None
    # A session gets its id before its worktree does.
    if worktrees is None or record is None or record.id < empty.session_id:
        return
    if not await _sessions_in(services, record, archived=None):
        await worktrees.drop_if_untouched(record.path)


def _settings(services: Services, record: Record) -> Worktree:
    """Return the settings that hold in a worktree; the user's, if the project's are invalid."""
    try:
        return configuration_for(services, record.path).worktree
    except RejectionError:
        return services.user.configuration().worktree


def _check_idle(sessions: LoadedSessions, record: Record) -> None:
    for session in sessions:
        place = Path(session.snapshot.workspace)
        if session.turn_is_running and place.is_relative_to(record.path):
            raise RejectionError(
                "busy",
                f"The session {session.snapshot.session_id} works in `{record.name}`. Interrupt "
                "its turn, or wait until it ends.",
            )


async def _list(
    services: Services, worktrees: Worktrees, op: WorktreeList
) -> tuple[WorktreeSummary, ...]:
    records: Iterable[Record] = worktrees.records.all()
    if op.name:
        records = [one for one in records if one.name == op.name]
    if op.workspace is not None:
        place = real(op.workspace)
        around = worktrees.records.around(place)
        repository = (
            around.origin.repository if around else str((await find_source(place)).repository)
        )
        records = (one for one in records if one.origin.repository == repository)
    chosen = [one for one in records if one.state in ("ready", "removed")]
    found: dict[str, WorktreeSummary] = {}
    limit = trio.CapacityLimiter(WORKERS_MAX)

    async def look(record: Record) -> None:
        async with limit:
            found[record.id] = await _summary(services, worktrees, record)

    async with trio.open_nursery() as nursery:
        for record in chosen:
            nursery.start_soon(look, record)
    return tuple(found[one.id] for one in chosen)


async def _summary(services: Services, worktrees: Worktrees, record: Record) -> WorktreeSummary:
    state = await worktrees.state_of(record)
    is_removed = record.state == "removed"
    summary = WorktreeSummary(
        record.id,
        record.name,
        record.path,
        record.origin.checkout,
        "removed" if is_removed else "ready" if state.is_there else "missing",
        record.origin.base_branch,
        state.ahead,
        state.changed,
        await _sessions_in(services, record),
        problem=state.problem,
    )
    if is_removed:
        size = await trio.to_thread.run_sync(removing.size_of, Path(record.trash))
        until = worktrees.kept_until(record)
        summary = structs.replace(summary, disk_bytes=size, kept_until=until)
    return summary


async def _sessions_in(
    services: Services, record: Record, *, archived: bool | None = False
) -> tuple[str, ...]:
    rows = await services.log.sessions(
        workspace=None, archived=archived, limit=LIST_LIMIT_MAX, after=None
    )
    return tuple(row.session_id for row in rows if Path(row.workspace).is_relative_to(record.path))
