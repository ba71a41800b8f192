"""Finds the git directories of a workspace, and the files there that git's configuration names.

In a work tree and in a submodule, `.git` is a file that names a directory elsewhere. That directory
counts only if it names this workspace in turn. Any archive that is unpacked here may contain a
`.git` file, but only git itself writes to the git directory of another repository.
"""

import errno
import functools
import os
import re
import shlex
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tiller_daemon.sandbox.known_paths import between, is_there, root_of
from tiller_daemon.stamps import StampedCache, failed, look_along
from tiller_daemon.workspace.documents import read_document
from tiller_daemon.workspace.repository import GIT_FILE_BYTES_MAX, find_repository, git_directory

CONFIG_BYTES_MAX: Final = 64 * 1024

PATH_CHARS_MAX: Final = 4096
"""A longer value is no path (PATH_MAX in <linux/limits.h>)."""

GIT_CONFIG_S: Final = 5.0
"""How long git may take to print a configuration file; it takes milliseconds."""

CONFIG_FILES_MAX: Final = 20
"""The most configuration files that a repository may have, and that the user may have for all
repositories. If there are more, the configuration counts as unreadable."""

GIT_EXECUTED: Final = ("hooks", "config", "config.worktree", "info")
"""The parts of a git directory that make git execute something."""

_configurations: Final = StampedCache()
"""The configuration of the user and of each repository, because git takes milliseconds to print
it."""

_known: Final = StampedCache()
"""The git paths of each workspace, because a configuration names many words that may be paths."""

NESTED_MAX: Final = 50
"""The most repositories in a workspace whose configuration is read, which takes milliseconds each.
Builds without approval can't write to the others."""

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
    """Paths in the workspace that the configuration names: hooks, included files, programs. Hooks
    and included files may be missing."""
    programs: tuple[Path, ...] = ()
    """Missing paths in the workspace that the configuration names, perhaps as programs."""
    included: tuple[Path, ...] = ()
    """The files that the configuration includes, in the workspace or not; some may be missing."""
    is_uncertain: bool = False
    """Whether git may execute other files in the workspace: its configuration can't be read, or
    names the workspace itself as the directory of hooks, or the repository is bare."""
    is_unreadable: bool = False
    """Whether the configuration can't be read."""


class _Setting(NamedTuple):
    """A line of a configuration file."""

    file: Path
    key: str
    value: str

    @property
    def included(self) -> Path | None:
        """The file that this line includes, perhaps on a condition."""
        on_condition = self.key.startswith("includeif.") and self.key.endswith(".path")
        is_include = self.key == "include.path" or on_condition
        return _path(self.file.parent, self.value) if is_include else None


def git_paths(workspace: Path) -> GitPaths:
    """Return the git paths of a workspace (absolute, without links); blocks while reading files."""
    user = tuple(_user_files())
    return _known.get((workspace, _home(), user), lambda: _git_paths(workspace, user))


def _git_paths(workspace: Path, user: tuple[Path, ...]) -> GitPaths:
    paths = _directories(workspace)
    if not paths.directories:
        return paths
    git, own = paths.directories[0], paths.directories[0] / paths.own
    files = (git / "config", git / "config.worktree", own / "config.worktree")
    try:
        settings = [
            setting
            for read in (user, files)
            for setting in _configurations.get(read, functools.partial(_settings, read))
        ]
    except OSError as error:
        failed(error)
        return paths._replace(is_uncertain=True, is_unreadable=True)
    return _with_named(paths, workspace, settings)


def git_paths_around(workspace: Path, path: Path) -> Iterator[GitPaths]:
    """Yield the git paths of a workspace, and of the repositories in it that contain `path`."""
    yield git_paths(workspace)
    if root_of(path, (workspace,)):
        for directory in between(workspace, path):
            if is_there(directory / ".git") or _is_repository(directory):
                yield git_paths(directory)


def with_nested(paths: GitPaths, workspace: Path, nested: Sequence[Path]) -> GitPaths:
    """Return the paths with those that the configuration of `nested` repositories names.

    A nested repository is named itself if it can't be protected more precisely.
    """
    named, programs, included = [*paths.named], [*paths.programs], [*paths.included]
    for place in nested[:NESTED_MAX]:
        git = git_paths(place)
        targets = [_resolved(path) for path in git.named]
        if git.is_uncertain or targets != [*git.named]:
            named.append(place)
        named += (path for path in targets if root_of(path, (workspace,)))
        programs += git.programs
        included += git.included
    named += nested[NESTED_MAX:]
    return paths._replace(named=tuple(named), programs=tuple(programs), included=tuple(included))


def _directories(workspace: Path) -> GitPaths:
    """Return the git paths of a workspace without those that the configuration names."""
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
    is_link = stat.S_ISLNK(kind)
    return GitPaths(mark, is_link=is_link, directories=directories, own=own, root=workspace)


