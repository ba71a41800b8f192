"""Which files go back when history does, and what a session changed in files.

A file goes back when all that happened to it since was done by the steps that are taken back. Where
somebody else had a hand in it, it is left as it is and named. What is done to the files themselves
is in `files.restoring`.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import structlog

from tiller_daemon.errors import RejectionError
from tiller_daemon.files.paths import printable
from tiller_daemon.files.restoring import Entry, Move
from tiller_daemon.policy.readable import Readable
from tiller_daemon.session.read_access import session_rules
from tiller_daemon.session.services import Services
from tiller_daemon.session.sub_agents.agents import DEFAULT_AGENT, list_agents
from tiller_daemon.session.turn_changes import file_change
from tiller_daemon.snapshots.snapshots import Change, SnapshotProblem, Snapshots
from tiller_protocol.answers import RevertResult, SessionDiffResult
from tiller_protocol.events import WarningRaised
from tiller_protocol.items import Item, Patch, ToolCall
from tiller_protocol.ops import Revert, SessionDiff, Unrevert
from tiller_protocol.snapshot import Snapshot, find_mark

log = structlog.get_logger()

DIFF_CHARS_MAX = 1024 * 1024
"""Longest diff in an answer; what is longer is cut."""

FILES_LISTED_MAX = 1_000
"""Most files that come with a diff."""

FILES_NAMED_MAX = 10
"""Most files that a sentence names."""

PARTLY_UNKNOWN = (
    "Some of what was done to files is not known, as there are no snapshots of it, and was left: "
    "look at them before you go on."
)

NOT_SHOWN = "Content of {path} changes and is not shown: reading it needs an approval.\n"

EDITS = frozenset({"write", "edit", "apply_patch"})
"""Tools whose calls say by their title which file they changed."""


class RevertPlan(NamedTuple):
    """What a revert does to files: `moves`, and the files that are left as they are.

    With `partial` steps are taken back of which nobody knows what they changed.
    """

    moves: tuple[Move, ...]
    left: tuple[str, ...]
    partial: bool


async def put_back(
    snapshots: Snapshots | None, snapshot: Snapshot, op: Revert | Unrevert, submission_id: str
) -> RevertResult:
    """Put the files back for a revert, or bring them again; raises `RejectionError`.

    What can't be put back is left as it is, and told. The caller says `settled` when all of it is
    in the log.
    """
    if isinstance(op, Unrevert) and not snapshot.reverted:
        message = "There is no revert to undo, or a turn has begun since."
        raise RejectionError("not_found", message)
    items = _items_after(snapshot, op) if isinstance(op, Revert) else snapshot.reverted[-1].items
    skipped = frozenset[str]() if isinstance(op, Revert) else {*snapshot.reverted[-1].conflicts}
    if snapshots is None:
        return RevertResult(partial=True)
    try:
        plan = await _plan_revert(snapshots, snapshot.workspace, items)
        moves = [move for move in plan.moves if printable(move.path) not in skipped]
        if isinstance(op, Unrevert):
            moves = [move.reversed() for move in moves]
        left = await snapshots.put_back(snapshot.workspace, moves, submission_id)
    except SnapshotProblem as problem:
        log.warning("files_not_put_back", session_id=snapshot.session_id, reason=str(problem))
        named = {file for item in items if isinstance(item, Patch) for file in item.files}
        return RevertResult(conflicts=tuple(sorted(named)), partial=True)
    conflicts = {*map(printable, left), *(plan.left if isinstance(op, Revert) else ())}
    done = {printable(move.path) for move in moves} - conflicts
    return RevertResult(tuple(sorted(done)), tuple(sorted(conflicts)), plan.partial)


def files_kept_warnings(result: RevertResult) -> tuple[WarningRaised, ...]:
    """What the user is told of files that were not put back."""
    sentences: list[str] = []
    if result.conflicts:
        named = ", ".join(result.conflicts[:FILES_NAMED_MAX])
        more = len(result.conflicts) - FILES_NAMED_MAX
        named += f" and {more} more" if more > 0 else ""
        sentences.append(f"Left as they are, as somebody else had a hand in them: {named}.")
    if result.partial:
        sentences.append(PARTLY_UNKNOWN)
    return (WarningRaised("files_kept", " ".join(sentences)),) if sentences else ()


async def session_diff(
    services: Services, snapshot: Snapshot, op: SessionDiff
) -> SessionDiffResult:
    """What the session, or a turn or step of it, changed; raises `RejectionError`.

    Of files that may not be read unasked it says that they changed, and no more.
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
        mine = [change for change in changes if printable(change.path) in touched]
        shown = [change.path for change in mine if readable(printable(change.path))]
        text = await snapshots.diff(workspace, first, last, shown)
    except SnapshotProblem as problem:
        raise RejectionError("unavailable", f"There is no diff: {problem}.") from problem
    files = tuple(map(file_change, mine))
    unshown = [NOT_SHOWN.format(path=one.path) for one in files if not readable(one.path)]
    text = "".join([*unshown, text])
    return SessionDiffResult(
        files[:FILES_LISTED_MAX],
        text[:DIFF_CHARS_MAX],
        cut=len(text) > DIFF_CHARS_MAX or len(files) > FILES_LISTED_MAX,
        partial=partial,
    )


