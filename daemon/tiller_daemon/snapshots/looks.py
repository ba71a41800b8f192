"""Snapshots of one workspace: by git, or by stamps once the workspace is known.

git reads whatever it is given, and takes three processes for a change of one file. From
`LEARN_FROM` on, `KnownWorkspace` takes the snapshots, and git only those that are unclear to it.
"""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import trio

from tiller_daemon.files.restore import FILE_BYTES_MAX, GitEntry
from tiller_daemon.files.whole_files import TEMPORARY
from tiller_daemon.snapshots.directories import Directory, Kind
from tiller_daemon.snapshots.exclusions import files_to_exclude
from tiller_daemon.snapshots.git_index import read_index
from tiller_daemon.snapshots.git_trees import TreeChange, ignored_paths, put_into_index, write_tree
from tiller_daemon.snapshots.known_workspace import (
    Findings,
    FoundChange,
    KnownWorkspace,
    Rules,
    Unclear,
)
from tiller_daemon.snapshots.learning import known_workspace_after
from tiller_daemon.snapshots.shadow_repository import GitProblem, ShadowRepository
from tiller_daemon.snapshots.surroundings import Surroundings, surroundings_of
from tiller_daemon.snapshots.watch import Watch, is_local

NEW_BYTES_MAX: Final = 512 * 1024 * 1024
NEW_FILES_MAX: Final = 100_000
"""The most that one snapshot adds. A workspace with more new data gets no snapshots."""

LIST_S_MAX: Final = 15.0
"""How long listing the workspace may take; 5,000 files take 0.02 s. In a whole home directory the
first call that may write waits this long, and then there are no snapshots."""

PACKED_FROM: Final = 200
"""From this many new files on, all go into one pack, as git does with large files. Writing 5,000
loose objects takes four times as long."""

LEARN_FROM: Final = 3
"""The snapshot by git with which the workspace becomes known. That takes as long as two or three
of them, so it is not worthwhile for a single step."""

LEARN_AGAIN_S: Final = 60.0
"""How long to wait after a workspace could not become known."""

QUICK_FILES_MAX: Final = 200
QUICK_BYTES_MAX: Final = 256 * 1024
"""How many stamps are compared, and how much is read, on the event loop: less than 1 ms each. More
goes to a thread."""


class _Latest(NamedTuple):
    """How the last two trees differ."""

    before: str
    after: str
    changes: dict[str, FoundChange]


