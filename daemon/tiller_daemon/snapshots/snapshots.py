"""Snapshots of workspaces: they store the files before and after a step, and restore them.

For each workspace the daemon has its own git repository (`shadow_repository`). All sessions in the
workspace share this repository, one at a time. A snapshot is a git tree that is kept as long as a
session refers to it. Snapshots leave out ignored files, anything but regular files and links, files
larger than `FILE_BYTES_MAX`, files with secrets, and git repositories inside the workspace.
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
    FileRestore,
    GitEntry,
    restore_files,
)
from tiller_daemon.private import make_directory, open_private
from tiller_daemon.snapshots.exclusions import Exclusions, is_in
from tiller_daemon.snapshots.git_trees import TreeChange, compare, contents, differences
from tiller_daemon.snapshots.origins import foreign_changes
from tiller_daemon.snapshots.shadow_repository import GitFailed, GitProblem, ShadowRepository
from tiller_daemon.snapshots.taking import Taken, Taker

log = structlog.get_logger()

Read = TypeVar("Read")

KEEP_S: Final = 30 * 86_400.0
"""How long an existing session's snapshots are kept."""

LOOSE_FILES_MAX: Final = 6_700
PACKS_MAX: Final = 50
"""The numbers of loose objects and packs above which git itself cleans up (`gc.auto`)."""

CLEAN_S_MAX: Final = 600.0
"""How long repacking the snapshots of one workspace may take."""

CONTENTS_AT_ONCE: Final = 32
"""How many files are in memory at once during a restore."""

JOURNAL: Final = "restoring"
"""The name of a restore's journal, a file in the git directory."""
_REFERENCES: Final = "refs/tiller"


class SnapshotProblem(Exception):
    """A snapshot can't be taken or read; the message says why, in sentences."""


class _Journal(msgspec.Struct, frozen=True):
    """A restore that has begun; its paths are bytes, as they may not be valid text."""

    workspace: str
    submission_id: str
    restores: list[tuple[bytes, GitEntry | None, GitEntry | None]]


class _Store:
    """The snapshots of one workspace; hold `lock` while using them."""

    def __init__(self, shadow: ShadowRepository, taker: Taker, lock: trio.Lock) -> None:
        self.shadow: Final = shadow
        self.taker: Final = taker
        self.lock: Final = lock


