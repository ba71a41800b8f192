"""Finds a turn's changes in files by snapshots before and after, and makes `Patch` items of them.

Implements the turn's `ChangeTracker`. `snapshots.snapshots` takes the snapshots, and `reverting`
restores files from them.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import trio
from msgspec import structs

from tiller_daemon.files.paths import printable
from tiller_daemon.session.calls.write_limits import WriteLimits
from tiller_daemon.session.services import Services
from tiller_daemon.snapshots.snapshots import SnapshotProblem, Snapshots, TreeChange
from tiller_daemon.snapshots.taking import Taken, file_time_ns
from tiller_daemon.tools.write_scope import WHOLE, WriteScope, is_below
from tiller_protocol.events import WarningRaised
from tiller_protocol.ids import ItemId
from tiller_protocol.items import FileChange, Patch

FILES_NAMED_MAX = 1_000
"""How many files one patch names at most, so that unpacking an archive does not fill the log."""

UNKNOWN_NAMED_MAX = 1_000
"""How many files and directories with unknown earlier states one patch names at most."""

FINISH_S_MAX = 3.0
"""How long the last comparison of an interrupted turn may take. The user waits for it."""

FRESH_S = 0.5
"""How old the first snapshot of a step may be when the step's first call begins."""

FAILED = "snapshot_failed"
"""The code of the warning that a snapshot has failed."""

SNAPSHOT_FAILED = (
    "No snapshot of {workspace} could be taken. {reason} The turn goes on, but its changes to "
    "files can't be reverted."
)


class _Earlier(NamedTuple):
    """The snapshot from before a step's calls, and the claims at that time."""

    taken: Taken
    began_s: float
    """When the snapshot began, in trio's time."""
    claimed: int
    scopes: tuple[WriteScope, ...]