class Looks:
    """Takes the snapshots of one workspace, for one task at a time.

    `is_secret` and `secrets` are those of `Snapshots`. All methods raise `GitProblem` and
    `OSError`; after a cancellation the next snapshot is right all the same.
    """

    def __init__(
        self,
        shadow: ShadowRepository,
        is_secret: Callable[[Path, str], bool],
        secrets: Callable[[], Iterable[str]],
        *,
        learn_from: int = LEARN_FROM,
    ) -> None:
        self._learn_from: Final = learn_from
        self._shadow: Final = shadow
        self._is_secret: Final = is_secret
        self._secrets: Final = secrets
        self._tree = ""
        """The tree of the last snapshot; empty if it must be written again."""
        self._known: KnownWorkspace | None = None
        self._not_in_index: dict[str, GitEntry | None] = {}
        """Files that have changed since git took a snapshot, by path."""
        self._latest: _Latest | None = None
        self._by_git = 0
        self._learn_at = 0.0
        """When to try again to learn the files, in trio's time."""

    @property
    def is_known(self) -> bool:
        """Whether the files are known, which takes memory and watches."""
        return self._known is not None

    def forget(self) -> None:
        """Forget the files, and which objects exist."""
        known, self._known = self._known, None
        self._tree, self._latest, self._by_git = "", None, 0
        if known:
            known.close()

    def drop(self) -> None:
        """Forget the files, and what is not in the index, as the git directory will be removed."""
        self.forget()
        self._not_in_index = {}

    async def flush(self) -> None:
        """Forget the files, and put what only they know into the index, which keeps the objects.

        Call it before objects that nothing refers to are removed. If git fails, the changes are
        dropped: git finds them by the stamps in its index.
        """
        files = self._not_in_index
        self.drop()
        if files and (self._shadow.store / "index").exists():
            await self._shadow.prepare()
            await put_into_index(files, self._shadow)

    async def take(self, *, thorough: bool) -> str:
        """Return the tree of the workspace.

        Without `thorough` the watch is enough, if there is one; see `known_workspace`.
        """
        if self._known:
            with suppress(Unclear, GitProblem, OSError):
                return await self._take(self._known, thorough=thorough)
        return await self._take_by_git()

    async def missed(self) -> tuple[str, str] | None:
        """Compare the stamps of what the watch says is unchanged since the last snapshot.

        Returns the trees before and after if there are changes, which then have no other owner.
        """
        known, before = self._known, self._tree
        if not known or not known.watch or not before:
            return None
        with suppress(Unclear, GitProblem, OSError):
            after = await self._finish(known, partial(known.check_unseen), in_thread=True)
            return (before, after) if after != before else None
        return None

    def changes(self, before: str, after: str) -> tuple[TreeChange, ...] | None:
        """Return how two trees differ; None if only git can tell."""
        latest = self._latest
        if latest is None or (before, after) != (latest.before, latest.after):
            return None
        # Lines that were removed are in old contents, which git has.
        if any(change.before for change in latest.changes.values()):
            return None
        return tuple(
            TreeChange(path, None, one.after, one.lines, None if one.lines is None else 0)
            for path, one in sorted(latest.changes.items(), key=lambda item: os.fsencode(item[0]))
        )

    async def _take(self, known: KnownWorkspace, *, thorough: bool) -> str:
        if known.rules.secrets != self._secret_values():
            self.forget()
            raise Unclear("other values are secret now")
        seen = known.directories_seen()
        directories = None if thorough else seen
        many = directories is None or sum(len(one.files) for one in directories) > QUICK_FILES_MAX
        tree = await self._finish(known, partial(known.check, directories), in_thread=many)
        if known.has_links and directories is not None:
            # The first file with several names: the others may be anywhere.
            tree = await self._finish(known, partial(known.check, None), in_thread=True)
        return tree

    async def _finish(
        self, known: KnownWorkspace, check: Callable[[], Findings], *, in_thread: bool
    ) -> str:
        """Take a snapshot from what `check` finds."""
        before, self._tree, self._latest = self._tree, "", None
        try:
            found = await trio.to_thread.run_sync(check) if in_thread else check()
            while found.unsure:
                known.decide(found, await self._ignored(found.unsure))
            many = found.bytes_to_read > QUICK_BYTES_MAX or len(found.to_read) > QUICK_FILES_MAX
            read = partial(known.read, found)
            if many:
                await trio.to_thread.run_sync(read)
            else:
                read()
            self._tree = known.write_tree() if found.changes or not before else before
        except BaseException:
            self.forget()
            raise
        self._latest = _Latest(before, self._tree, found.changes)
        return self._tree

    async def _take_by_git(self) -> str:
        shadow = self._shadow
        await shadow.prepare()
        if self._not_in_index:
            await put_into_index(self._not_in_index, shadow)
            self._not_in_index = {}
        began_ns = time.time_ns()
        around = surroundings_of(shadow)
        listed = await shadow.run(
            *("ls-files", "-z", "-t", "-o", "-m", "-d", "--exclude-standard"),
            on_files=True,
            timeout_s=LIST_S_MAX,
        )
        if listed:
            removed, stored = await trio.to_thread.run_sync(self._classify, listed)
            await self._stage(removed, "--force-remove")
            await self._stage(stored, "--remove", "--replace")
        # If nothing has changed since the last snapshot, its tree is still right.
        if not self._tree:
            self._tree = await write_tree(shadow)
        self._by_git += 1
        if self._by_git >= self._learn_from and trio.current_time() >= self._learn_at:
            self._learn_at = trio.current_time() + LEARN_AGAIN_S
            names = {os.fsdecode(record[2:]) for record in listed.split(b"\0") if record}
            with suppress(Unclear, GitProblem, OSError):
                await self._learn(around, names, began_ns)
                self._learn_at = 0.0
        return self._tree

    async def _learn(self, around: Surroundings, listed: set[str], began_ns: int) -> None:
        """Get to know the files, after git has listed these names. Raises `Unclear`."""
        shadow = self._shadow
        index = await trio.to_thread.run_sync(read_index, shadow.store)
        if index is None:
            raise Unclear("the index is in another format")
        rules = Rules(self._is_secret, self._secret_values())
        known = KnownWorkspace(shadow.workspace, shadow.store, around, rules, self._not_in_index)
        try:
            if is_local(shadow.workspace):
                with suppress(OSError):
                    known.watch = Watch()
            learner = known_workspace_after(known, index, listed, began_ns)
            await trio.to_thread.run_sync(learner.begin)
            while learner.unsure:
                ignored = await self._ignored(learner.unsure)
                await trio.to_thread.run_sync(learner.decide, ignored)
            learner.finish(self._tree)
        except BaseException:
            known.close()
            raise
        self._known = known

    async def _ignored(self, entries: Iterable[tuple[Directory, str, Kind]]) -> set[str]:
        """Ask git which of these entries are ignored."""
        return await ignored_paths([one.path + name for one, name, _ in entries], self._shadow)

    def _secret_values(self) -> tuple[bytes, ...]:
        return tuple(secret.encode() for secret in self._secrets())

    async def _stage(self, names: Sequence[str], *how: str) -> None:
        if names:
            stdin = b"".join(os.fsencode(name) + b"\0" for name in names)
            packed = ("-c", "core.bigFileThreshold=1") if len(names) >= PACKED_FROM else ()
            arguments = (*packed, "update-index", "--add", *how, "-z", "--stdin")
            # Set before git runs: after a cancellation the state of the index is unknown.
            self._tree = ""
            await self._shadow.run(*arguments, stdin=stdin, on_files=True)

    def _classify(self, listed: bytes) -> tuple[list[str], list[str]]:
        """Split the names that git lists into those to remove from the index and those to add.

        Blocks for as long as the disk takes, so it runs in a thread. Raises `GitProblem` if there
        is too much.
        """
        workspace = self._shadow.workspace
        files = {(r[:1], os.fsdecode(r[2:])) for r in listed.split(b"\0") if r}
        known = {name for tag, name in files if tag != b"?"}
        # git lists a repository inside the workspace as a name with a trailing slash.
        names = {name for _, name in files if not name.endswith("/") and not _is_temporary(name)}
        sizes = {name: _size(workspace / name) for name in names}
        wanted = [
            name
            for name in sorted(names)
            if sizes[name] <= FILE_BYTES_MAX and not self._is_secret(workspace, name)
        ]
        taken_bytes = sum(sizes[name] for name in wanted)
        if taken_bytes > NEW_BYTES_MAX or len(wanted) > NEW_FILES_MAX:
            raise GitProblem(
                f"{len(wanted)} files with {taken_bytes // 1024**2} MiB are too much for a "
                "snapshot. List those that need none in .gitignore."
            )
        excluded = files_to_exclude(workspace, wanted, self._secret_values())
        stored = [name for name in wanted if name not in excluded]
        return sorted(known.difference(stored)), stored


def _is_temporary(name: str) -> bool:
    return name.rpartition("/")[2].startswith(TEMPORARY)


def _size(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
