"""Takes the snapshots of one workspace by git, and notes when, and what they leave out.

git's index of the workspace knows the stamps of all files. So a snapshot in which nothing has
changed takes one process that lists the changed files, and reads no contents.
"""

import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import trio

from tiller_daemon.files.restore import FILE_BYTES_MAX, GitEntry
from tiller_daemon.files.whole_files import TEMPORARY
from tiller_daemon.snapshots.blobs import write_blobs
from tiller_daemon.snapshots.exclusions import Exclusions, is_in
from tiller_daemon.snapshots.git_trees import write_tree
from tiller_daemon.snapshots.shadow_repository import (
    GitFailed,
    GitProblem,
    GitTooSlow,
    ShadowRepository,
)

NEW_BYTES_MAX: Final = 512 * 1024 * 1024
NEW_FILES_MAX: Final = 100_000
"""The most files and bytes that one snapshot adds. A workspace with more gets no snapshots."""

LIST_S_MAX: Final = 15.0
"""How long listing the workspace may take; 5,000 files take 0.02 s. If the workspace is a whole
home directory, the first call that may write waits this long, and there are no snapshots."""

LIST_AGAIN_S_MAX: Final = 2.0
"""How long listing may take after it has taken too long, as each turn tries it again."""

PACKED_FROM: Final = 200
"""From this many new files on, git keeps them in one pack instead of a file for each."""

NO_BLOB: Final = "0" * 40
"""The id for an entry that git's index no longer has."""

PIPE_S_MAX: Final = 1.0
"""How long to search for a pipe at which git may be waiting."""

CLOCK_ERROR_NS: Final = 1_000_000
"""How much the clock of file systems may be behind the system's coarse clock; 70 µs were seen."""

READ_BY_GIT: Final = frozenset({".gitignore", "HEAD", "config", "commondir"})
"""Names of files that git opens in a workspace and in repositories inside it to list files."""

WAITS: Final = "Git would wait for ever for {}, which is a pipe: remove it."


class Taken(NamedTuple):
    """A snapshot. All times are in ns, by the system's clock."""

    tree: str
    """The id of its git tree."""
    began_ns: int
    """When git had not yet looked at any file."""
    ended_ns: int
    """When git had looked at all files."""
    left_out: Mapping[str, int] = MappingProxyType({})
    """Inodes of files and directories that are there but not in the tree, by path; empty if not
    listed."""


