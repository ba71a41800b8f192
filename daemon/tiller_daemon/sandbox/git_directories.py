"""Finds the git directories of a workspace that a confinement must protect.

In a work tree and in a submodule, `.git` is a file that names a directory elsewhere. That directory
counts only if it names this workspace in turn. Any archive that is unpacked here may contain a
`.git` file, but only git itself writes to the git directory of another repository.
"""

import os
import re
import shlex
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tiller_daemon.stamps import StampedCache, look_along
from tiller_daemon.workspace.documents import read_document
from tiller_daemon.workspace.repository import GIT_FILE_BYTES_MAX, find_repository, git_directory

CONFIG_BYTES_MAX: Final = 64 * 1024

GIT_CONFIG_S: Final = 5.0
"""How long git may take to print a repository's configuration; it takes milliseconds."""

_configurations: Final = StampedCache()
"""The configuration of each repository, because git takes milliseconds to print it."""

_WORKTREE: Final = re.compile(r"^[ \t]*worktree[ \t]*=(.*)$", re.MULTILINE | re.IGNORECASE)
"""A setting in the configuration of git. The search takes linear time, whatever the text is."""


class GitPaths(NamedTuple):
    """The paths that git uses for a workspace. No path contains a link, except perhaps `mark`."""

    mark: Path
    """`.git` in the workspace, whether it exists or not."""
    is_link: bool = False
    """Whether `mark` is a link, which no mount can protect."""
    directories: tuple[Path, ...] = ()
    """The git directories; empty if there is no repository."""
    own: str = ""
    """The path of an added work tree's state inside the git directory, with a trailing slash; else
    empty."""
    root: Path | None = None
    """The top of the work tree; None without a repository."""
    named: tuple[Path, ...] = ()
    """Paths in the workspace that the configuration names: hooks, included files, programs."""


def git_paths(workspace: Path) -> GitPaths:
    """Return the git paths of a workspace (absolute, without links); blocks while reading files."""
    mark = workspace / ".git"
    look_along(mark)
    try:
        kind = os.lstat(mark).st_mode
    except OSError:
        return _around(workspace, mark)
    directories: tuple[Path, ...] = ()
    own = ""
    if stat.S_ISDIR(kind) and _is_repository(mark):
        directories = (mark,)
    elif stat.S_ISREG(kind):
        git = _resolved(git_directory(mark))
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
    """Return the git paths of a workspace inside a work tree, or `mark` alone if there is none.

    A work tree that contains the user's home does not count.
    """
    outer = find_repository(workspace)
    home = _resolved(Path(os.environ.get("HOME") or "/"))
    if outer is None or outer.root in (home, *home.parents) or not (outer.root / ".git").is_dir():
        return GitPaths(mark)
    paths = git_paths(outer.root)
    return GitPaths(mark, directories=paths.directories, own=paths.own, root=paths.root)


def _named(workspace: Path, git: Path) -> Iterator[Path]:
    """Yield the paths in the workspace that git's configuration names; hooks need not exist."""
    seen: set[Path] = set()
    settings = _configurations.get((workspace, git), lambda: [*_configuration(workspace, git)])
    for origin, key, value in settings:
        words = [value, *_words(value)]
        if key == "core.hookspath" or (origin and not origin.is_relative_to(git)):
            words.append(str(origin))
        for word in words:
            path = Path(os.path.normpath(workspace / os.path.expanduser(word)))  # noqa: PTH111
            inside = path.is_relative_to(workspace) and path != workspace
            known = key == "core.hookspath" and word == value
            if not inside or path in seen:
                continue
            look_along(path)
            if known or path.exists():
                seen.add(path)
                yield path


def _words(value: str) -> list[str]:
    """Split a value that may be a command."""
    try:
        return shlex.split(value.removeprefix("!"))
    except ValueError:
        return value.split()


def _configuration(workspace: Path, git: Path) -> Iterator[tuple[Path | None, str, str]]:
    """Yield the file, key and value of each line of the repository's configuration.

    git itself reads the configuration, with its includes. That executes nothing.
    """
    for name in ("config", "config.worktree"):
        look_along(git / name)
    arguments = ("-c", "safe.directory=*", f"--git-dir={git}", f"--work-tree={workspace}")
    asked = ("config", "--null", "--list", "--show-origin", "--includes", "--local")
    try:
        done = run_git((*arguments, *asked), workspace, GIT_CONFIG_S)
    except (OSError, subprocess.SubprocessError):
        return
    fields = os.fsdecode(done.stdout).split("\0")
    for origin, line in zip(fields[::2], fields[1::2], strict=False):
        key, _, value = line.partition("\n")
        file = origin.removeprefix("file:")
        named = Path(os.path.normpath(workspace / file)) if file != origin else None
        if named:
            look_along(named)
        yield named, key, value


def run_git(
    arguments: Sequence[str],
    directory: str | Path,
    timeout_s: float,
    variables: Mapping[str, str] = {},
) -> subprocess.CompletedProcess[bytes]:
    """Run git without the user's configuration; raises `OSError` and `SubprocessError`."""
    return subprocess.run(
        ("git", *arguments),
        capture_output=True,
        check=False,
        cwd=directory,
        env={"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent", **variables},
        stdin=subprocess.DEVNULL,
        timeout=timeout_s,
    )


def _common_of_worktree(git: Path, mark: Path) -> Path | None:
    """Return the git directory of the repository whose added work tree has its state in `git`."""
    common, back = _named_in(git / "commondir"), _named_in(git / "gitdir")
    if common is None or back is None or not _is_repository(common):
        return None
    return common if git.parent == common / "worktrees" and back == mark else None


def _is_of_submodule(git: Path, workspace: Path) -> bool:
    """Whether `git` is the git directory of a submodule that is checked out in `workspace`."""
    config = read_document(git / "config", None, CONFIG_BYTES_MAX)
    if config is None or config.cut or not _is_repository(git):
        return False
    named = _WORKTREE.findall(config.text.replace("\0", ""))
    texts = (text.strip().removeprefix('"').removesuffix('"') for text in named)
    places = {_resolved(git / text) for text in texts}
    return "modules" in git.parent.parts and places == {workspace}


def _named_in(file: Path) -> Path | None:
    """Return the path that a file of git contains; links are resolved except in the last part."""
    pointer = read_document(file, None, GIT_FILE_BYTES_MAX)
    if pointer is None or pointer.cut or "\0" in pointer.text:
        return None
    path = Path(os.path.normpath(file.parent / pointer.text.rstrip("\n")))
    return Path(_resolved(path.parent), path.name)


def _resolved(path: Path) -> Path:
    look_along(path)
    return Path(os.path.realpath(path))


def _is_repository(git: Path) -> bool:
    marks = [git / name for name in ("HEAD", "objects", "refs")]
    for mark in marks:
        look_along(mark)
    return all(mark.exists() for mark in marks)
