"""Scans a workspace before each command, for paths that the confinement must hide or protect.

Files that rules protect are hidden from commands. Commands without approval can't write to other
repositories in the workspace, nor to files that editors, shells and agents execute. A directory is
read again only if its timestamps show that it has changed. So a scan costs one `stat` per
directory, and reads the few that changed.
"""

import os
import stat
import time
from collections.abc import Callable, Mapping
from errno import EEXIST, EISDIR, ENOTDIR, ENOTEMPTY
from pathlib import Path
from secrets import token_hex
from typing import Final, NamedTuple

from tiller_daemon.sandbox.known_paths import EXECUTED_NAMES

PRUNED: Final = frozenset({"node_modules", "site-packages", "dist-packages"})
"""Directories of installed packages, which hold tens of thousands of published files. They are not
scanned."""

FOLDERS_LOOKED_AT: Final = 100
"""The most directories that are checked on the event loop. This takes 0.2 ms, while a thread costs
0.1 ms, and much more if the loop is busy."""

UNSETTLED_NS: Final = 50_000_000
"""A directory that changed within this time before it was read is read again, because timestamps
are this coarse."""

FOLDERS_MAX: Final = 200_000
"""The most directories that a workspace may have; a larger workspace is refused."""


DISABLED: Final = ".disabled"
"""Appended to the names of files that programs would execute or that mark a repository."""

_GIT_PARTS: Final = frozenset(
    {"head", "commondir", "config", "config.worktree", "hooks", "info", "worktrees"}
)
"""The parts of a bare repository that lead git to programs, in lower case."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ScanResult(NamedTuple):
    """The paths that a scan has found.

    `protected` are the files that rules protect. `repositories` are the `.git` (directory or file)
    of other repositories, and `HEAD` and other parts of bare ones. `executed` are paths that make
    programs execute something (`EXECUTED_NAMES`).
    """

    protected: tuple[Path, ...] = ()
    repositories: tuple[Path, ...] = ()
    executed: tuple[Path, ...] = ()


class WorkspaceTooLarge(Exception):
    """The workspace has more than `FOLDERS_MAX` directories."""


class _Folder(NamedTuple):
    """The content of a directory."""

    signature: tuple[int, int, int]
    """The directory's inode and times when it was read."""
    read_ns: int
    """The time when it was read, minus `UNSETTLED_NS`."""
    folders: tuple[str, ...]
    """The names of the subdirectories that are scanned."""
    protected: tuple[str, ...]
    """The names of protected files."""
    repositories: tuple[str, ...]
    """The names of entries that mark a repository."""
    executed: tuple[str, ...]
    """The names of entries that make programs execute something."""


class _Scan(NamedTuple):
    """A scan in which every directory could be read."""

    folders: Mapping[str, _Folder]
    result: ScanResult


def disable(workspace: Path, path: Path) -> str:
    """Rename a path that a scan has found, so that no program executes it; return the new path.

    For a repository, this renames the file that marks it. Follows no links, because other commands
    may be changing the workspace. Raises `OSError`.
    """
    *folders, mark = path.relative_to(workspace).parts
    opened = os.open(workspace, _FOLDER)
    try:
        for name in folders:
            deeper = os.open(name, _FOLDER, dir_fd=opened)
            os.close(opened)
            opened = deeper
        state = os.stat(mark, dir_fd=opened, follow_symlinks=False)
        if mark.casefold() == ".git" and stat.S_ISDIR(state.st_mode):
            deeper = os.open(mark, _FOLDER, dir_fd=opened)
            os.close(opened)
            opened, folders, mark = deeper, [*folders, mark], "HEAD"
        return "/".join((*folders, _rename(mark, opened)))
    finally:
        os.close(opened)