class TurnChanges:
    """Finds one turn's changes in files, step by step. Does nothing without `Snapshots`.

    If snapshots are switched off or fail, a step that may have written gets a patch without trees,
    as its changes are unknown. It `is_open` while a step that may have written has no patch yet.
    After a failure, the turn takes no more snapshots. It warns if the code of the warning is not in
    `told`, which is kept for the session's next turns.
    """

    def __init__(
        self,
        services: Services,
        workspace: str,
        session_id: str,
        warn: Callable[[WarningRaised], None],
        limits: WriteLimits,
        told: set[str],
    ) -> None:
        self._snapshots = services.files.snapshots
        self._is_planted = services.commands.sandboxes.is_planted
        self._enabled = services.user.configuration().snapshots
        self._new_id = services.new_id
        self._workspace = workspace
        self._session_id = session_id
        self._warn = warn
        self._told = told
        self.limits = limits
        self._taking = trio.Lock()
        self._earlier: _Earlier | None = None
        self._begun_ns = self._ended_ns = 0
        self.is_open = False

    async def prepare(self) -> None:
        """Take the snapshot for a call that may soon begin; see `ChangeTracker`."""
        async with self._taking:
            if self._snapshots and not self.is_open:
                await self._look(self._snapshots)

    async def before(self) -> None:
        """Take a snapshot unless the step already has a snapshot; see `ChangeTracker`."""
        if self._snapshots is None:
            return
        # No concurrent call may begin before the snapshot is complete.
        async with self._taking:
            if self.is_open:
                return
            if not self._is_fresh():
                await self._look(self._snapshots)
            # The first snapshot of a large workspace takes long. The next one is quick.
            if not self._is_fresh():
                await self._look(self._snapshots)
            # What has changed until now is the user's, even if it is not in the snapshot.
            self._begun_ns, self._ended_ns = file_time_ns(), 0
            self.is_open = True

    def _is_fresh(self) -> bool:
        return not self._enabled or (
            self._earlier is not None and trio.current_time() < self._earlier.began_s + FRESH_S
        )

    async def _look(self, snapshots: Snapshots) -> None:
        # If this is cancelled, the call does not begin, so there is nothing to compare.
        claims = self.limits.claims
        claimed, scopes = claims.mark(), tuple(one.scope for one in claims.current)
        began_s = trio.current_time()
        self._earlier = None
        if taken := await self._take(snapshots, left_out=True):
            self._earlier = _Earlier(taken, began_s, claimed, scopes)

    async def after(self) -> Patch | None:
        """Compare with the earlier snapshot; see `ChangeTracker`. If cancelled, call this again."""
        if self._snapshots is None or not self.is_open:
            return None
        # If this was cancelled before, the calls ended then.
        self._ended_ns = self._ended_ns or time.time_ns()
        patch = await self._compare(self._snapshots)
        self._earlier, self.is_open = None, False
        return patch

    async def finish(self) -> Patch | None:
        """Do `after` for a turn that ends, within `FINISH_S_MAX`.

        There is nothing to do unless the turn was cut off. If the time is over, the patch has no
        trees.
        """
        if not self.is_open:
            return None
        with trio.move_on_after(FINISH_S_MAX):
            return await self.after()
        # Revert must know that there may be changes which it can't undo.
        self.is_open = False
        return self._unknown()

    def _unknown(self) -> Patch:
        return Patch(ItemId(self._new_id()), ())

    async def _compare(self, snapshots: Snapshots) -> Patch | None:
        # Without a first snapshot, a second snapshot is of no use.
        after = await self._take(snapshots) if self._earlier else None
        if self._earlier is None or after is None:
            return self._unknown()
        before = self._earlier.taken
        if after.tree == before.tree:
            return None
        patch = Patch(
            ItemId(self._new_id()),
            (),
            before.tree,
            after.tree,
            within=self._within(),
            without=self._without(self._earlier),
        )
        try:
            changes = own_changes(
                patch, await snapshots.changes(self._workspace, before.tree, after.tree)
            )
            foreign = await snapshots.foreign_changes(
                self._workspace, before, after, (self._begun_ns, self._ended_ns), changes
            )
        except SnapshotProblem as problem:
            self._warn_of(problem)
            return self._unknown()
        if not changes:
            return None
        named = tuple(map(file_change, changes[:FILES_NAMED_MAX]))
        return structs.replace(
            patch,
            files=tuple(change.path for change in named),
            changes=named,
            more=len(changes) - len(named),
            unknown=_few_places((*foreign, *self._planted(changes))),
        )

    def _planted(self, changes: Sequence[TreeChange]) -> Iterator[str]:
        """Yield what was put aside; a revert must not put it back, as programs would execute it."""
        place = Path(self._workspace).resolve()
        gone = (change.path for change in changes if change.after is None)
        return (path for path in gone if self._is_planted(place / path))

    def _within(self) -> tuple[str, ...]:
        scope = self.limits.scope
        return () if scope is None or WHOLE in scope.names else scope.names

    def _without(self, earlier: _Earlier) -> tuple[str, ...]:
        """Return all places that were claimed at any time since the earlier snapshot."""
        scopes = (*earlier.scopes, *self.limits.claims.since(earlier.claimed))
        return tuple(dict.fromkeys(name for scope in scopes for name in scope.names))

    async def _take(self, snapshots: Snapshots, *, left_out: bool = False) -> Taken | None:
        """Take a snapshot; if that fails, warn, and take no more in this turn."""
        if not self._enabled:
            return None
        try:
            taken = await snapshots.take(self._workspace, self._session_id, left_out=left_out)
        except SnapshotProblem as problem:
            # Trying again at each step would slow down a turn that can go on without snapshots.
            self._enabled = False
            self._warn_of(problem)
            return None
        self._told.discard(FAILED)
        return taken

    def _warn_of(self, problem: SnapshotProblem) -> None:
        if FAILED not in self._told:
            self._told.add(FAILED)
            message = SNAPSHOT_FAILED.format(workspace=self._workspace, reason=problem)
            self._warn(WarningRaised(FAILED, message))


def _few_places(paths: Sequence[str]) -> tuple[str, ...]:
    """Return these paths, or directories that contain them if there are too many."""
    places = {printable(path) for path in paths}
    while len(places) > UNKNOWN_NAMED_MAX:
        places = {str(PurePosixPath(place).parent) for place in places}
    return tuple(sorted(places))


def own_changes(patch: Patch, changes: Sequence[TreeChange]) -> tuple[TreeChange, ...]:
    """Return the differences between a patch's trees that belong to the patch.

    Other differences are the work of sub-agents at the same time.
    """

    def belongs(path: str) -> bool:
        is_within = not patch.within or any(is_below(path, place) for place in patch.within)
        return is_within and not any(is_below(path, place) for place in patch.without)

    return tuple(change for change in changes if belongs(printable(change.path)))


def file_change(change: TreeChange) -> FileChange:
    """Convert a change for frontends."""
    kind = "added" if change.before is None else "removed" if change.after is None else "modified"
    return FileChange(printable(change.path), kind, change.added, change.removed)
