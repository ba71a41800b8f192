"""Finds what other programs execute by themselves: in a workspace, its git directories and a home.

Nothing here looks into files, and git answers for its own files (see `git_repository`).
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from tiller_daemon.sandbox.base import GitUse
from tiller_daemon.sandbox.git_repository import GitRepository, find_git, read_index
from tiller_daemon.sandbox.known_paths import (
    EXECUTED_AT_HOME,
    is_executed,
    is_product,
    root_of,
)

LINKED_MAX: Final = 20_000
"""How many protected files are checked for hard links; builds ask if there are more."""

FOLDERS_MAX: Final = 1000
"""How many directories of each protected directory are searched for links."""


class UserHome:
    """The user's home, and the directories of PATH."""

    def __init__(self, home: Path, environ: Mapping[str, str]) -> None:
        self._home: Final = home
        self._executed: Final = tuple(home / name for name in EXECUTED_AT_HOME)
        named = environ.get("PATH", "").split(os.pathsep)
        self._path: Final = [
            Path(os.path.realpath(entry)) for entry in named if entry.startswith("/")
        ]

    def executes(self, path: Path) -> bool:
        """Whether a shell, a desktop or git executes the file at `path` (without links)."""
        return any(map(path.is_relative_to, self._executed))

    def problem_of(self, root: Path) -> str:
        """Return why other programs execute any file in a workspace, as a clause for the user."""
        if self._home.is_relative_to(root):
            return "the workspace contains your home directory"
        executed = (*self._executed, self._home / ".config")
        if any(root.is_relative_to(one) or one.is_relative_to(root) for one in executed):
            return "your shell or desktop executes files in the workspace"
        if any(map(root.is_relative_to, self._path)):
            return "the workspace is in a directory of PATH"
        return self._problem_of_links(root)

    def _problem_of_links(self, root: Path) -> str:
        """Return whether the home has links into a workspace, as people keep dotfiles."""
        for directory in (self._home, self._home / ".config"):
            try:
                with os.scandir(directory) as entries:
                    links = [entry.path for entry in entries if entry.is_symlink()]
            except OSError:
                continue
            for link in links:
                if Path(os.path.realpath(link)).is_relative_to(root):
                    return "your home directory has links into the workspace"
        return ""


def executed_in(root: Path, git: GitRepository) -> Iterator[Path]:
    """Yield files and directories in and for a workspace that programs execute by themselves."""
    named = (path for path in _entries(root) if is_executed(path.name))
    linked = (link for path in named for link in (path, *_links_below(path)))
    for path in (*git.directories, *_executed_by_git(git), *linked):
        yield Path(os.path.realpath(path))


def _entries(root: Path) -> list[Path]:
    try:
        return [root / name for name in os.listdir(root)]  # noqa: PTH208 - only names are needed
    except OSError:
        return []


def kept_entries(root: Path, *, is_build: bool, git_use: GitUse = "") -> Iterator[Path]:
    """Yield the entries of a workspace that a command can't change."""
    for path in _entries(root):
        name = path.name
        unknown = is_build and name.startswith(".") and not is_product(name)
        # git writes the files of a commit, among them such as begin with a dot.
        if name == ".git" or unknown or (is_executed(name) and git_use != "work_tree"):
            yield path
            yield from _links_below(path) if is_executed(name) else ()


def _links_below(folder: Path) -> Iterator[Path]:
    """Yield the links in a directory whose files are executed, as programs follow them.

    Nothing if `folder` is a file or a git directory, whose links `_executed_by_git` finds.
    """
    waiting = [] if folder.name == ".git" else [folder]
    for _ in range(FOLDERS_MAX):
        if not waiting:
            return
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    yield Path(entry.path)
                elif entry.is_dir():
                    waiting.append(Path(entry.path))


def kept_of_git(git: GitRepository, nested: Iterable[Path], git_use: GitUse) -> Iterator[Path]:
    """Yield what a command can't change of git directories, and where git looks for others."""
    for one in (git, *(find_git(mark.parent) for mark in nested)):
        for path in _executed_by_git(one):
            # `git worktree add` makes another entry there, as `git clone` makes a repository.
            adds = git_use == "work_tree" and path.name == "worktrees"
            yield from _entries(path) if adds else (path,)
    if git_use:
        yield from (mark for mark in nested if not mark.is_dir())
        return
    yield from (*git.directories, *nested)
    for link in read_index(git).links:
        yield link / ".git" if os.path.lexists(link / ".git") else link


def _executed_by_git(git: GitRepository) -> Iterator[Path]:
    """Yield the files and directories that make git execute something, and links among them."""
    for path in git.executed:
        yield path
        if os.path.isdir(path):  # noqa: PTH112 - the name may be too long
            yield from (hook for hook in _entries(path) if hook.is_symlink())


def problem_of_git(git: GitRepository, root: Path) -> str:
    """Return why git would execute any file in a workspace, as a clause for the user; or empty."""
    if any(root.is_relative_to(os.path.realpath(path)) for path in git.executed):
        return "git executes files in the workspace"
    return git.problem


def git_data(git: GitRepository, nested: Iterable[Path]) -> tuple[Path, ...]:
    """Return the git directories that a git command can write.

    Among them are those of submodules and work trees, if they are in the repository's own.
    """
    marks = [mark for mark in nested if not mark.is_symlink()]
    own = (mark for mark in marks if mark.is_dir())
    named = (one for mark in marks if mark.is_file() for one in find_git(mark.parent).directories)
    return tuple(
        dict.fromkeys(
            (*git.directories, *own, *(one for one in named if root_of(one, git.directories)))
        )
    )


def problem_of_links(root: Path) -> str:
    """Return whether protected files have further names, by which a command could change them."""
    git = find_git(root)
    # git itself links the objects of a submodule's repository.
    waiting = [*kept_entries(root, is_build=True)]
    waiting += [path for path in git.executed if path.name not in ("modules", "worktrees")]
    waiting += [directory / name for directory in git.directories for name in ("HEAD", "index")]
    for _ in range(LINKED_MAX):
        if not waiting:
            return ""
        path = waiting.pop()
        with suppress(OSError):
            state = path.lstat()
            if stat.S_ISREG(state.st_mode) and state.st_nlink > 1:
                return f"{path.name} has another name (a hard link)"
            is_folder = stat.S_ISDIR(state.st_mode) and path not in git.directories
            waiting += _entries(path) if is_folder else ()
    return "there are too many protected files to look for hard links"
