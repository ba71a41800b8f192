"""Snapshots of workspaces: what every file was before and after a step, and getting back there.

Each workspace has a git directory of the daemon's own (`shadow`), which all sessions that work
there share, one at a time. A snapshot is a tree in it, held by a reference of its session. Not in
it: what the project's `.gitignore` leaves out, what is no plain file or link, files that are
larger than `FILE_BYTES_MAX`, files of secrets, and git repositories inside the workspace.
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

from tiller_daemon.files.restore import (
    FILE_BYTES_MAX,
    FileRestore,
    GitEntry,
    files_to_exclude,
    restore_files,
    write_durably,
)
from tiller_daemon.files.whole_files import TEMPORARY
from tiller_daemon.private import make_directory, open_private
from tiller_daemon.snapshots.git_trees import TreeChange, compare, contents, differences, write_tree
from tiller_daemon.snapshots.shadow_repository import GitProblem, ShadowRepository

log = structlog.get_logger()

Read = TypeVar("Read")

NEW_BYTES_MAX: Final = 512 * 1024 * 1024
NEW_FILES_MAX: Final = 100_000
"""Most that one snapshot takes in; a workspace with more to keep is too large for snapshots."""

LIST_S_MAX: Final = 15.0
"""How long looking through the workspace may take; 5,000 files take 0.02 s. In somebody's whole
home directory the first call that may write waits so long, and then there are no snapshots."""

TRY_AGAIN_S: Final = 600.0
"""How long a workspace goes without snapshots after one failed: each try may take a minute."""

KEEP_S: Final = 30 * 86_400.0
"""How long the snapshots of a session that is still there can be gone back to."""

PACKED_FROM: Final = 200
"""From so many new files on they go into one pack, as git does with large ones: to write 5,000
files of their own takes four times as long."""

LOOSE_FILES_MAX: Final = 6_700
PACKS_MAX: Final = 50
"""As many loose objects, or packs, git itself takes for a reason to clean up (`gc.auto`)."""

CLEAN_S_MAX: Final = 600.0
"""How long packing one workspace's snapshots may take."""

CONTENTS_AT_ONCE: Final = 32
"""How many files are held in memory while they are put back."""

JOURNAL: Final = "restoring"
_REFERENCES: Final = "refs/tiller"


class SnapshotProblem(Exception):
    """No snapshot could be taken or read; the message is a clause. `known`: it was said before."""

    def __init__(self, message: str, *, known: bool = False) -> None:
        super().__init__(message)
        self.known = known


class _Journal(msgspec.Struct, frozen=True):
    """What is being put back; `path`s as bytes, as they need not be text."""

    workspace: str
    submission_id: str
    restores: list[tuple[bytes, GitEntry | None, GitEntry | None]]


class _Store:
    """The snapshots of one workspace. `lock` is held by whoever uses it."""

    def __init__(self, shadow: ShadowRepository, lock: trio.Lock) -> None:
        self.shadow: Final = shadow
        self.lock: Final = lock
        self.tree = ""
        self.failed = ""
        self.failed_at = 0.0


