"""Takes the snapshots of one workspace: by git, or by stamps once the workspace is known.

git needs three processes for a change of one file. After `LEARN_FROM` snapshots `KnownWorkspace`
takes over, and git takes only the snapshots for which stamps are not enough.
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
from tiller_daemon.snapshots.directories import Entry
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
from tiller_daemon.snapshots.learning import Learner
from tiller_daemon.snapshots.shadow_repository import GitProblem, ShadowRepository
from tiller_daemon.snapshots.surroundings import Surroundings, surroundings_of
from tiller_daemon.snapshots.watch import Watch, is_local

NEW_BYTES_MAX: Final = 512 * 1024 * 1024
NEW_FILES_MAX: Final = 100_000
"""The most files and bytes that one snapshot adds. A workspace with more gets no snapshots."""

LIST_S_MAX: Final = 15.0
"""How long listing the workspace may take; 5,000 files take 0.02 s. If the workspace is a whole
home directory, the first call that may write waits this long, and there are no snapshots."""

PACKED_FROM: Final = 200
"""If a snapshot has at least this many new files, they go into one pack. Writing 5,000 loose
objects takes four times as long."""

LEARN_FROM: Final = 3
"""How many snapshots git takes until the workspace is learned. Learning takes as long as two or
three snapshots, so it is not worthwhile for a single step."""

LEARN_AGAIN_S: Final = 60.0
"""How long to wait after an attempt to learn the workspace has failed."""

QUICK_FILES_MAX: Final = 200
QUICK_BYTES_MAX: Final = 256 * 1024
"""The most files to compare and bytes to read on the event loop: less than 1 ms each. A thread does
more."""


class _Latest(NamedTuple):
    """How the last two trees differ."""

    before: str
    after: str
    changes: dict[str, FoundChange]


class Looks:
    """Takes the snapshots of one workspace, for one task at a time.

    `is_secret` and `secrets` are described at `Snapshots`. All methods raise `GitProblem` and
    `OSError`. Even after a cancellation the next snapshot is correct.
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
        """Forget the known files and the last tree."""
        known, self._known = self._known, None
        self._tree, self._latest, self._by_git = "", None, 0
        if known:
            known.close()

    def drop(self) -> None:
        """Forget the known files and their changes, because the git directory will be removed."""
        self.forget()
        self._not_in_index = {}

    async def flush(self) -> None:
        """Forget the known files, and put their changes into the index, which keeps the objects.

        Call this before unreferenced objects are removed. If git fails, the changes are dropped,
        and git finds them again by the stamps in its index.
        """
        files = self._not_in_index
        self.drop()
        if files and (self._shadow.store / "index").exists():
            await self._shadow.prepare()
            await put_into_index(files, self._shadow)

    async def take(self, *, thorough: bool) -> str:
        """Take a snapshot and return the id of its tree.

        Without `thorough`, only directories where the watch saw changes are checked, if there is a
        watch; see `known_workspace`.
        """
        if self._known:
            with suppress(Unclear, GitProblem, OSError):
                return await self._take(self._known, thorough=thorough)
        return await self._take_by_git()

    async def missed(self) -> tuple[str, str] | None:
        """Find changes since the last snapshot that the watch has missed, by comparing stamps.

        Returns the trees before and after these changes; None if there are none.
        """
        known, before = self._known, self._tree
        if not known or not known.watch or not before:
            return None
        with suppress(Unclear, GitProblem, OSError):
            after = await self._finish(known, known.check_unseen, in_thread=True)
            return (before, after) if after != before else None
        return None

    def changes(self, before: str, after: str) -> tuple[TreeChange, ...] | None:
        """Return the files that differ between two trees; None if only git can tell."""
        latest = self._latest
        if latest is None or (before, after) != (latest.before, latest.after):
            return None
        # Only git can count removed lines, as it has the old contents.
        if any(change.before for change in latest.changes.values()):
            return None
        return tuple(
            TreeChange(path, None, one.after, one.lines, None if one.lines is None else 0)
            for path, one in sorted(latest.changes.items(), key=lambda item: os.fsencode(item[0]))
        )

    async def _take(self, known: KnownWorkspace, *, thorough: bool) -> str:
        if known.rules.secrets != self._secret_values():
            self.forget()
            raise Unclear("the set of secret values has changed")
        seen = known.directories_seen()
        directories = None if thorough else seen
        many = directories is None or sum(len(one.files) for one in directories) > QUICK_FILES_MAX
        tree = await self._finish(known, partial(known.check, directories), in_thread=many)
        if known.has_links and directories is not None:
            # A file with several names has appeared, and the other names may be anywhere.
            tree = await self._finish(known, partial(known.check, None), in_thread=True)
        return tree

    async def _finish(
        self, known: KnownWorkspace, check: Callable[[], Findings], *, in_thread: bool
    ) -> str:
        """Take a snapshot from the findings of `check`."""
        before, self._tree, self._latest = self._tree, "", None
        try:
            found = await trio.to_thread.run_sync(check) if in_thread else check()
            while found.unsure:
                known.decide(found, await self._ignored(found.unsure))
            if found.bytes_to_read > QUICK_BYTES_MAX or len(found.to_read) > QUICK_FILES_MAX:
                await trio.to_thread.run_sync(known.read, found)
            else:
                known.read(found)
            self._tree = known.write_tree() if found.changes or not before else before
        except BaseException:
            # The findings may be half used, so the next look starts from nothing.
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
        """Learn the files of the workspace, after git has `listed` names. Raises `Unclear`."""
        shadow = self._shadow
        index = await trio.to_thread.run_sync(read_index, shadow.store)
        if index is None:
            raise Unclear("the index is in another format")
        rules = Rules(self._is_secret, self._secret_values())
        known = KnownWorkspace(shadow.workspace, shadow.store, around, rules, self._not_in_index)
        try:
            # inotify does not see what other machines change.
            if is_local(shadow.workspace):
                with suppress(OSError):
                    known.watch = Watch()
            learner = Learner(known, index, listed, began_ns)
            await trio.to_thread.run_sync(learner.begin)
            while learner.unsure:
                ignored = await self._ignored(learner.unsure)
                await trio.to_thread.run_sync(learner.decide, ignored)
            learner.finish(self._tree)
        except BaseException:
            known.close()
            raise
        self._known = known

    async def _ignored(self, entries: Iterable[Entry]) -> set[str]:
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
        """Return the listed names to remove from the index, and those to add.

        Blocks for as long as the disk takes, so it runs in a thread. Raises `GitProblem` if there
        are too many files or bytes to add.
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
                f"{len(wanted)} files ({taken_bytes // 1024**2} MiB in total) are too much for a "
                "snapshot. In .gitignore, list the files that need no snapshots."
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