class Taker:
    """Takes the snapshots of one workspace, for one task at a time.

    All methods raise `GitProblem` and `OSError`. Even after a cancellation the next snapshot is
    correct.
    """

    def __init__(
        self, shadow: ShadowRepository, secrets: Callable[[], Iterable[str]], excluded: Exclusions
    ) -> None:
        self._shadow: Final = shadow
        self._secrets: Final = secrets
        self._excluded: Final = excluded
        self._tree = ""
        """The tree of the last snapshot; empty if it must be written again."""
        self._list_s = LIST_S_MAX
        self._pipe: Path | None = None
        """A pipe at which git waited."""

    def forget(self) -> None:
        """Forget the last tree, for example because the git directory will be removed."""
        self._tree = ""

    async def take(self, *, left_out: bool) -> Taken:
        """Take a snapshot; with `left_out`, also list what it leaves out."""
        if self._excluded.owns(self._shadow.workspace):
            raise GitProblem("The workspace is one of tiller's own directories.")
        if self._pipe and self._pipe.is_fifo():
            raise GitProblem(WAITS.format(self._pipe))
        self._pipe = None
        await self._shadow.prepare()
        began_ns = time.time_ns()
        try:
            return await self._take(began_ns, left_out=left_out)
        except GitFailed:
            # Objects may be missing or damaged. Without an index, git reads and stores every file.
            self.forget()
            self._shadow.drop_index()
            return await self._take(began_ns, left_out=left_out)
        except GitTooSlow as problem:
            self._list_s = LIST_AGAIN_S_MAX
            self._pipe = await trio.to_thread.run_sync(_find_pipe, self._shadow.workspace)
            if self._pipe:
                raise GitProblem(f"{problem} {WAITS.format(self._pipe)}") from None
            raise

    async def _take(self, began_ns: int, *, left_out: bool) -> Taken:
        listed, left = await self._list(left_out=left_out)
        if listed:
            known, wanted, names = await trio.to_thread.run_sync(self._classify, listed)
            stored = await self._store(wanted)
            left |= names.difference(stored)
            await self._stage(known.difference(stored), stored)
        # If nothing has changed since the last snapshot, its tree is still right.
        if not self._tree:
            self._tree = await write_tree(self._shadow)
        inodes = await trio.to_thread.run_sync(_inodes, self._shadow.workspace, left)
        return Taken(self._tree, began_ns, time.time_ns(), inodes if left_out else {})

    async def _list(self, *, left_out: bool) -> tuple[bytes, frozenset[str]]:
        """Return the listing of changed files, and the ignored places if `left_out`."""
        own = [word for pattern in self._own_patterns() for word in ("-x", pattern)]
        standard = ("ls-files", "-z", "-o", "--exclude-standard", *own)
        listed = ignored = b""

        async def list_ignored() -> None:
            nonlocal ignored
            ignored = await self._run_list(*standard, "-i", "--directory")

        async def list_changed() -> None:
            nonlocal listed
            listed = await self._run_list(*standard, "-t", "-m", "-d")

        if left_out:
            await _both(list_changed, list_ignored)
        else:
            await list_changed()
        self._list_s = LIST_S_MAX
        return listed, _places(ignored)

    async def _run_list(self, *arguments: str) -> bytes:
        return await self._shadow.run(*arguments, on_files=True, timeout_s=self._list_s)

    def _own_patterns(self) -> Iterable[str]:
        """Yield patterns for the daemon's own directories; no ignore file can overrule these."""
        for name in self._excluded.own_places(self._shadow.workspace):
            escaped = "".join(f"\\{c}" if c in "\\*?[ " else c for c in self._shadow.prefix + name)
            yield f"/{escaped}"

    async def _store(self, names: Sequence[str]) -> dict[str, GitEntry]:
        """Store files in the git directory; return the entries of those that a snapshot may have.

        git itself would follow a link that takes a file's place while git opens it.
        """
        secrets = tuple(secret.encode() for secret in self._secrets())
        with tempfile.TemporaryFile(dir=self._shadow.store) as blobs:
            entries = await trio.to_thread.run_sync(
                write_blobs, self._shadow.workspace, names, secrets, blobs
            )
            if entries:
                limit = f"fastimport.unpackLimit={PACKED_FROM}"
                await self._shadow.run("-c", limit, "fast-import", "--quiet", stdin=blobs)
        return entries

    async def _stage(self, removed: Iterable[str], stored: Mapping[str, GitEntry]) -> None:
        """Put entries into git's index and others out of it."""
        prefix = self._shadow.prefix
        lines = [f"0 {NO_BLOB}\t{prefix}{name}\0" for name in sorted(removed)]
        lines += [f"{one.mode:o} {one.blob}\t{prefix}{name}\0" for name, one in stored.items()]
        # Set before git runs: after a cancellation the state of the index is unknown.
        self._tree = ""
        entries = "".join(lines).encode(errors="surrogateescape")
        await self._shadow.run("update-index", "-z", "--index-info", stdin=entries, on_files=True)
        # git compares each file with each of these paths, which takes long for many.
        places = stored if len(stored) < PACKED_FROM else (".",)
        names = "\0".join(places).encode(errors="surrogateescape")
        arguments = ("add", "--refresh", "--pathspec-from-file=-", "--pathspec-file-nul")
        # Notes the stamps of the files, so that the next listing need not read them again. This
        # fails if a file's directory has become a link.
        with suppress(GitFailed):
            await self._shadow.run("--literal-pathspecs", *arguments, stdin=names, on_files=True)

    def _classify(self, listed: bytes) -> tuple[set[str], list[str], set[str]]:
        """Return the listed names that are in the index, those to store, and all of them.

        Blocks for as long as the disk takes, so it runs in a thread. Raises `GitProblem` if there
        are too many files or bytes to store.
        """
        workspace = self._shadow.workspace
        files = {(r[:1], os.fsdecode(r[2:])) for r in listed.split(b"\0") if r}
        known = {name for tag, name in files if tag != b"?"}
        # git lists a repository inside the workspace as a name with a trailing slash.
        names = {name for _, name in files if not name.endswith("/") and not _is_temporary(name)}
        sizes = {name: _size(workspace / name) for name in names}
        own = self._excluded.own_places(workspace)
        wanted = [
            name
            for name in sorted(names)
            if sizes[name] <= FILE_BYTES_MAX
            and not is_in(name, own)
            and not self._excluded.is_secret(workspace, name)
        ]
        taken_bytes = sum(sizes[name] for name in wanted)
        if taken_bytes > NEW_BYTES_MAX or len(wanted) > NEW_FILES_MAX:
            raise GitProblem(
                f"{len(wanted)} files ({taken_bytes // 1024**2} MiB in total) are too much for a "
                "snapshot. In .gitignore, list the files that need no snapshots."
            )
        if pipe := _pipe_of_attributes(workspace, wanted):
            raise GitProblem(WAITS.format(pipe))
        return known, wanted, {name.rstrip("/") for _, name in files}


