"""What a turn changes in files: found by snapshots before and after, recorded as `Patch` items.

Implements the turn's `ChangeTracker`. `snapshots.snapshots` takes the snapshots, `reverting` goes
back to them.
"""

from collections.abc import Callable

import trio

from tiller_daemon.files.paths import printable
from tiller_daemon.session.services import Services
from tiller_daemon.snapshots.snapshots import SnapshotProblem, Snapshots, TreeChange
from tiller_protocol.events import WarningRaised
from tiller_protocol.ids import ItemId
from tiller_protocol.items import FileChange, Patch

FILES_NAMED_MAX = 1_000
"""How many files one patch names, so that unpacking an archive does not fill the log."""

FINISH_S_MAX = 3.0
"""How long the last comparison of an interrupted turn may take. A stopping daemon waits for it."""

SNAPSHOT_FAILED = (
    "No snapshot of {workspace} could be taken: {reason}. The turn goes on, but its changes to "
    "files can't be reverted."
)


class TurnChanges:
    """Finds what one turn changes in files, step by step. Does nothing without `Snapshots`.

    If snapshots are switched off or fail, a step that may have written gets a patch without trees:
    its changes are unknown.
    """

    def __init__(
        self,
        services: Services,
        workspace: str,
        session_id: str,
        warn: Callable[[WarningRaised], None],
    ) -> None:
        self._snapshots = services.files.snapshots
        self._enabled = services.user.configuration().snapshots
        self._new_id = services.new_id
        self._workspace = workspace
        self._session_id = session_id
        self._warn = warn
        self._is_open = False
        self._before = ""

    async def before(self) -> None:
        """Take a snapshot unless the step already has one; see `ChangeTracker`."""
        if self._snapshots is None or self._is_open:
            return
        # If this is cancelled, the call does not begin, so there is nothing to compare.
        self._before = await self._take(self._snapshots) if self._enabled else ""
        self._is_open = True

    async def after(self) -> Patch | None:
        """Compare with the earlier snapshot; see `ChangeTracker`. If cancelled, call it again."""
        if self._snapshots is None or not self._is_open:
            return None
        patch = await self._compare(self._snapshots)
        self._is_open = False
        return patch

    async def finish(self) -> Patch | None:
        """Do `after` for a turn that was cancelled or crashed, within `FINISH_S_MAX`.

        Out of time, it returns a patch without trees.
        """
        with trio.move_on_after(FINISH_S_MAX):
            return await self.after()
        return Patch(ItemId(self._new_id()), ())

    async def _compare(self, snapshots: Snapshots) -> Patch | None:
        # Without a first snapshot a second one is of no use.
        after = await self._take(snapshots) if self._before else ""
        item_id = ItemId(self._new_id())
        if not after:
            return Patch(item_id, ())
        if after == self._before:
            return None
        try:
            changes = await snapshots.changes(self._workspace, self._before, after)
        except SnapshotProblem as problem:
            self._warn_of(problem)
            return Patch(item_id, ())
        named = tuple(map(file_change, changes[:FILES_NAMED_MAX]))
        files = tuple(change.path for change in named)
        return Patch(item_id, files, self._before, after, named, len(changes) - len(named))

    async def _take(self, snapshots: Snapshots) -> str:
        """Take a snapshot; if that fails, warn and return an empty string."""
        try:
            return await snapshots.take(self._workspace, self._session_id)
        except SnapshotProblem as problem:
            self._warn_of(problem)
            return ""

    def _warn_of(self, problem: SnapshotProblem) -> None:
        # Known problems were reported before.
        if not problem.known:
            message = SNAPSHOT_FAILED.format(workspace=self._workspace, reason=problem)
            self._warn(WarningRaised("snapshot_failed", message))


def file_change(change: TreeChange) -> FileChange:
    """Convert a change for frontends."""
    kind = "added" if change.before is None else "removed" if change.after is None else "modified"
    return FileChange(printable(change.path), kind, change.added, change.removed)
