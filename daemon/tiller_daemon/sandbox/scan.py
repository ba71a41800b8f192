"""Scans a workspace before each command, for paths that the profile must hide or protect.

Files that rules protect are hidden from commands, and so are directories that can't be listed.
Commands without approval can't write to other repositories in the workspace. A directory is read
again only if its timestamps show that it has changed. So a scan costs one `stat` per directory, and
reads the few that changed.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

PRUNED: Final = frozenset({"node_modules", "site-packages", "dist-packages"})
"""Directories of installed packages, which hold tens of thousands of published files. They are not
scanned."""

UNSETTLED_NS: Final = 50_000_000
"""A directory that changed within this time before it was read is read again, because timestamps
are this coarse."""

_EFFECTIVE: Final = os.access in os.supports_effective_ids

FOLDERS_MAX: Final = 200_000
"""The most directories that a workspace may have; a larger workspace is refused."""


class ScanResult(NamedTuple):
    """The paths that a scan has found.

    `protected` are the files that rules protect, and `repositories` the `.git` (directory or file)
    of other repositories. `closed` are the directories that could not be listed.
    """

    protected: tuple[Path, ...] = ()
    repositories: tuple[Path, ...] = ()
    closed: tuple[Path, ...] = ()


NOTHING_FOUND: Final = ScanResult()


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
    """The spellings of `.git` that are there."""
    is_closed: bool = False
    """Whether the directory can't be listed."""


class Scanner:
    """Scans one workspace (absolute, without links) repeatedly.

    `is_protected` is called with the path of each file, relative to the workspace. Not thread-safe.
    """

    def __init__(self, workspace: Path, is_protected: Callable[[str], bool]) -> None:
        self._workspace: Final = os.fspath(workspace)
        self._is_protected: Final = is_protected
        self._known: dict[str, _Folder] = {}

    def scan(self) -> ScanResult:
        """Scan the workspace; raises `WorkspaceTooLarge`. Blocks for as long as the disk takes."""
        before = self._known
        known: dict[str, _Folder] = {}
        waiting = [""]
        while waiting:
            name = waiting.pop()
            folder = self._folder(name, before.get(name))
            if folder is None:
                continue
            known[name] = folder
            if len(known) > FOLDERS_MAX:
                raise WorkspaceTooLarge(
                    f"{self._workspace} has more than {FOLDERS_MAX} directories"
                )
            waiting += [f"{name}{inner}/" for inner in folder.folders]
        top, found = self._workspace, known.items()
        # Replaced at once and never changed afterwards, because this runs in a thread.
        self._known = known
        return ScanResult(
            tuple(Path(top, name, one) for name, folder in found for one in folder.protected),
            tuple(Path(top, name, one) for name, folder in found for one in folder.repositories),
            tuple(Path(top, name) for name, folder in found if folder.is_closed),
        )

    def scan_again(self, before: ScanResult) -> tuple[Path, ...]:
        """Scan after a command; return the repositories, and directories that it has closed.

        Raises `WorkspaceTooLarge`; blocks like `scan`.
        """
        found = self.scan()
        return (*found.repositories, *(path for path in found.closed if path not in before.closed))

    def _folder(self, name: str, known: _Folder | None) -> _Folder | None:
        path = f"{self._workspace}/{name}"
        signature = (0, 0, 0)
        try:
            signature = _signature(path)
            if known and _is_current(known, signature):
                return known
            return self._read(path, name, signature)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            return _Folder(signature, 0, (), (), (), is_closed=True)

    def _read(self, path: str, name: str, signature: tuple[int, int, int]) -> _Folder:
        if not os.access(path, os.X_OK, effective_ids=_EFFECTIVE):
            # What is there could be hidden only until a command changes the directory's mode.
            raise PermissionError
        read_ns = time.time_ns() - UNSETTLED_NS
        folders: list[str] = []
        files: list[str] = []
        with os.scandir(path) as entries:
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                (folders if is_folder else files).append(entry.name)
        # An empty `name` is the workspace itself, whose own repository is not listed. A file system
        # that ignores case has one name for several spellings of `.git`, but others have both.
        names = [*folders, *files] if name else []
        return _Folder(
            signature,
            read_ns,
            tuple(one for one in folders if one != ".git" and one not in PRUNED),
            tuple(one for one in files if self._is_protected(name + one)),
            tuple(one for one in names if one.casefold() == ".git"),
        )


def _signature(path: str) -> tuple[int, int, int]:
    """Return a directory's inode and its times in nanoseconds; raises `OSError`."""
    state = os.lstat(path)
    return state.st_ino, state.st_mtime_ns, state.st_ctime_ns


def _is_current(known: _Folder, signature: tuple[int, int, int]) -> bool:
    """Whether a directory has not changed since it was read."""
    return known.signature == signature and known.read_ns > known.signature[2]