def _around(workspace: Path, mark: Path) -> GitPaths:
    """Return the git paths of a workspace inside a work tree, or `mark` alone if there is none.

    A repository that contains the user's home does not count.
    """
    outer = find_repository(workspace)
    home = _resolved(_home())
    for directory in (workspace, *workspace.parents):
        if directory in (home, *home.parents):
            break
        if outer and directory == outer.root:
            if not (outer.root / ".git").is_dir():
                break
            return _directories(outer.root)._replace(mark=mark, is_link=False)
        if _is_repository(directory):
            # No build belongs there, and a bare repository consists of files that git uses.
            executed = (directory / name for name in GIT_EXECUTED)
            named = (directory / "hooks", *filter(is_there, executed))
            return GitPaths(mark, root=directory, named=named, is_uncertain=True)
    return GitPaths(mark)


def _with_named(paths: GitPaths, workspace: Path, settings: Sequence[_Setting]) -> GitPaths:
    """Return the paths with those in the workspace that the settings name."""
    git, root = paths.directories[0], paths.root or workspace
    included = [path for one in settings if (path := one.included) and _can_exist(path)]
    places = [one.value for one in settings if one.key == "core.hookspath" and one.value]
    hooks = [_path(root, place) for place in places]
    # Hooks of a push to this repository run in its git directory.
    pushed = (_path(git / paths.own, place) for place in places)
    hooks += [path for path in pushed if not path.is_relative_to(git)]
    values = dict.fromkeys(one.value for one in settings)
    words = dict.fromkeys(word for value in values for word in (value, *_words(value)))
    possible = ((word, _path(root, word)) for word in words if len(word) < PATH_CHARS_MAX)
    inside = [(word, path) for word, path in possible if root_of(path, (workspace,))]
    # Other words name branches and settings more often than directories.
    programs = [path for word, path in inside if "/" in word or (is_there(path) and path.is_file())]
    named = (*filter(_can_exist, hooks), *included, *filter(is_there, programs))
    missing = (path for path in programs if not is_there(path) and _can_exist(path))
    return paths._replace(
        named=tuple(path for path in dict.fromkeys(named) if root_of(path, (workspace,))),
        programs=tuple(missing),
        included=tuple(dict.fromkeys(map(_resolved, included))),
        is_uncertain=workspace in hooks,
    )


def _path(directory: Path, name: str) -> Path:
    """Return the path that git uses for a name in its configuration, relative to a directory."""
    name = os.path.expanduser(name.removeprefix(":(optional)"))  # noqa: PTH111
    return Path(os.path.normpath(directory / name))


def _user_files() -> Iterator[Path]:
    """Yield the configuration files that git reads for every repository, as in git-config(1)."""
    yield Path("/etc/gitconfig")
    if only := os.environ.get("GIT_CONFIG_GLOBAL"):
        yield Path(only)
        return
    home = _home()
    yield Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config", "git", "config")
    yield home / ".gitconfig"


def _home() -> Path:
    return Path(os.environ.get("HOME") or "/")


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


def _settings(files: Iterable[Path]) -> Sequence[_Setting]:
    """Return the settings in configuration files, and in the files that they include.

    The condition of an include does not matter, because a command may switch to another branch.
    Raises `OSError`.
    """
    settings: list[_Setting] = []
    waiting = [*dict.fromkeys(files)]
    for file in waiting:
        if len(waiting) > CONFIG_FILES_MAX:
            raise OSError(f"There are more than {CONFIG_FILES_MAX} configuration files")
        look_along(file)
        # `exists` does not fail for a long name.
        if not os.path.exists(file) or str(file) == os.devnull:  # noqa: PTH110
            continue
        for key, value in list_settings(file, GIT_CONFIG_S):
            setting = _Setting(file, key, value)
            settings.append(setting)
            if setting.included and setting.included not in waiting:
                waiting.append(setting.included)
    return settings


def list_settings(config: Path, timeout_s: float) -> Iterator[tuple[str, str]]:
    """Yield the keys and values in a configuration file of git, without its includes.

    git itself reads the file; that executes nothing. Raises `OSError`.
    """
    if not config.is_file():
        raise OSError(f"{config} is not a file")
    try:
        done = run_git(("config", "--file", str(config), "--null", "--list"), "/", timeout_s)
        done.check_returncode()
    except (OSError, subprocess.SubprocessError) as error:
        # Without an error number, so that the failure does not count as a missing file.
        raise OSError(f"git could not read {config} ({error})") from error
    for line in os.fsdecode(done.stdout).split("\0")[:-1]:
        key, _, value = line.partition("\n")
        yield key, value


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
    return all(is_there(git / name) for name in ("HEAD", "objects", "refs"))
