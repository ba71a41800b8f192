"""Finds the git directories of a workspace, and the files that git's configuration names.

In a work tree and in a submodule, `.git` is a file that names a directory elsewhere. That directory
counts only if it names this workspace in turn. Any archive that is unpacked here may contain a
`.git` file, but only git itself writes to the git directory of another repository.
"""

import errno
import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tiller_daemon.sandbox.git_configuration import (
    CONFIG_BYTES_MAX,
    Setting,
    config_path,
    read_settings,
    user_files,
    user_home,
)
from tiller_daemon.sandbox.known_paths import between, is_there, root_of
from tiller_daemon.stamps import StampedCache, failed, look_along
from tiller_daemon.workspace.documents import read_document
from tiller_daemon.workspace.repository import GIT_FILE_BYTES_MAX, find_repository, git_directory

PATH_CHARS_MAX: Final = 4096
"""A longer value is no path (PATH_MAX in <linux/limits.h>)."""

NESTED_MAX: Final = 200
"""The most repositories in a workspace whose configuration is read."""

GIT_EXECUTED: Final = ("hooks", "config", "config.worktree", "info")
"""The parts of a git directory that make git execute something."""

_known: Final = StampedCache()
"""The git paths of each workspace, because a configuration names many words that may be paths."""

_WORKTREE: Final = re.compile(r"^[ \t]*worktree[ \t]*=(.*)$", re.MULTILINE | re.IGNORECASE)
"""A setting in the configuration of git. The search takes linear time, whatever the text is."""


class GitPaths(NamedTuple):
    """The paths that git uses for a workspace. Only `mark` and `named` may contain links."""

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
    """The top of the work tree, or the bare repository; None without a repository."""
    named: tuple[Path, ...] = ()
    """What git executes because the configuration names it, in the workspace or not: hooks,
    included files, and existing programs in the workspace. Each path that leads through a link is
    there twice, with and without the link."""
    included: tuple[Path, ...] = ()
    """The configuration files that another one includes; some may be missing."""
    is_bare: bool = False
    """Whether the workspace is in a bare repository, all of whose files git uses."""
    problem: str = ""
    """Why git may execute other files in the workspace, as a clause for the user; else empty."""


class _Repository(NamedTuple):
    """The repository that git uses in a workspace."""

    git: Path
    """The git directory of this work tree, without links."""
    top: Path
    """The top of the work tree, or the bare repository."""


def git_paths(workspace: Path, *, with_user: bool = True, is_nested: bool = False) -> GitPaths:
    """Return the git paths of a workspace (absolute, without links); blocks while reading files.

    The user's configuration counts only `with_user`. Programs that the configuration names are not
    looked for if the workspace `is_nested` in another.
    """
    user = tuple(user_files()) if with_user else ()
    key = (workspace, is_nested, user_home(), user)
    return _known.get(key, lambda: _git_paths(workspace, user, is_nested=is_nested))


def _git_paths(workspace: Path, user: tuple[Path, ...], *, is_nested: bool) -> GitPaths:
    paths, repository = _find(workspace)
    files: tuple[Path, ...] = ()
    parts: list[Path] = []
    if repository:
        common = _named_in(repository.git / "commondir") or repository.git
        files = (common / "config", common / "config.worktree", repository.git / "config.worktree")
        if user and not paths.directories:
            # The git directory does not name this workspace. An approved command may change it.
            places = dict.fromkeys((repository.git, common))
            parts += filter(is_there, (one / name for one in places for name in GIT_EXECUTED))
    try:
        own = read_settings(files, naming=is_nested)
        settings = (*read_settings(user, naming=True), *own)
    except OSError as error:
        failed(error)
        return paths._replace(problem="git's configuration can't be read")
    included = [path for one in settings if (path := one.included) and _can_exist(path)]
    if not user_home().is_relative_to(workspace):
        # A home contains them anyway, and builds need approval there.
        included += user
    git, top = repository or (workspace, workspace)
    hooks = [*filter(_can_exist, _hooks(settings, top, git))]
    programs = () if is_nested else _programs(own, workspace, top)
    problem = ""
    if paths.is_bare and not is_nested:
        problem = "the workspace is in a bare repository"
    elif any(workspace.is_relative_to(_normal(path)) for path in hooks):
        problem = "the workspace is in git's directory of hooks"
    return paths._replace(
        named=(*paths.named, *parts, *_with_and_without_links((*hooks, *included)), *programs),
        included=tuple(dict.fromkeys(map(_resolved, included))),
        problem=problem,
    )


def git_paths_around(workspace: Path, path: Path) -> Iterator[GitPaths]:
    """Yield the git paths of a workspace, and of the repositories in it that contain `path`."""
    yield git_paths(workspace)
    if root_of(path, (workspace,)):
        for directory in between(workspace, path):
            if is_there(directory / ".git") or is_bare(directory):
                yield git_paths(directory, is_nested=True)


