"""Snapshots of workspaces: every file before and after a step, and how to go back.

Each workspace has a git repository of the daemon (`shadow_repository`). All sessions in that
workspace share it, one at a time. A snapshot is a tree, kept alive by a reference of its session.
It leaves out what `.gitignore` names, anything but regular files and links, files larger than
`FILE_BYTES_MAX`, files with secrets, and git repositories inside the workspace.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import structlog
import trio

from tiller_daemon.files.journal import read_journal, write_journal
from tiller_daemon.files.restore import (
    FILE_BYTES_MAX,
    FileRestore,
    GitEntry,
    restore_files,
)
from tiller_daemon.files.whole_files import TEMPORARY
from tiller_daemon.private import make_directory, open_private
from tiller_daemon.snapshots.exclusions import files_to_exclude
from tiller_daemon.snapshots.git_trees import TreeChange, compare, contents, differences, write_tree
from tiller_daemon.snapshots.shadow_repository import GitProblem, ShadowRepository

log = structlog.get_logger()

Read = TypeVar("Read")

NEW_BYTES_MAX: Final = 512 * 1024 * 1024
NEW_FILES_MAX: Final = 100_000
"""The most that one snapshot adds. A workspace with more new data gets no snapshots."""

LIST_S_MAX: Final = 15.0
"""How long listing the workspace may take; 5,000 files take 0.02 s. In a whole home directory the
first call that may write waits this long, and then there are no snapshots."""

TRY_AGAIN_S: Final = 600.0
"""How long a workspace gets no snapshots after one failed, as each attempt may take a minute."""

KEEP_S: Final = 30 * 86_400.0
"""How long snapshots are kept while their session exists."""

PACKED_FROM: Final = 200
"""From this many new files on, all go into one pack, as git does with large files. Writing 5,000
loose objects takes four times as long."""

LOOSE_FILES_MAX: Final = 6_700
PACKS_MAX: Final = 50
"""The numbers of loose objects and packs above which git itself cleans up (`gc.auto`)."""

CLEAN_S_MAX: Final = 600.0
"""How long repacking the snapshots of one workspace may take."""

CONTENTS_AT_ONCE: Final = 32
"""How many files are in memory at once during a restore."""

JOURNAL: Final = "restoring"
"""The file name of the journal of a restore, in the git directory."""
_REFERENCES: Final = "refs/tiller"


class SnapshotProblem(Exception):
    """A snapshot can't be taken or read; the message is a clause.

    `known` means that the same problem was reported before.
    """

    def __init__(self, message: str, *, known: bool = False) -> None:
        super().__init__(message)
        self.known = known


class _Journal(msgspec.Struct, frozen=True):
    """A restore that was begun; paths are bytes, as they may not be valid text."""

    workspace: str
    submission_id: str
    restores: list[tuple[bytes, GitEntry | None, GitEntry | None]]


class _Store:
    """The snapshots of one workspace; whoever uses them holds `lock`."""

    def __init__(self, shadow: ShadowRepository, lock: trio.Lock) -> None:
        self.shadow: Final = shadow
        self.lock: Final = lock
        self.tree = ""
        """The tree of the index; empty if it must be written again."""
        self.failed = ""
        """Why the last snapshot failed; empty if it did not."""
        self.failed_at = 0.0
        """In trio's time."""