def file_time_ns() -> int:
    """Return a time that is not later than that of any file that changes from now on.

    The clock of file systems advances in ticks of some milliseconds.
    """
    coarse = getattr(time, "CLOCK_REALTIME_COARSE", time.CLOCK_REALTIME)
    return time.clock_gettime_ns(coarse) - CLOCK_ERROR_NS


async def _both(*jobs: Callable[[], Awaitable[None]]) -> None:
    """Run jobs concurrently; raise the first `GitProblem` without a group."""
    problems: list[GitProblem] = []

    async def run(job: Callable[[], Awaitable[None]]) -> None:
        try:
            await job()
        except GitProblem as problem:
            problems.append(problem)
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for job in jobs:
            nursery.start_soon(run, job)
    if problems:
        raise problems[0]


def _places(listed: bytes) -> frozenset[str]:
    """Return listed files and directories, without directories that only contain listed names."""
    # In such a directory, git sees a new file, so the directory itself is not left out.
    names = [*sorted(listed.split(b"\0")), b""]
    kept = (one for one, after in pairwise(names) if one and not _contains(one, after))
    return frozenset(os.fsdecode(one.rstrip(b"/")) for one in kept)


def _contains(directory: bytes, name: bytes) -> bool:
    return directory.endswith(b"/") and name.startswith(directory)


def _pipe_of_attributes(workspace: Path, names: Sequence[str]) -> Path | None:
    """Return a pipe in the place of a file of attributes, which git reads to add these files."""
    folders = {one for name in names for one in Path(workspace, name).parents}
    pipes = (folder / ".gitattributes" for folder in folders)
    return next((pipe for pipe in pipes if pipe.is_fifo()), None)


def _find_pipe(workspace: Path) -> Path | None:
    """Return a pipe in the place of a file that git reads, which blocks git; None if not found."""
    end = time.monotonic() + PIPE_S_MAX
    for directory, _, names in os.walk(workspace):
        if time.monotonic() > end:
            break
        for name in READ_BY_GIT.intersection(names):
            path = Path(directory, name)
            if path.is_fifo():
                return path
    return None


def _is_temporary(name: str) -> bool:
    return name.rpartition("/")[2].startswith(TEMPORARY)


def _inodes(workspace: Path, names: Iterable[str]) -> dict[str, int]:
    """Return the inodes of those names that are there."""
    found: dict[str, int] = {}
    for name in names:
        with suppress(OSError):
            found[name] = os.lstat(workspace / name).st_ino
    return found


def _size(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