class Snapshots:
    """The snapshots of all workspaces, in `directory`.

    `variables` are git's environment. `is_secret` tells, from a workspace and a path, whether a
    file must never be stored. No stored file contains a value that `secrets` returns.
    `is_committed` tells from its id whether a submission is in the log. `own` are the daemon's own
    directories, which no snapshot contains.
    """

    def __init__(
        self,
        directory: Path,
        variables: Mapping[str, str],
        is_secret: Callable[[Path, str], bool],
        secrets: Callable[[], Iterable[str]],
        is_committed: Callable[[str], Awaitable[bool]],
        own: Iterable[Path] = (),
    ) -> None:
        self._directory: Final = directory
        self._variables: Final = variables
        self._excluded: Final = Exclusions(
            is_secret, tuple(Path(os.path.realpath(one)) for one in (*own, directory))
        )
        self._secrets: Final = secrets
        self._is_committed: Final = is_committed
        self._stores: dict[Path, _Store] = {}
        self._locks: dict[Path, trio.Lock] = {}
        self._dropped = trio.Event()

    async def take(self, workspace: str, session_id: str, *, left_out: bool = False) -> Taken:
        """Take a snapshot; with `left_out`, also list what it leaves out.

        Raises `SnapshotProblem`.
        """
        store = self._store(workspace)
        async with store.lock:
            try:
                taken = await store.taker.take(left_out=left_out)
                self._add_reference(store, taken.tree, session_id)
            except (GitProblem, OSError) as error:
                store.taker.forget()
                raise SnapshotProblem(_reason(error)) from error
        return taken

    async def foreign_changes(
        self,
        workspace: str,
        before: Taken,
        after: Taken,
        calls_ns: tuple[int, int],
        changes: Sequence[TreeChange],
    ) -> tuple[str, ...]:
        """Return the changed files that calls between two snapshots may not have changed.

        `calls_ns` are the calls' beginning, by `file_time_ns`, and end. Raises `SnapshotProblem`.
        """
        find = partial(foreign_changes, before, after, calls_ns, changes)
        return await self._read(workspace, find)

    async def changes(self, workspace: str, before: str, after: str) -> tuple[TreeChange, ...]:
        """Return the files that differ between two trees, by path; raises `SnapshotProblem`."""
        return await self._read(workspace, partial(compare, before, after))

    async def diff(self, workspace: str, before: str, after: str, paths: Sequence[str]) -> str:
        """Return a unified diff of these files between two trees; raises `SnapshotProblem`."""
        return await self._read(workspace, partial(differences, before, after, paths))

    async def restore(
        self, workspace: str, restores: Sequence[FileRestore], submission_id: str
    ) -> dict[str, str]:
        """Restore the files that have their expected content; return the paths of the others.

        Each path comes with a clause that says why the file could not be written, or with "" if
        something else has changed the file.

        The restore is undone at the daemon's next start or before the next restore, unless
        `confirm_restore` was called or the log has the submission. Raises `SnapshotProblem` if
        nothing was done.
        """
        store = self._store(workspace)
        recorded = [(os.fsencode(one.path), one.expected, one.wanted) for one in restores]
        journal = _Journal(str(store.shadow.workspace), submission_id, recorded)
        async with store.lock:
            try:
                await store.shadow.prepare()
                await self._undo_unfinished(store)
                write_journal(store.shadow.store / JOURNAL, journal)
            except (GitProblem, OSError) as error:
                raise SnapshotProblem(_reason(error)) from error
            return await self._restore(store, restores)

    def confirm_restore(self, workspace: str) -> None:
        """Make a restore final, because its event is in the log."""
        with suppress(OSError):
            (self._store(workspace).shadow.store / JOURNAL).unlink(missing_ok=True)

    async def repair(self) -> None:
        """Undo restores that were unfinished when the daemon was killed; call this at the start."""
        for path in self._directory.glob(f"*.git/{JOURNAL}"):
            try:
                # The next restore in the workspace removes an incomplete journal.
                if journal := read_journal(path, _Journal):
                    store = self._store(journal.workspace)
                    async with store.lock:
                        await store.shadow.prepare()
                        await self._undo_unfinished(store)
            except (GitProblem, OSError) as error:
                log.error("restore_not_undone", journal=str(path), reason=_reason(error))

    def forget(self, session_id: str) -> None:
        """Drop the references of a deleted session to its snapshots, so that `run` deletes them."""
        for references in self._directory.glob(f"*.git/{_REFERENCES}/{session_id}"):
            shutil.rmtree(references, ignore_errors=True)
        self._dropped.set()

    async def run(self, exists: Callable[[str], Awaitable[bool]], newest: float) -> None:
        """Delete old and unreferenced snapshots now, and unreferenced ones after each deletion.

        `newest` is when anything last happened in any session, in Unix seconds. A snapshot's age
        is counted up to then, so that a wrong clock deletes nothing. Never returns.
        """
        oldest = min(time.time(), newest) - KEEP_S
        names = await trio.to_thread.run_sync(self._sessions_with_snapshots)
        gone = frozenset([name for name in names if not await exists(name)])
        dropped = await trio.to_thread.run_sync(self._drop_references, gone, oldest)
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
            taker = Taker(shadow, self._secrets, self._excluded)
            self._stores[path] = _Store(shadow, taker, lock)
        return self._stores[path]

    async def _read(
        self, workspace: str, read: Callable[[ShadowRepository], Awaitable[Read]]
    ) -> Read:
        store = self._store(workspace)
        async with store.lock:
            try:
                if store.shadow.store.exists():
                    await store.shadow.prepare()
                return await read(store.shadow)
            except GitProblem as error:
                raise SnapshotProblem(str(error)) from error

    def _add_reference(self, store: _Store, tree: str, session_id: str) -> None:
        """Keep the tree from being pruned as long as the session may be rewound to it."""
        path = store.shadow.store / _REFERENCES / session_id / tree
        make_directory(path.parent)
        with open(path, "w", opener=open_private) as file:
            file.write(f"{tree}\n")

    async def _undo_unfinished(self, store: _Store) -> None:
        """Undo the last restore if the log does not have its submission."""
        path = store.shadow.store / JOURNAL
        journal = read_journal(path, _Journal)
        if journal and not await self._is_committed(journal.submission_id):
            back = [FileRestore(os.fsdecode(name), new, old) for name, old, new in journal.restores]
            conflicts = await self._restore(store, back)
            log.warning("restore_undone", workspace=journal.workspace, left=len(conflicts))
        path.unlink(missing_ok=True)

    async def _restore(self, store: _Store, restores: Sequence[FileRestore]) -> dict[str, str]:
        """Restore files, except for the daemon's own; return the others, as `restore` does."""
        own = self._excluded.own_places(store.shadow.workspace)
        left = {one.path: "it belongs to tiller itself" for one in restores if is_in(one.path, own)}
        left |= await _restore_files(
            store.shadow, [one for one in restores if one.path not in left]
        )
        done = [one for one in restores if one.path not in left]
        failed = {one.wanted.blob for one in restores if one.path in left and one.wanted}
        lost = failed - {one.wanted.blob for one in done if one.wanted}
        # The only copy of a file may be where the reverted steps have moved it.
        kept = [one.reversed() for one in done if one.takes_away(lost)]
        not_kept = await _restore_files(store.shadow, kept)
        return left | {one.path: "" for one in kept if one.path not in not_kept}

    def _sessions_with_snapshots(self) -> set[str]:
        """Return the ids of all sessions with snapshots. Blocks, as there may be thousands."""
        return {references.name for references in self._directory.glob(f"*.git/{_REFERENCES}/*")}

    def _drop_references(self, gone: frozenset[str], oldest: float) -> bool:
        """Drop references from before `oldest` and of `gone` sessions; return whether any were."""
        dropped = False
        for references in self._directory.glob(f"*.git/{_REFERENCES}/*"):
            if references.name in gone:
                shutil.rmtree(references, ignore_errors=True)
                dropped = True
                continue
            with suppress(FileNotFoundError):  # The session may be deleted meanwhile.
                for reference in references.iterdir():
                    if reference.stat().st_mtime < oldest:
                        reference.unlink(missing_ok=True)
                        dropped = True
        return dropped

    async def _clean(self, path: Path, *, everything: bool) -> None:
        """Repack and prune a repository if that is worthwhile; delete it if it is unused."""
        async with self._locks.setdefault(path, trio.Lock()):
            is_used = any((path / _REFERENCES).glob("*/*"))
            if is_used and not everything and not _is_untidy(path):
                return
            for one in self._stores.values():
                if one.shadow.store == path:
                    # Nothing may refer to the last tree any more, so it must be written again.
                    one.taker.forget()
            if not is_used:
                await trio.to_thread.run_sync(shutil.rmtree, path, True)  # noqa: FBT003
                return
            try:
                await trio.to_thread.run_sync(_mend_references, path)
                shadow = ShadowRepository(path, path, self._variables)
                await shadow.run("repack", "-a", "-d", "-q", timeout_s=CLEAN_S_MAX)
                await shadow.run("prune", "--expire=now", timeout_s=CLEAN_S_MAX)
            except GitProblem as error:
                log.warning("snapshots_not_cleaned", store=str(path), reason=str(error))


