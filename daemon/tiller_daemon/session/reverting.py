"""Reverts files together with the history, and makes the diff of a session's changes.

A file is reverted if only the reverted steps have changed it since. If anything else changed it,
the file stays as it is and is reported as a conflict. `files.restore` does the work on the files.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import structlog

from tiller_daemon.errors import RejectionError
from tiller_daemon.files.paths import printable
from tiller_daemon.files.restore import FileRestore, GitEntry
from tiller_daemon.policy.readable import Readable
from tiller_daemon.session.context.read_access import session_rules
from tiller_daemon.session.inputs.validation import check_workspace
from tiller_daemon.session.recovery import load_snapshot
from tiller_daemon.session.services import Services
from tiller_daemon.session.sub_agents.agents import DEFAULT_AGENT, list_agents
from tiller_daemon.session.turns.turn_changes import file_change, own_changes
from tiller_daemon.snapshots.exclusions import is_in
from tiller_daemon.snapshots.snapshots import SnapshotProblem, Snapshots, TreeChange
from tiller_daemon.store.base import Log, LogError
from tiller_protocol.answers import RevertResult, SessionDiffResult
from tiller_protocol.events import WarningRaised
from tiller_protocol.items import FileChange, Item, Patch, ToolCall
from tiller_protocol.ops import Revert, SessionDiff, Unrevert
from tiller_protocol.snapshot import Snapshot, find_mark

log = structlog.get_logger()

DIFF_CHARS_MAX = 1024 * 1024
"""Longest diff in an answer; the rest is cut off."""

FILES_LISTED_MAX = 1_000
PATHS_CHARS_MAX = 256 * 1024
"""Maximum total length of the paths in an answer with a diff."""

FILES_NAMED_MAX = 10
"""How many files a warning names."""

PARTLY_UNKNOWN = (
    "Some steps have no usable snapshot. Their changes were not reverted, and some of these "
    "changes may be unknown. Check the files before you go on."
)

BACKGROUND_KEPT = (
    "Background sub-agents of the reverted steps may have made changes. These were not reverted. "
    "To revert them too:"
)

NOT_SHOWN = "The content of {path} changes. It is not shown, because reading it needs approval.\n"

EDITS = frozenset({"write", "edit", "apply_patch"})
"""Tools whose calls have the changed file as their title."""


async def put_back(
    snapshots: Snapshots | None, snapshot: Snapshot, op: Revert | Unrevert, submission_id: str
) -> RevertResult:
    """Restore files for a revert, or undo a revert; raises `RejectionError`.

    Files that can't be restored stay as they are and are listed as conflicts. When the event is in
    the log, the caller must call `Snapshots.confirm_restore`.
    """
    if isinstance(op, Unrevert) and not snapshot.reverted:
        message = (
            "There is nothing to undo: no turn was reverted, or a new turn has begun since the "
            "last revert."
        )
        raise RejectionError("not_found", message)
    items = _items_after(snapshot, op) if isinstance(op, Revert) else snapshot.reverted[-1].items
    skipped = frozenset[str]() if isinstance(op, Revert) else {*snapshot.reverted[-1].conflicts}
    check_workspace(snapshot.workspace, snapshot.session_id, snapshot.worktree)
    # History can be reverted without its files.
    if snapshots is None:
        return RevertResult(partial=True)
    try:
        planned, unmoved = await _plan_revert(snapshots, snapshot.workspace, items)
        # Undoing a revert must not touch files that the revert left alone.
        moves = [move for move in planned if printable(move.path) not in skipped]
        if isinstance(op, Unrevert):
            moves = [move.reversed() for move in moves]
        failed = await snapshots.restore(snapshot.workspace, moves, submission_id)
    except SnapshotProblem as problem:
        log.warning("files_not_put_back", session_id=snapshot.session_id, reason=str(problem))
        # None of the files was reverted, so all of them are conflicts.
        files = {file for item in items if isinstance(item, Patch) for file in item.files}
        kept = tuple(sorted(files))
        return RevertResult(conflicts=kept, partial=True, without_snapshot=kept)
    # Undoing a revert need not name the files that the revert has left alone.
    named = isinstance(op, Revert)
    changed, unknown = (unmoved.conflicts, unmoved.without_snapshot) if named else ((), ())
    problems = {printable(path): why for path, why in failed.items() if why}
    conflicts = {*map(printable, failed), *changed, *unknown}
    done = {printable(move.path): move for move in moves if printable(move.path) not in conflicts}
    return RevertResult(
        tuple(sorted(done)),
        tuple(sorted(conflicts)),
        unmoved.partial,
        removed=tuple(sorted(path for path, move in done.items() if move.wanted is None)),
        without_snapshot=tuple(sorted(unknown)),
        problems=problems,
    )


async def background_sub_agents(log: Log, snapshot: Snapshot, op: Revert) -> tuple[str, ...]:
    """Return the sessions of background sub-agents that have changed files or are still working.

    Only sub-agents that the reverted part of history started count. Their changes are only in their
    own patches. Raises `RejectionError`.
    """
    calls = [item for item in _items_after(snapshot, op) if isinstance(item, ToolCall)]
    started = dict.fromkeys(
        call.sub_agent.session_id for call in calls if call.sub_agent and _is_in_background(call)
    )
    try:
        found = [await load_snapshot(log, session_id) for session_id in started]
    except LogError as error:
        raise RejectionError("unavailable", error.message) from error
    return tuple(
        one.session_id
        for one in found
        if one.turn or any(isinstance(item, Patch) for item in one.items)
    )


def files_kept_warnings(result: RevertResult) -> tuple[WarningRaised, ...]:
    """Return the warning about files that were not restored, if there are any."""
    sentences: list[str] = []
    explained = {*result.without_snapshot, *result.problems}
    if changed := [path for path in result.conflicts if path not in explained]:
        named = _named(changed)
        sentences.append(
            f"Something else has also changed these files, so they stay as they are: {named}."
        )
    if result.without_snapshot:
        named = _named(result.without_snapshot)
        sentences.append(
            f"No usable snapshot contains these files, so they stay as they are: {named}."
        )
    for why in dict.fromkeys(result.problems.values()):
        named = _named([path for path, one in result.problems.items() if one == why])
        sentences.append(f"These files stay as they are: {named}. The reason for each: {why}.")
    if result.partial:
        sentences.append(PARTLY_UNKNOWN)
    if result.sub_agents:
        verbs = ", ".join(f"`tiller revert {session_id}`" for session_id in result.sub_agents)
        sentences.append(f"{BACKGROUND_KEPT} {verbs}.")
    return (WarningRaised("files_kept", " ".join(sentences)),) if sentences else ()


def _named(paths: Sequence[str]) -> str:
    more = len(paths) - FILES_NAMED_MAX
    return ", ".join(paths[:FILES_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


async def session_diff(
    services: Services, snapshot: Snapshot, op: SessionDiff
) -> SessionDiffResult:
    """Return the changes of the session, a turn or a step; raises `RejectionError`.

    The content of files that may not be read without approval is left out.
    """
    snapshots = services.files.snapshots
    items = _items_of(snapshot, op)
    patches = [item for item in items if isinstance(item, Patch)]
    known = [patch for patch in patches if patch.tree_after]
    partial = snapshots is None or len(known) < len(patches)
    if not known or snapshots is None:
        return SessionDiffResult((), "", partial=partial)
    first, last = known[0].tree_before, known[-1].tree_after
    workspace = snapshot.workspace
    readable = _readable(services, snapshot)
    try:
        touched = {path for patch in known for path in await _paths_of(patch, snapshots, workspace)}
        changes = await snapshots.changes(workspace, first, last)
        # Between the first and the last snapshot, other programs may have changed files too.
        mine = [change for change in changes if printable(change.path) in touched]
        shown = [change.path for change in mine if readable(printable(change.path))]
        text = await snapshots.diff(workspace, first, last, shown)
    except SnapshotProblem as problem:
        raise RejectionError("unavailable", f"The diff can't be made. {problem}") from problem
    files = tuple(map(file_change, mine))
    unshown = [NOT_SHOWN.format(path=file.path) for file in files if not readable(file.path)]
    text = "".join([*unshown, text])
    listed = _listed(files)
    return SessionDiffResult(
        listed,
        _whole_files(text),
        cut=len(text) > DIFF_CHARS_MAX or len(listed) < len(files),
        partial=partial,
    )


def _listed(files: tuple[FileChange, ...]) -> tuple[FileChange, ...]:
    """Return the first files, as many as fit into an answer."""
    files = files[:FILES_LISTED_MAX]
    sizes = accumulate(len(file.path) for file in files)
    return tuple(f for f, size in zip(files, sizes, strict=True) if size <= PATHS_CHARS_MAX)


def _whole_files(diff: str) -> str:
    """Cut a diff that is too long after a whole file, so that the rest can still be applied."""
    if len(diff) <= DIFF_CHARS_MAX:
        return diff
    end = diff.rfind("\ndiff --git ", 0, DIFF_CHARS_MAX)
    return diff[: end + 1]


def _readable(services: Services, snapshot: Snapshot) -> Readable:
    """Return the check by the session's rules, with its agent's rules if the agent still exists."""
    name = snapshot.settings.agent or DEFAULT_AGENT
    agent = list_agents(services, snapshot.workspace).get(name)
    return Readable(session_rules(services, snapshot, agent.agent if agent else None))


async def _paths_of(patch: Patch, snapshots: Snapshots, workspace: str) -> set[str]:
    # A patch names a limited number of files; the snapshots contain the rest.
    if not patch.more:
        return {*patch.files}
    changes = await _changes_of(patch, snapshots, workspace)
    return {printable(change.path) for change in changes}


async def _changes_of(patch: Patch, snapshots: Snapshots, workspace: str) -> tuple[TreeChange, ...]:
    return own_changes(
        patch, await snapshots.changes(workspace, patch.tree_before, patch.tree_after)
    )


async def _plan_revert(
    snapshots: Snapshots, workspace: str, items: Sequence[Item]
) -> tuple[tuple[FileRestore, ...], RevertResult]:
    """Return the moves that revert files, and a result without these files.

    The result has the files that something else has changed, and those that no snapshot has.
    """
    patches = [item for item in items if isinstance(item, Patch)]
    known = [patch for patch in patches if patch.tree_after]
    steps = [await _changes_of(patch, snapshots, workspace) for patch in known]
    moves, conflicting = moves_back(steps)
    touched = {change.path for step in steps for change in step}
    unknown = {
        change.path
        for patch, step in zip(known, steps, strict=True)
        for places in [frozenset(patch.unknown)]
        for change in step
        if is_in(printable(change.path), places)
    }
    # Files outside the workspace or ignored by git are in no snapshot.
    untracked = {path for path in _edited(items, workspace) if path not in touched}
    stuck = unknown.union(conflicting)
    moves = tuple(move for move in moves if move.path not in unknown)
    # What these files had may now be only where the steps have moved it.
    held = {
        entry.blob
        for step in steps
        for change in step
        if change.path in stuck
        for entry in (change.before, change.after)
        if entry
    }
    lost = held - {move.wanted.blob for move in moves if move.wanted}
    moved = tuple(move.path for move in moves if move.takes_away(lost))
    return tuple(move for move in moves if move.path not in moved), RevertResult(
        conflicts=tuple(map(printable, {*conflicting, *moved} - unknown)),
        partial=any(not patch.tree_after for patch in patches),
        without_snapshot=tuple(map(printable, untracked | unknown)),
    )


def moves_back(
    steps: Iterable[Sequence[TreeChange]],
) -> tuple[tuple[FileRestore, ...], tuple[str, ...]]:
    """Return the moves that undo steps, and the files that were also changed between the steps.

    `steps` are the changes of each step, oldest first.
    """
    begins: dict[str, GitEntry | None] = {}
    ends: dict[str, GitEntry | None] = {}
    conflicting: set[str] = set()
    held: dict[str, set[str]] = {}
    for step in steps:
        for change in step:
            held.setdefault(change.path, set()).update(
                entry.blob for entry in (change.before, change.after) if entry
            )
            # Between two steps of the session, a file must stay as the first step left it.
            begins.setdefault(change.path, change.before)
            if ends.get(change.path, change.before) != change.before:
                conflicting.add(change.path)
            ends[change.path] = change.after
    moves = tuple(
        FileRestore(path, ends[path], begin, frozenset(held[path]))
        for path, begin in begins.items()
        if path not in conflicting and ends[path] != begin
    )
    return moves, tuple(conflicting)


def _is_in_background(call: ToolCall) -> bool:
    """Whether a finished `task` call has only started its sub-agent in the background."""
    text = call.rewritten_arguments or call.arguments
    return msgspec.json.decode(text, type=dict[str, Any]).get("background", False)


def _edited(items: Iterable[Item], workspace: str) -> set[str]:
    """Return the files that tool calls have changed, inside or outside the workspace."""
    done = [
        item.title
        for item in items
        if isinstance(item, ToolCall) and item.name in EDITS and item.diff and item.title
    ]
    return {path for path in done if Path(path).is_absolute() or (Path(workspace) / path).exists()}


def _items_after(snapshot: Snapshot, op: Revert) -> Sequence[Item]:
    return snapshot.items[snapshot.marks[_mark_of(snapshot, op.turn_id, op.step)].items :]


def _items_of(snapshot: Snapshot, op: SessionDiff) -> Sequence[Item]:
    if op.turn_id is None:
        return snapshot.items
    mark = _mark_of(snapshot, op.turn_id, op.step)
    for later in snapshot.marks[mark + 1 :]:
        if op.step or later.turn_id != op.turn_id:
            return snapshot.items[snapshot.marks[mark].items : later.items]
    return snapshot.items[snapshot.marks[mark].items :]


def _mark_of(snapshot: Snapshot, turn_id: str, step: int | None) -> int:
    """Return the index of the mark of a turn or step; raises `RejectionError`."""
    mark = find_mark(snapshot, turn_id, step or 0)
    if mark is None:
        where = f"step {step} of turn {turn_id}" if step else f"turn {turn_id}"
        raise RejectionError("not_found", f"The history of this session has no {where}.")
    return mark