def nested_git_paths(places: Sequence[Path]) -> tuple[GitPaths, ...]:
    """Return the git paths of repositories that are nested in a workspace."""
    return tuple(git_paths(place, is_nested=True) for place in places[:NESTED_MAX])


def with_nested(paths: GitPaths, workspace: Path, nested: Sequence[GitPaths]) -> GitPaths:
    """Return the paths, together with what is named in the configuration of nested repositories.

    A whole nested repository is added if it can't be protected more precisely.
    """
    named, included = [*paths.named], [*paths.included]
    for git in nested:
        inside = [path for path in git.named if root_of(path, (workspace,))]
        if git.is_link or git.problem or any(_resolved(path) != path for path in inside):
            named.append(git.mark.parent)
        named += git.named
        included += git.included
    return paths._replace(named=tuple(named), included=tuple(included))


def _find(workspace: Path) -> tuple[GitPaths, _Repository | None]:
    """Return the git paths of a workspace without those that the configuration names."""
    mark = workspace / ".git"
    look_along(mark)
    try:
        kind = os.lstat(mark).st_mode
    except OSError:
        return _around(workspace, mark)
    directories: tuple[Path, ...] = ()
    own = ""
    if stat.S_ISDIR(kind):
        # git ignores such a directory, for example a placeholder of another command.
        if not _is_repository(mark):
            return _around(workspace, mark)
        directories = (mark,)
    git = _resolved(git_directory(mark))
    if stat.S_ISREG(kind):
        if common := _common_of_worktree(git, mark):
            directories, own = (common,), f"{git.relative_to(common)}/"
        elif _is_of_submodule(git, workspace):
            directories = (git,)
    is_link = stat.S_ISLNK(kind)
    paths = GitPaths(mark, is_link=is_link, directories=directories, own=own, root=workspace)
    return paths, _Repository(git, workspace)


def _around(workspace: Path, mark: Path) -> tuple[GitPaths, _Repository | None]:
    """Return the git paths of a workspace without a repository of its own.

    It may be inside one. If that contains the user's home, or its `.git` is no directory, only its
    configuration counts.
    """
    outer = find_repository(workspace.parent if is_there(mark) else workspace)
    home = _resolved(user_home())
    for directory in (workspace, *workspace.parents):
        if outer and directory == outer.root:
            paths, repository = _find(directory)
            if directory in (home, *home.parents) or not (directory / ".git").is_dir():
                paths = GitPaths(mark)
            return paths._replace(mark=mark, is_link=False), repository
        if is_bare(directory) and directory not in (home, *home.parents):
            named = tuple(filter(is_there, (directory / name for name in GIT_EXECUTED)))
            paths = GitPaths(mark, root=directory, named=named, is_bare=True)
            return paths, _Repository(directory, directory)
    return GitPaths(mark), None


def _hooks(settings: Iterable[Setting], top: Path, git: Path) -> Iterator[Path]:
    """Yield the directories of hooks that the settings name, and those of templates for hooks."""
    keys = ("core.hookspath", "init.templatedir")
    values = (one.value for one in settings if one.key in keys and one.value)
    for value in dict.fromkeys(values):
        yield config_path(top, value)
        # Hooks of a push to a repository run in its git directory, which is protected as a whole.
        pushed = _normal(config_path(git, value))
        if not pushed.is_relative_to(git):
            yield pushed


def _programs(settings: Iterable[Setting], workspace: Path, top: Path) -> Iterator[Path]:
    """Yield the existing paths in a workspace that words of the settings name."""
    values = dict.fromkeys(one.value for one in settings)
    words = dict.fromkeys(word for value in values for word in (value, *_words(value)))
    possible = (_normal(config_path(top, word)) for word in words if len(word) < PATH_CHARS_MAX)
    inside = (path for path in possible if root_of(path, (workspace,)))
    return filter(is_there, dict.fromkeys(inside))


def _normal(path: Path) -> Path:
    return Path(os.path.normpath(path))


def _with_and_without_links(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield each path, also as it is without links."""
    return iter(dict.fromkeys(one for path in paths for one in (_normal(path), _resolved(path))))


def _can_exist(path: Path) -> bool:
    """Whether the system has files with such a long name, so that a command could create one."""
    try:
        os.lstat(path)
    except OSError as error:
        return error.errno != errno.ENAMETOOLONG
    return True


def _words(value: str) -> list[str]:
    """Split a value that may be a command."""
    try:
        return shlex.split(value.removeprefix("!"))
    except ValueError:
        return value.split()


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


def is_bare(directory: Path) -> bool:
    """Whether git may take a directory without `.git` for a repository."""
    return is_there(directory / "HEAD") and (
        is_there(directory / "commondir") or _is_repository(directory)
    )


def _is_repository(git: Path) -> bool:
    return all(is_there(git / name) for name in ("HEAD", "objects", "refs"))
