"""Finds a turn's changes in files by snapshots before and after, and makes `Patch` items of them.

Implements the turn's `ChangeTracker`. `snapshots.snapshots` takes the snapshots, and `reverting`
restores files from them.
"""

from collections.abc import Callable, Sequence

import trio
from msgspec import structs

from tiller_daemon.files.paths import printable
from tiller_daemon.session.calls.write_limits import WriteLimits
from tiller_daemon.session.services import Services
from tiller_daemon.snapshots.snapshots import SnapshotProblem, Snapshots, TreeChange
from tiller_daemon.tools.write_scope import WHOLE, WriteScope, is_below
from tiller_protocol.events import WarningRaised
from tiller_protocol.ids import ItemId
from tiller_protocol.items import FileChange, Patch

FILES_NAMED_MAX = 1_000
"""How many files one patch names at most, so that unpacking an archive does not fill the log."""

FINISH_S_MAX = 3.0
"""How long the last comparison of an interrupted turn may take. A stopping daemon waits for it."""

SNAPSHOT_FAILED = (
    "No snapshot of {workspace} could be taken. {reason} The turn goes on, but its changes to "
    "files can't be reverted."
)


class TurnChanges:
    """Finds one turn's changes in files, step by step. Does nothing without `Snapshots`.

    If snapshots are switched off or fail, a step that may have written gets a patch without trees,
    as its changes are unknown. It `is_open` while a step that may have written has no patch yet.
    """

    def __init__(
        self,
        services: Services,
        workspace: str,
        session_id: str,
        warn: Callable[[WarningRaised], None],
        limits: WriteLimits,
    ) -> None:
        self._snapshots = services.files.snapshots
        self._enabled = services.user.configuration().snapshots
        self._new_id = services.new_id
        self._workspace = workspace
        self._session_id = session_id
        self._warn = warn
        self._limits = limits
        self._taking = trio.Lock()
        self._claimed = 0
        self._taken: tuple[WriteScope, ...] = ()
        self.is_open = False
        self._before = ""
        self._has_looked = False

    async def before(self) -> None:
        """Take a snapshot unless the step already has a snapshot; see `ChangeTracker`."""
        if self._snapshots is None:
            return
        # No concurrent call may begin before the snapshot is complete.
        async with self._taking:
            if not self.is_open:
                await self._begin(self._snapshots)

    async def _begin(self, snapshots: Snapshots) -> None:
        # If this is cancelled, the call does not begin, so there is nothing to compare.
        # A change between turns may have escaped the watches, and must not count as this turn's.
        thorough = not self._has_looked
        claims = self._limits.claims
        self._claimed, self._taken = claims.mark(), tuple(one.scope for one in claims.current)
        self._before = await self._take(snapshots, thorough=thorough) if self._enabled else ""
        self._has_looked = True
        self.is_open = True

    async def after(self) -> Patch | None:
        """Compare with the earlier snapshot; see `ChangeTracker`. If cancelled, call this again."""
        if self._snapshots is None or not self.is_open:
            return None
        patch = await self._compare(self._snapshots, thorough=False)
        self.is_open = False
        return patch

    async def finish(self) -> Patch | None:
        """Do `after` for a turn that was cancelled or crashed, within `FINISH_S_MAX`.

        If the time is over, the patch has no trees. After any other turn, the patch contains the
        changes that earlier comparisons have missed.
        """
        if self._snapshots is None or not self._has_looked:
            return None
        with trio.move_on_after(FINISH_S_MAX):
            if self.is_open:
                return await self._compare(self._snapshots, thorough=True)
            return await self._missed(self._snapshots)
        # Revert must know that there may be changes which it can't undo.
        return Patch(ItemId(self._new_id()), ())

    async def _compare(self, snapshots: Snapshots, *, thorough: bool) -> Patch | None:
        # Without a first snapshot, a second snapshot is of no use.
        after = await self._take(snapshots, thorough=thorough) if self._before else ""
        if not after:
            return Patch(ItemId(self._new_id()), ())
        return await self._patch(snapshots, self._before, after)

    async def _missed(self, snapshots: Snapshots) -> Patch | None:
        try:
            trees = await snapshots.missed(self._workspace, self._session_id)
        except SnapshotProblem as problem:
            self._warn_of(problem)
            return None
        return await self._patch(snapshots, *trees) if trees else None

    async def _patch(self, snapshots: Snapshots, before: str, after: str) -> Patch | None:
        """Return the differences of two trees."""
        if after == before:
            return None
        item_id = ItemId(self._new_id())
        patch = Patch(item_id, (), before, after, within=self._within(), without=self._without())
        try:
            changes = own_changes(patch, await snapshots.changes(self._workspace, before, after))
        except SnapshotProblem as problem:
            self._warn_of(problem)
            return Patch(item_id, ())
        if not changes:
            return None
        named = tuple(map(file_change, changes[:FILES_NAMED_MAX]))
        files = tuple(change.path for change in named)
        return structs.replace(patch, files=files, changes=named, more=len(changes) - len(named))

    def _within(self) -> tuple[str, ...]:
        scope = self._limits.scope
        return () if scope is None or WHOLE in scope.names else scope.names

    def _without(self) -> tuple[str, ...]:
        """Return all places that were claimed at any time since the earlier snapshot."""
        scopes = (*self._taken, *self._limits.claims.since(self._claimed))
        return tuple(dict.fromkeys(name for scope in scopes for name in scope.names))

    async def _take(self, snapshots: Snapshots, *, thorough: bool) -> str:
        """Take a snapshot; if that fails, warn and return an empty string."""
        try:
            return await snapshots.take(self._workspace, self._session_id, thorough=thorough)
        except SnapshotProblem as problem:
            self._warn_of(problem)
            return ""

    def _warn_of(self, problem: SnapshotProblem) -> None:
        # Problems that are already known were reported before.
        if not problem.known:
            message = SNAPSHOT_FAILED.format(workspace=self._workspace, reason=problem)
            self._warn(WarningRaised("snapshot_failed", message))


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