async def _restore_files(
    shadow: ShadowRepository, restores: Sequence[FileRestore]
) -> dict[str, str]:
    """Restore in batches; removals come first, so files and directories can swap places."""
    left: dict[str, str] = {}
    ordered = sorted(restores, key=lambda one: (one.wanted is not None, one.path))
    for start in range(0, len(ordered), CONTENTS_AT_ONCE):
        some = ordered[start : start + CONTENTS_AT_ONCE]
        wanted = await _whole_contents([m.wanted.blob for m in some if m.wanted], shadow)
        left |= await trio.to_thread.run_sync(restore_files, shadow.workspace, some, wanted)
    return left


async def _whole_contents(blobs: Sequence[str], shadow: ShadowRepository) -> dict[str, bytes]:
    """Return the bytes of these blobs; damaged and missing blobs are left out."""
    try:
        return await contents(blobs, shadow)
    except GitFailed:
        # git stops at the first damaged blob.
        if len(blobs) == 1:
            return {}
        each = [await _whole_contents([blob], shadow) for blob in blobs]
        return {blob: data for one in each for blob, data in one.items()}


def _reason(error: GitProblem | OSError) -> str:
    """Return why a snapshot failed, in whole sentences."""
    if isinstance(error, GitProblem):
        return str(error)
    return f"{error.filename or 'A file'} can't be used: {error.strerror or error}."


def _mend_references(store: Path) -> None:
    """Write damaged references again: a reference has the name of the tree that it refers to."""
    for reference in (store / _REFERENCES).glob("*/*"):
        content = f"{reference.name}\n".encode()
        with suppress(FileNotFoundError):  # The session may be deleted meanwhile.
            if reference.read_bytes() != content:
                reference.write_bytes(content)


def _is_untidy(store: Path) -> bool:
    """Whether cleaning is worthwhile; estimates loose objects from one of their 256 folders."""
    loose = 256 * sum(1 for _ in store.glob("objects/17/*"))
    packs = sum(1 for _ in store.glob("objects/pack/*.pack"))
    return loose > LOOSE_FILES_MAX or packs > PACKS_MAX