def _rename(name: str, folder: int) -> str:
    """Rename an entry of an open directory; return its new name."""
    for new in (name + DISABLED, f"{name}{DISABLED}-{token_hex(8)}"):
        try:
            os.rename(name, new, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as error:
            # The new name is taken by a directory or file. Nobody can foresee the second name.
            if error.errno not in (EEXIST, ENOTEMPTY, EISDIR, ENOTDIR):
                raise
        else:
            return new
    raise OSError(EEXIST, "It can't be renamed", name)


class Scanner:
    """Scans one workspace (absolute, without links) repeatedly.

    `is_protected` is called with the path of each file, relative to the workspace. Not thread-safe.
    """

    def __init__(self, workspace: Path, is_protected: Callable[[str], bool]) -> None:
        self._workspace: Final = os.fspath(workspace)
        self._is_protected: Final = is_protected
        self._known: dict[str, _Folder] = {}
        self._last: _Scan | None = None

    def scan(self) -> ScanResult:
        """Scan the workspace; raises `WorkspaceTooLarge`. Blocks for as long as the disk takes."""
        before = self._known
        known: dict[str, _Folder] = {}
        is_complete = True
        waiting = [""]
        while waiting:
            name = waiting.pop()
            folder = self._folder(name, before.get(name))
            if folder is None:
                is_complete = False
                continue
            known[name] = folder
            if len(known) > FOLDERS_MAX:
                raise WorkspaceTooLarge(
                    f"{self._workspace} has more than {FOLDERS_MAX} directories"
                )
            waiting += [f"{name}{inner}/" for inner in folder.folders]
        top, found = self._workspace, known.items()
        result = ScanResult(
            tuple(Path(top, name, one) for name, folder in found for one in folder.protected),
            tuple(Path(top, name, one) for name, folder in found for one in folder.repositories),
            tuple(Path(top, name, one) for name, folder in found for one in folder.executed),
        )
        # Both are set at once and never changed afterwards, because this runs in a thread.
        self._known = known
        self._last = _Scan(known, result) if is_complete else None
        return result

    def scan_if_unchanged(self) -> ScanResult | None:
        """Return the result of the last scan if no directory has changed since then; else None.

        Also returns None if that scan could not read a directory, or found more than
        `FOLDERS_LOOKED_AT`, so that this call never takes long.
        """
        last = self._last
        if last is None or len(last.folders) > FOLDERS_LOOKED_AT:
            return None
        unchanged = all(
            _is_current(known, _signature(f"{self._workspace}/{name}"))
            for name, known in last.folders.items()
        )
        return last.result if unchanged else None

    def _folder(self, name: str, known: _Folder | None) -> _Folder | None:
        path = f"{self._workspace}/{name}"
        signature = _signature(path)
        if signature is None:
            return None
        if known and _is_current(known, signature):
            return known
        try:
            return self._read(path, name, signature)
        except OSError:
            return None

    def _read(self, path: str, name: str, signature: tuple[int, int, int]) -> _Folder:
        read_ns = time.time_ns() - UNSETTLED_NS
        folders: list[str] = []
        files: list[str] = []
        with os.scandir(path) as entries:
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                (folders if is_folder else files).append(entry.name)
        # An empty `name` is the workspace itself, whose own repository is not listed.
        names = [*folders, *files] if name else []
        folded = {one.casefold() for one in names}
        parts = {".git"}
        if "head" in folded and ("commondir" in folded or {"objects", "refs"} <= folded):
            parts |= _GIT_PARTS
        # A file system that ignores case has one name for several spellings, but others have both.
        repositories = [one for one in names if one.casefold() in parts]
        return _Folder(
            signature,
            read_ns,
            tuple(one for one in folders if one != ".git" and one not in PRUNED),
            tuple(one for one in files if self._is_protected(name + one)),
            tuple(repositories),
            tuple(one for one in (*folders, *files) if one.casefold() in EXECUTED_NAMES),
        )


def _signature(path: str) -> tuple[int, int, int] | None:
    """Return a directory's inode and its times in nanoseconds; None if it can't be examined."""
    try:
        state = os.lstat(path)
    except OSError:
        return None
    return state.st_ino, state.st_mtime_ns, state.st_ctime_ns


def _is_current(known: _Folder, signature: tuple[int, int, int] | None) -> bool:
    """Whether a directory has not changed since it was read."""
    return known.signature == signature and known.read_ns > known.signature[2]
