"""The git repository of a workspace, as far as an enclosure has to know it.

In a second work tree and in a submodule `.git` is a file, and what git writes lies elsewhere. That
place counts only when it says itself that it belongs to this workspace: a `.git` file comes with
whatever was unpacked here, but nobody else can write into the git directory of another repository.
"""

import functools
import os
import re
import shlex
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tiller_daemon.workspace.documents import read_document
from tiller_daemon.workspace.repository import GIT_FILE_BYTES_MAX, find_repository, git_directory

CONFIG_BYTES_MAX: Final = 64 * 1024

GIT_CONFIG_S: Final = 5.0
"""How long git may take to print a repository's configuration; it takes milliseconds."""

CONFIGURATIONS_CACHED: Final = 256

_WORKTREE: Final = re.compile(r"^\s*worktree\s*=\s*\"?(.+?)\"?\s*$", re.MULTILINE | re.IGNORECASE)


class GitPaths(NamedTuple):
    """What git uses for a workspace. Paths have no links in them, but for `mark`.

    `mark` is `.git`, be it there or not. `is_link` says that it is a link, which no mount can
    protect. `directories` are the git directories, and `own` is where in them the state of a second
    work tree is. `root` is the top of the work tree. `named` is
    what the configuration names in the workspace: hooks, included files, programs.
    """

    mark: Path
    is_link: bool = False
    directories: tuple[Path, ...] = ()
    own: str = ""
    root: Path | None = None
    named: tuple[Path, ...] = ()


def git_paths(workspace: Path) -> GitPaths:
    """Look at the repository of a workspace (absolute, links followed); blocks for file reads."""
    mark = workspace / ".git"
    try:
        kind = os.lstat(mark).st_mode
    except OSError:
        return _around(workspace, mark)
    directories: tuple[Path, ...] = ()
    own = ""
    if stat.S_ISDIR(kind) and _is_repository(mark):
        directories = (mark,)
    elif stat.S_ISREG(kind):
        git = Path(os.path.realpath(git_directory(mark)))
        if common := _common_of_worktree(git, mark):
            directories, own = (common,), f"{git.relative_to(common)}/"
        elif _is_of_submodule(git, workspace):
            directories = (git,)
    named = tuple(_named(workspace, directories[0])) if directories else ()
    is_link = stat.S_ISLNK(kind)
    return GitPaths(
        mark, is_link=is_link, directories=directories, own=own, root=workspace, named=named
    )


def _around(workspace: Path, mark: Path) -> GitPaths:
    """A workspace that lies in a work tree, below its top; the user's home is no such tree."""
    found = find_repository(workspace)
    home = Path(os.environ.get("HOME") or "/").resolve()
    if found is None or found.root in (home, *home.parents) or not (found.root / ".git").is_dir():
        return GitPaths(mark)
    outer = git_paths(found.root)
    return GitPaths(mark, directories=outer.directories, own=outer.own, root=outer.root)


def _named(workspace: Path, git: Path) -> Iterator[Path]:
    """What the configuration names in the workspace, be it there or not for the hooks."""
    seen: set[Path] = set()
    for origin, key, value in _configuration(workspace, git):
        words = [value, *_words(value)]
        if key == "core.hookspath" or (origin and not origin.is_relative_to(git)):
            words.append(str(origin))
        for word in words:
            path = Path(os.path.normpath(workspace / os.path.expanduser(word)))  # noqa: PTH111
            inside = path.is_relative_to(workspace) and path != workspace
            known = key == "core.hookspath" and word == value
            if inside and path not in seen and (known or path.exists()):
                seen.add(path)
                yield path


def _words(value: str) -> list[str]:
    """The words of a value, which may be a command."""
    try:
        return shlex.split(value.removeprefix("!"))
    except ValueError:
        return value.split()


def _configuration(workspace: Path, git: Path) -> tuple[tuple[Path | None, str, str], ...]:
    """The file, key and value of each line of the repository's configuration.

    Git reads it, with what it includes, so that it is read as git reads it; that runs nothing.
    """
    signature = tuple(_signature(git / name) for name in ("config", "config.worktree"))
    return _configuration_as_it_is(workspace, git, signature)


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_mtime_ns, state.st_size, state.st_ino


@functools.lru_cache(CONFIGURATIONS_CACHED)
def _configuration_as_it_is(
    workspace: Path,
    git: Path,
    signature: tuple[tuple[int, int, int] | None, ...],  # noqa: ARG001 - what it is cached for
) -> tuple[tuple[Path | None, str, str], ...]:
    arguments = ("git", "-c", "safe.directory=*", f"--git-dir={git}", f"--work-tree={workspace}")
    asked = ("config", "--null", "--list", "--show-origin", "--includes", "--local")
    try:
        done = subprocess.run(
            (*arguments, *asked),
            capture_output=True,
            check=False,
            cwd=workspace,
            env={"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent"},
            stdin=subprocess.DEVNULL,
            timeout=GIT_CONFIG_S,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    fields = os.fsdecode(done.stdout).split("\0")
    found: list[tuple[Path | None, str, str]] = []
    for origin, line in zip(fields[::2], fields[1::2], strict=False):
        key, _, value = line.partition("\n")
        file = origin.removeprefix("file:")
        named = Path(os.path.normpath(workspace / file)) if file != origin else None
        found.append((named, key, value))
    return tuple(found)


def _common_of_worktree(git: Path, mark: Path) -> Path | None:
    """The git directory of the repository that `git` is a work tree's own directory of."""
    common, back = _named_in(git / "commondir"), _named_in(git / "gitdir")
    if common is None or back is None or not _is_repository(common):
        return None
    return common if git.parent == common / "worktrees" and back == mark else None


def _is_of_submodule(git: Path, workspace: Path) -> bool:
    """Whether `git` is the directory of a submodule that is checked out in `workspace`."""
    config = read_document(git / "config", None, CONFIG_BYTES_MAX)
    if config is None or config.cut or not _is_repository(git):
        return False
    named = _WORKTREE.findall(config.text.replace("\0", ""))
    places = {os.path.realpath(git / text) for text in named}
    return "modules" in git.parent.parts and places == {str(workspace)}


def _named_in(file: Path) -> Path | None:
    """The path that stands in a file of git's, with links on the way to its last part followed."""
    pointer = read_document(file, None, GIT_FILE_BYTES_MAX)
    if pointer is None or pointer.cut or "\0" in pointer.text:
        return None
    path = Path(os.path.normpath(file.parent / pointer.text.rstrip("\n")))
    return Path(os.path.realpath(path.parent), path.name)


def _is_repository(git: Path) -> bool:
    return all((git / name).exists() for name in ("HEAD", "objects", "refs"))