class Snapshots:
    """The snapshots of all workspaces, in `directory`.

    `variables` are the environment of git, `is_secret` says of a workspace and the path of a file
    in it that the file is never kept, `secrets` are values that no file that is kept may hold
    (G13). `is_committed` says whether the log has a submission.
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
        """Note how the files are; returns the id of the tree. Raises `SnapshotProblem`."""
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
        """The files that differ between two trees, by path; raises `SnapshotProblem`."""
        return await self._read(workspace, partial(compare, before, after))

    async def diff(self, workspace: str, before: str, after: str, paths: Sequence[str]) -> str:
        """The differences of these files as a unified diff; raises `SnapshotProblem`."""
        return await self._read(workspace, partial(differences, before, after, paths))

    async def restore(
        self, workspace: str, restores: Sequence[FileRestore], submission_id: str
    ) -> tuple[str, ...]:
        """Do the moves whose files are as expected; returns the paths of the others.

        What is done is undone at the next start, or before the next time, unless `confirm_restore` is
        called or `is_committed` says so of the submission. Raises `SnapshotProblem` when nothing
        was done.
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
        """Say that what was put back is in the log."""
        with suppress(OSError):
            (self._store(workspace).shadow.store / JOURNAL).unlink(missing_ok=True)

    async def repair(self) -> None:
        """Undo what a daemon that was killed had half put back; call at start."""
        for path in self._directory.glob(f"*.git/{JOURNAL}"):
            try:
                journal = msgspec.msgpack.decode(path.read_bytes(), type=_Journal)
                store = self._store(journal.workspace)
                async with store.lock:
                    await store.shadow.prepare()
                    await self._undo_unfinished(store)
            except (msgspec.MsgspecError, GitProblem, OSError) as error:
                log.error("restore_not_undone", journal=str(path), reason=str(error))

    def forget(self, session_id: str) -> None:
        """Let go of a deleted session's snapshots; `run` removes what nobody needs."""
        for held in self._directory.glob(f"*.git/{_REFERENCES}/{session_id}"):
            shutil.rmtree(held, ignore_errors=True)
        self._dropped.set()

    async def run(self, exists: Callable[[str], Awaitable[bool]]) -> None:
        """Remove what nobody needs any more: now, and whenever a session was deleted."""
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
            gone, kept = await trio.to_thread.run_sync(self._classify, store.shadow, listed)
            await self._stage(store, gone, "--force-remove")
            await self._stage(store, kept, "--remove", "--replace")
        if not store.tree:
            store.tree = await write_tree(store.shadow)
        return store.tree

    async def _stage(self, store: _Store, names: Sequence[str], *how: str) -> None:
        if names:
            stdin = b"".join(os.fsencode(name) + b"\0" for name in names)
            packed = ("-c", "core.bigFileThreshold=1") if len(names) >= PACKED_FROM else ()
            arguments = (*packed, "update-index", "--add", *how, "-z", "--stdin")
            store.tree = ""  # before: who is cancelled does not know whether git was done
            await store.shadow.run(*arguments, stdin=stdin, on_files=True)

    def _classify(self, shadow: ShadowRepository, listed: bytes) -> tuple[list[str], list[str]]:
        """What is to be forgotten and what is to be kept, of the names that git lists.

        Blocks for as long as the disk takes: in a thread. Raises `GitProblem` when it is too much.
        """
        files = {(r[:1], os.fsdecode(r[2:])) for r in listed.split(b"\0") if r}
        known = {name for tag, name in files if tag != b"?"}
        # A name with a slash at its end is a repository inside the workspace.
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
                f"{len(wanted)} files with {taken_bytes // 1024**2} MiB are too much: name what "
                "need not be kept in .gitignore"
            )
        secrets = [secret.encode() for secret in self._secrets()]
        held = files_to_exclude(shadow.workspace, wanted, secrets)
        kept = [name for name in wanted if name not in held]
        return sorted(known.difference(kept)), kept

    def _add_reference(self, store: _Store, tree: str, session_id: str) -> None:
        """Hold the tree for as long as the session may want to go back to it."""
        path = store.shadow.store / _REFERENCES / session_id / tree
        make_directory(path.parent)
        with open(path, "w", opener=open_private) as file:
            file.write(f"{tree}\n")

    def _write_journal(
        self, store: _Store, restores: Sequence[FileRestore], submission_id: str
    ) -> None:
        told = [(os.fsencode(one.path), one.expected, one.wanted) for one in restores]
        journal = _Journal(str(store.shadow.workspace), submission_id, told)
        write_durably(store.shadow.store / JOURNAL, msgspec.msgpack.encode(journal))

    async def _undo_unfinished(self, store: _Store) -> None:
        """Undo what was put back for a submission that is not in the log."""
        path = store.shadow.store / JOURNAL
        if not path.exists():
            return
        journal = msgspec.msgpack.decode(path.read_bytes(), type=_Journal)
        if not await self._is_committed(journal.submission_id):
            restores = [FileRestore(os.fsdecode(path), *both) for path, *both in journal.restores]
            conflicts = await self._restore(store, [one.reversed() for one in restores])
            log.warning("restore_undone", workspace=journal.workspace, conflicts=len(conflicts))
        path.unlink()

    async def _restore(self, store: _Store, restores: Sequence[FileRestore]) -> tuple[str, ...]:
        """Removals first, over all of them: see `restore_files`."""
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
        """The sessions that hold snapshots. Blocks, as there may be thousands."""
        return {held.name for held in self._directory.glob(f"*.git/{_REFERENCES}/*")}

    def _drop_references(self, gone: frozenset[str]) -> bool:
        """Let go of what belongs to `gone` sessions, and of what is old; whether there was any."""
        dropped = False
        for held in self._directory.glob(f"*.git/{_REFERENCES}/*"):
            if held.name in gone:
                shutil.rmtree(held, ignore_errors=True)
                dropped = True
                continue
            with suppress(FileNotFoundError):  # a session that is deleted just now
                for reference in held.iterdir():
                    if reference.stat().st_mtime < time.time() - KEEP_S:
                        reference.unlink(missing_ok=True)
                        dropped = True
        return dropped

    async def _clean(self, path: Path, *, everything: bool) -> None:
        """Pack what is held and remove the rest, where there is much to gain."""
        async with self._locks.setdefault(path, trio.Lock()):
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
    """Whether there is much to gain; loose files by one of the 256 folders that they are in."""
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