class Snapshots:
    """The snapshots of all workspaces, in `directory`.

    `variables` are the environment of git. `is_secret` tells by workspace and path which files are
    never stored, and no stored file contains one of the values of `secrets`. `is_committed` tells
    whether the log has a submission.
    """

    def __init__(
        self,
        directory: Path,
        variables: Mapping[str, str],
        is_secret: Callable[[Path, str], bool],
        secrets: Callable[[], Iterable[str]],
        is_committed: Callable[[str], Awaitable[bool]],
    ) -> None:
        self._directory: Final = directory
        self._variables: Final = variables
        self._is_secret: Final = is_secret
        self._secrets: Final = secrets
        self._is_committed: Final = is_committed
        self._stores: dict[Path, _Store] = {}
        self._locks: dict[Path, trio.Lock] = {}
        self._dropped = trio.Event()

    async def take(self, workspace: str, session_id: str) -> str:
        """Take a snapshot and return the id of its tree. Raises `SnapshotProblem`."""
        store = self._store(workspace)
        if store.failed and trio.current_time() < store.failed_at + TRY_AGAIN_S:
            raise SnapshotProblem(store.failed, known=True)
        async with store.lock:
            try:
                await store.shadow.prepare()
                tree = await self._take(store)
                self._add_reference(store, tree, session_id)
            except (GitProblem, OSError) as error:
                store.failed, store.failed_at, store.tree = str(error), trio.current_time(), ""
                raise SnapshotProblem(store.failed) from error
        store.failed = ""
        return tree

    async def changes(self, workspace: str, before: str, after: str) -> tuple[TreeChange, ...]:
        """Return the files that differ between two trees, by path; raises `SnapshotProblem`."""
        return await self._read(workspace, partial(compare, before, after))

    async def diff(self, workspace: str, before: str, after: str, paths: Sequence[str]) -> str:
        """Return the differences of these files as a unified diff; raises `SnapshotProblem`."""
        return await self._read(workspace, partial(differences, before, after, paths))

    async def restore(
        self, workspace: str, restores: Sequence[FileRestore], submission_id: str
    ) -> tuple[str, ...]:
        """Restore the files that are as expected; returns the paths of the others.

        The restore is undone at the next start, or before the next restore, unless
        `confirm_restore` was called or the log has the submission. Raises `SnapshotProblem` if
        nothing was done.
        """
        store = self._store(workspace)
        async with store.lock:
            try:
                await store.shadow.prepare()
                await self._undo_unfinished(store)
                self._write_journal(store, restores, submission_id)
            except (GitProblem, OSError) as error:
                raise SnapshotProblem(str(error)) from error
            return await self._restore(store, restores)

    def confirm_restore(self, workspace: str) -> None:
        """Commit a restore: its event is in the log."""
        with suppress(OSError):
            (self._store(workspace).shadow.store / JOURNAL).unlink(missing_ok=True)

    async def repair(self) -> None:
        """Undo the restores that were in progress when the daemon was killed; call at start."""
        for path in self._directory.glob(f"*.git/{JOURNAL}"):
            try:
                # An incomplete journal is left to the next restore there, which removes it.
                if journal := read_journal(path, _Journal):
                    store = self._store(journal.workspace)
                    async with store.lock:
                        await store.shadow.prepare()
                        await self._undo_unfinished(store)
            except (GitProblem, OSError) as error:
                log.error("restore_not_undone", journal=str(path), reason=str(error))

    def forget(self, session_id: str) -> None:
        """Drop the snapshots of a deleted session; `run` then frees the space."""
        for references in self._directory.glob(f"*.git/{_REFERENCES}/{session_id}"):
            shutil.rmtree(references, ignore_errors=True)
        self._dropped.set()

    async def run(self, exists: Callable[[str], Awaitable[bool]]) -> None:
        """Delete unreferenced snapshots, now and whenever a session was deleted."""
        names = await trio.to_thread.run_sync(self._sessions_with_snapshots)
        gone = frozenset([name for name in names if not await exists(name)])
        dropped = await trio.to_thread.run_sync(self._drop_references, gone)
        while True:
            for path in sorted(self._directory.glob("*.git")):
                await self._clean(path, everything=dropped)
            await self._dropped.wait()
            self._dropped = trio.Event()
            dropped = True

    def _store(self, workspace: str) -> _Store:
        path = Path(os.path.realpath(workspace))
        if path not in self._stores:
            name = hashlib.blake2b(os.fsencode(path), digest_size=12).hexdigest()
            shadow = ShadowRepository(self._directory / f"{name}.git", path, self._variables)
            lock = self._locks.setdefault(shadow.store, trio.Lock())
            self._stores[path] = _Store(shadow, lock)
        return self._stores[path]

    async def _read(
        self, workspace: str, read: Callable[[ShadowRepository], Awaitable[Read]]
    ) -> Read:
        store = self._store(workspace)
        async with store.lock:
            try:
                return await read(store.shadow)
            except GitProblem as error:
                raise SnapshotProblem(str(error)) from error

    async def _take(self, store: _Store) -> str:
        listed = await store.shadow.run(
            *("ls-files", "-z", "-t", "-o", "-m", "-d", "--exclude-standard"),
            on_files=True,
            timeout_s=LIST_S_MAX,
        )
        if listed:
            removed, stored = await trio.to_thread.run_sync(self._classify, store.shadow, listed)
            await self._stage(store, removed, "--force-remove")
            await self._stage(store, stored, "--remove", "--replace")
        # If nothing has changed since the last snapshot, its tree is still right.
        if not store.tree:
            store.tree = await write_tree(store.shadow)
        return store.tree

    async def _stage(self, store: _Store, names: Sequence[str], *how: str) -> None:
        if names:
            stdin = b"".join(os.fsencode(name) + b"\0" for name in names)
            packed = ("-c", "core.bigFileThreshold=1") if len(names) >= PACKED_FROM else ()
            arguments = (*packed, "update-index", "--add", *how, "-z", "--stdin")
            # Set before git runs: after a cancellation the state of the index is unknown.
            store.tree = ""
            await store.shadow.run(*arguments, stdin=stdin, on_files=True)

    def _classify(self, shadow: ShadowRepository, listed: bytes) -> tuple[list[str], list[str]]:
        """Split the names that git lists into those to remove from the index and those to add.

        Blocks for as long as the disk takes, so it runs in a thread. Raises `GitProblem` if there
        is too much.
        """
        files = {(r[:1], os.fsdecode(r[2:])) for r in listed.split(b"\0") if r}
        known = {name for tag, name in files if tag != b"?"}
        # git lists a repository inside the workspace as a name with a trailing slash.
        names = {name for _, name in files if not name.endswith("/") and not _is_temporary(name)}
        sizes = {name: _size(shadow.workspace / name) for name in names}
        wanted = [
            name
            for name in sorted(names)
            if sizes[name] <= FILE_BYTES_MAX and not self._is_secret(shadow.workspace, name)
        ]
        taken_bytes = sum(sizes[name] for name in wanted)
        if taken_bytes > NEW_BYTES_MAX or len(wanted) > NEW_FILES_MAX:
            raise GitProblem(
                f"{len(wanted)} files with {taken_bytes // 1024**2} MiB are too much: list what "
                "needs no snapshots in .gitignore"
            )
        secrets = [secret.encode() for secret in self._secrets()]
        excluded = files_to_exclude(shadow.workspace, wanted, secrets)
        stored = [name for name in wanted if name not in excluded]
        return sorted(known.difference(stored)), stored

    def _add_reference(self, store: _Store, tree: str, session_id: str) -> None:
        """Keep the tree from being pruned for as long as the session may go back to it."""
        path = store.shadow.store / _REFERENCES / session_id / tree
        make_directory(path.parent)
        with open(path, "w", opener=open_private) as file:
            file.write(f"{tree}\n")

    def _write_journal(
        self, store: _Store, restores: Sequence[FileRestore], submission_id: str
    ) -> None:
        recorded = [(os.fsencode(one.path), one.expected, one.wanted) for one in restores]
        journal = _Journal(str(store.shadow.workspace), submission_id, recorded)
        write_journal(store.shadow.store / JOURNAL, journal)

    async def _undo_unfinished(self, store: _Store) -> None:
        """Undo a restore for a submission that is not in the log."""
        path = store.shadow.store / JOURNAL
        journal = read_journal(path, _Journal)
        if journal and not await self._is_committed(journal.submission_id):
            restores = [FileRestore(os.fsdecode(path), *both) for path, *both in journal.restores]
            conflicts = await self._restore(store, [one.reversed() for one in restores])
            log.warning("restore_undone", workspace=journal.workspace, left=len(conflicts))
        path.unlink(missing_ok=True)

    async def _restore(self, store: _Store, restores: Sequence[FileRestore]) -> tuple[str, ...]:
        """Restore in batches; removals come first, so files and directories can swap places."""
        conflicts: list[str] = []
        ordered = sorted(restores, key=lambda one: (one.wanted is not None, one.path))
        for start in range(0, len(ordered), CONTENTS_AT_ONCE):
            some = ordered[start : start + CONTENTS_AT_ONCE]
            wanted = await contents([m.wanted.blob for m in some if m.wanted], store.shadow)
            conflicts += await trio.to_thread.run_sync(
                restore_files, store.shadow.workspace, some, wanted
            )
        return tuple(conflicts)

    def _sessions_with_snapshots(self) -> set[str]:
        """Return the ids of all sessions with snapshots. Blocks, as there may be thousands."""
        return {references.name for references in self._directory.glob(f"*.git/{_REFERENCES}/*")}

    def _drop_references(self, gone: frozenset[str]) -> bool:
        """Drop references of `gone` sessions and old ones; returns whether there were any."""
        dropped = False
        for references in self._directory.glob(f"*.git/{_REFERENCES}/*"):
            if references.name in gone:
                shutil.rmtree(references, ignore_errors=True)
                dropped = True
                continue
            with suppress(FileNotFoundError):  # The session may be deleted meanwhile.
                for reference in references.iterdir():
                    if reference.stat().st_mtime < time.time() - KEEP_S:
                        reference.unlink(missing_ok=True)
                        dropped = True
        return dropped

    async def _clean(self, path: Path, *, everything: bool) -> None:
        """Repack and prune a repository if that is worthwhile; delete it if it is unused."""
        async with self._locks.setdefault(path, trio.Lock()):
            # A tree that only the cache refers to is pruned.
            for store in self._stores.values():
                if store.shadow.store == path:
                    store.tree = ""
            if not any((path / _REFERENCES).glob("*/*")):
                await trio.to_thread.run_sync(shutil.rmtree, path, True)  # noqa: FBT003
                return
            if not everything and not _is_untidy(path):
                return
            try:
                shadow = ShadowRepository(path, path, self._variables)
                await shadow.run("repack", "-a", "-d", "-q", timeout_s=CLEAN_S_MAX)
                await shadow.run("prune", "--expire=now", timeout_s=CLEAN_S_MAX)
            except GitProblem as error:
                log.warning("snapshots_not_cleaned", store=str(path), reason=str(error))


def _is_untidy(store: Path) -> bool:
    """Whether cleaning is worthwhile; estimates loose objects from one of their 256 folders."""
    loose = 256 * sum(1 for _ in store.glob("objects/17/*"))
    packs = sum(1 for _ in store.glob("objects/pack/*.pack"))
    return loose > LOOSE_FILES_MAX or packs > PACKS_MAX


def _is_temporary(name: str) -> bool:
    return name.rpartition("/")[2].startswith(TEMPORARY)


def _size(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
