"""What enclosures have to know of the files in a workspace, looked up before each command.

Files that rules protect are hidden from commands, and other repositories in the workspace can't be
written by what nobody was asked about. A directory is read again only when it has changed: its own
times change with every name that comes or goes. So a look costs a `stat` for each directory, and
reads the few that changed.
"""

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

PRUNED: Final = frozenset({"node_modules", "site-packages", "dist-packages"})
"""Directories of installed packages: published files, and tens of thousands of them."""

UNSETTLED_NS: Final = 50_000_000
"""A directory that changed so shortly before it was read is read again: times are that coarse."""

FOLDERS_MAX: Final = 200_000
"""Most directories that are looked at; a workspace with more is refused."""


DISABLED: Final = ".disabled"
"""Behind the name of what marks a repository that git is not to find."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ScanResult(NamedTuple):
    """What was found: `protected` files, and git directories or files of other repositories."""

    protected: tuple[Path, ...] = ()
    repositories: tuple[Path, ...] = ()


class WorkspaceTooLarge(Exception):
    """The workspace has more than `FOLDERS_MAX` directories."""


class _Folder(NamedTuple):
    """What a directory held when it had this signature."""

    signature: tuple[int, int, int]
    read_ns: int
    folders: tuple[str, ...]
    protected: tuple[str, ...]
    repositories: tuple[str, ...]


def disable_repository(workspace: Path, repository: Path) -> str:
    """Make git overlook a repository, by another name of the file that marks it; returns that name.

    No link is followed on the way, as other commands may be at work in the workspace. Raises
    `OSError`.
    """
    *folders, mark = repository.relative_to(workspace).parts
    opened = os.open(workspace, _FOLDER)
    try:
        for name in folders:
            deeper = os.open(name, _FOLDER, dir_fd=opened)
            os.close(opened)
            opened = deeper
        state = os.stat(mark, dir_fd=opened, follow_symlinks=False)
        if stat.S_ISDIR(state.st_mode):
            deeper = os.open(mark, _FOLDER, dir_fd=opened)
            os.close(opened)
            opened, folders, mark = deeper, [*folders, mark], "HEAD"
        os.rename(mark, mark + DISABLED, src_dir_fd=opened, dst_dir_fd=opened)
    finally:
        os.close(opened)
    return "/".join((*folders, mark + DISABLED))


class Scanner:
    """Looks through one workspace (absolute, without links) again and again.

    `is_protected` is asked about the path of each file, relative to the workspace. Not for several
    threads at once.
    """

    def __init__(self, workspace: Path, is_protected: Callable[[str], bool]) -> None:
        self._workspace: Final = os.fspath(workspace)
        self._is_protected: Final = is_protected
        self._known: dict[str, _Folder] = {}

    def scan(self) -> ScanResult:
        """Look through the workspace; blocks for as long as the disk takes. Raises `WorkspaceTooLarge`."""
        before, self._known = self._known, {}
        protected: list[Path] = []
        repositories: list[Path] = []
        waiting = [""]
        while waiting:
            name = waiting.pop()
            folder = self._folder(name, before.get(name))
            if folder is None:
                continue
            self._known[name] = folder
            if len(self._known) > FOLDERS_MAX:
                raise WorkspaceTooLarge(
                    f"{self._workspace} has more than {FOLDERS_MAX} directories"
                )
            waiting += [f"{name}{inner}/" for inner in folder.folders]
            protected += [Path(self._workspace, name, one) for one in folder.protected]
            repositories += [Path(self._workspace, name, one) for one in folder.repositories]
        return ScanResult(tuple(protected), tuple(repositories))

    def _folder(self, name: str, known: _Folder | None) -> _Folder | None:
        path = f"{self._workspace}/{name}"
        try:
            state = os.lstat(path)
            signature = (state.st_ino, state.st_mtime_ns, state.st_ctime_ns)
            if known and known.signature == signature and known.read_ns > state.st_ctime_ns:
                return known
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
        repositories = [one for one in (*folders, *files) if one == ".git" and name]
        if name and "HEAD" in files and {"objects", "refs"} <= set(folders):
            repositories.append("HEAD")
        return _Folder(
            signature,
            read_ns,
            tuple(one for one in folders if one != ".git" and one not in PRUNED),
            tuple(one for one in files if self._is_protected(name + one)),
            tuple(repositories),
        )