def _readable(services: Services, snapshot: Snapshot) -> Readable:
    """The check by the rules of a session, with those of its agent if that is still there."""
    name = snapshot.settings.agent or DEFAULT_AGENT
    found = list_agents(services, snapshot.workspace).get(name)
    return Readable(session_rules(services, snapshot, found.agent if found else None))


async def _paths_of(patch: Patch, snapshots: Snapshots, workspace: str) -> set[str]:
    if not patch.more:
        return {*patch.files}
    changes = await snapshots.changes(workspace, patch.tree_before, patch.tree_after)
    return {printable(change.path) for change in changes}


async def _plan_revert(snapshots: Snapshots, workspace: str, items: Sequence[Item]) -> RevertPlan:
    patches = [item for item in items if isinstance(item, Patch)]
    steps = [
        await snapshots.changes(workspace, patch.tree_before, patch.tree_after)
        for patch in patches
        if patch.tree_after
    ]
    moves, conflicting = moves_back(steps)
    touched = {change.path for step in steps for change in step}
    untracked = {path for path in _edited(items, workspace) if path not in touched}
    left = {*map(printable, conflicting), *map(printable, untracked)}
    return RevertPlan(moves, tuple(left), any(not patch.tree_after for patch in patches))


def moves_back(steps: Iterable[Sequence[Change]]) -> tuple[tuple[Move, ...], tuple[str, ...]]:
    """What takes steps back, oldest first; and the files that somebody else changed in between."""
    begins: dict[str, Entry | None] = {}
    ends: dict[str, Entry | None] = {}
    conflicting: set[str] = set()
    for step in steps:
        for change in step:
            begins.setdefault(change.path, change.before)
            if ends.get(change.path, change.before) != change.before:
                conflicting.add(change.path)
            ends[change.path] = change.after
    moves = tuple(
        Move(path, ends[path], begin)
        for path, begin in begins.items()
        if path not in conflicting and ends[path] != begin
    )
    return moves, tuple(conflicting)


def _edited(items: Iterable[Item], workspace: str) -> set[str]:
    """The files that calls of tools have changed, in the workspace or not."""
    done = [
        item.title
        for item in items
        if isinstance(item, ToolCall) and item.name in EDITS and item.diff and item.title
    ]
    return {path for path in done if Path(path).is_absolute() or (Path(workspace) / path).exists()}


def _items_after(snapshot: Snapshot, op: Revert) -> Sequence[Item]:
    found = find_mark(snapshot, op.turn_id, op.step or 0)
    if found is None:
        raise _not_in_history(op.turn_id, op.step)
    return snapshot.items[snapshot.marks[found].items :]


def _items_of(snapshot: Snapshot, op: SessionDiff) -> Sequence[Item]:
    if op.turn_id is None:
        return snapshot.items
    found = find_mark(snapshot, op.turn_id, op.step or 0)
    if found is None:
        raise _not_in_history(op.turn_id, op.step)
    for mark in snapshot.marks[found + 1 :]:
        if op.step or mark.turn_id != op.turn_id:
            return snapshot.items[snapshot.marks[found].items : mark.items]
    return snapshot.items[snapshot.marks[found].items :]


def _not_in_history(turn_id: str, step: int | None) -> RejectionError:
    where = f"step {step} of turn {turn_id}" if step else f"turn {turn_id}"
    return RejectionError("not_found", f"There is no {where} in the history of this session.")
