"""Asks git about the repository of a workspace, and which files there make git execute something.

git itself answers, with the configuration that the user's own git would read. So nothing here
interprets repositories or configuration. The commands execute nothing that a repository names.
"""

import os
import subprocess
from collections.abc import Iterator
from errno import ENOENT
from pathlib import Path
from typing import Final, NamedTuple

from tiller_daemon.isolation import environment_of_commands, find_program
from tiller_daemon.stamps import StampedCache, failed, look_along, look_at

GIT_S: Final = 5.0
"""How long git may take to answer. It takes milliseconds, unless it reads from a pipe."""

NO_REPOSITORY: Final = b"not a git repository"

EXECUTED: Final = (
    "config", "config.worktree", "hooks", "commondir", "gitdir", "modules", "worktrees", "branches",
    "remotes",
)  # fmt: skip
"""The entries of a git directory that make git execute something, or lead it to such files."""

VARIABLES: Final = (
    "HOME",
    "XDG_CONFIG_HOME",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
)
"""The variables by which git finds the user's configuration."""

_FORBIDDEN: Final = frozenset((".git", "..", ".", ""))
"""What no part of a path in an index may be, in lower case."""

_known: Final = StampedCache()
"""The answers about each workspace, as git takes milliseconds."""


class GitRepository(NamedTuple):
    """The repository of a workspace. All paths but `executed` are without links."""

    top: Path | None = None
    """The top of the work tree, in or above the workspace; None without a repository."""
    directories: tuple[Path, ...] = ()
    """The git directories of this work tree alone or of all its work trees."""
    executed: tuple[Path, ...] = ()
    """Files and directories that make git execute something, whether they exist or not."""
    problem: str = ""
    """Why git's answers don't tell what git would execute, as a clause for the user; or empty."""


class GitIndex(NamedTuple):
    """What an index makes git do in a work tree."""

    links: tuple[Path, ...] = ()
    """The gitlinks: directories in which git looks for a repository of its own."""
    is_unsafe: bool = False
    """Whether the index would make git write to a git directory, or outside the work tree."""


def find_git(workspace: Path) -> GitRepository:
    """Return the repository of a workspace (absolute, without links); blocks while git runs."""
    return _known.get(("repository", workspace), lambda: _find(workspace))


def read_index(git: GitRepository) -> GitIndex:
    """Return what the index of a repository names; blocks while git reads it."""
    return _known.get(("index", git), lambda: _read_index(git))


def _find(workspace: Path) -> GitRepository:
    for directory in (workspace, *workspace.parents):
        look_at(directory / ".git")
    _look_at_user_files()
    try:
        answer = _ask(
            workspace,
            *("rev-parse", "--path-format=absolute", "--is-bare-repository", "--git-dir"),
            *("--git-common-dir", "--show-toplevel"),
        )
    except OSError as error:
        if NO_REPOSITORY in error.args or isinstance(error, FileNotFoundError):
            return GitRepository()
        failed(error)
        return GitRepository(problem="git can't read the repository")
    is_bare, *named = answer.split("\n")
    if is_bare == "true":
        return GitRepository(problem="the workspace is in a bare repository")
    own, common, top = (Path(os.path.realpath(path)) for path in named[:3])
    if not os.path.lexists(top / ".git") or not workspace.is_relative_to(top):
        return GitRepository(problem="git's work tree is not the workspace")
    directories = tuple(dict.fromkeys((common, own)))
    try:
        configured = tuple(_configuration(top))
        if not (all(one.is_relative_to(top) for one in directories) or _belongs(own, top)):
            # Any archive may contain a `.git` file that names the repository of another project.
            directories = ()
    except OSError as error:
        failed(error)
        return GitRepository(top, problem="git's configuration can't be read")
    parts = (one / name for one in (common, own) for name in EXECUTED)
    executed = (*parts, *configured)
    for path in (common / "HEAD", own / "HEAD", *executed):
        look_along(path)
    return GitRepository(top, directories, tuple(dict.fromkeys(executed)))


def _configuration(top: Path) -> Iterator[Path]:
    """Yield the files of git's configuration, those that it may include, and its hooks."""
    words = _ask(top, "config", "--list", "--show-origin", "-z").split("\0")
    for origin, setting in zip(words[::2], words[1::2], strict=False):
        kind, _, name = origin.partition(":")
        if kind != "file":
            continue
        file = top / name
        yield file
        key, _, value = setting.partition("\n")
        if key.startswith("include") and key.endswith(".path"):
            # The condition does not matter, as a command may switch branches.
            yield file.parent / os.path.expanduser(value)  # noqa: PTH111 - may be no path
        elif key == "core.hookspath":
            # git goes to the top before it runs a hook.
            yield top / os.path.expanduser(value)  # noqa: PTH111 - may be no path


def _belongs(own: Path, top: Path) -> bool:
    """Whether a git directory outside a work tree names this work tree in turn."""
    trees = _ask(top, "worktree", "list", "--porcelain", "-z").split("\0")
    if f"worktree {top}" in trees:
        return True
    try:
        return _ask(own, "rev-parse", "--show-toplevel").rstrip("\n") == str(top)
    except OSError:
        return False


def _read_index(git: GitRepository) -> GitIndex:
    if git.top is None or not git.directories:
        return GitIndex()
    look_at(git.directories[-1] / "index")
    try:
        entries = _ask(git.top, "ls-files", "--stage", "-z").split("\0")
    except OSError as error:
        failed(error)
        return GitIndex(is_unsafe=True)
    links = [entry.partition("\t")[2] for entry in entries if entry.startswith("160000 ")]
    # git checks paths when it adds them to an index, but not when it reads an index.
    parts = (entry.partition("\t")[2].casefold().split("/") for entry in entries if entry)
    is_unsafe = any(not _FORBIDDEN.isdisjoint(one) for one in parts)
    return GitIndex(tuple(git.top / link for link in links), is_unsafe)


def _look_at_user_files() -> None:
    home = Path(os.environ.get("HOME") or "/")
    base = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    for path in (home / ".gitconfig", base / "git/config", Path("/etc/gitconfig")):
        look_along(path)


def _ask(directory: Path, *arguments: str) -> str:
    """Return what git prints; raises `OSError`, with `NO_REPOSITORY` if there is none."""
    given = environment_of_commands()
    variables = {name: given[name] for name in VARIABLES if name in given}
    variables |= {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
    # A partial clone would fetch what it lacks.
    options = ("-c", "core.fsmonitor=false", "-c", "protocol.allow=never")
    try:
        done = subprocess.run(
            (find_program("git") or "git", *options, *arguments),
            capture_output=True,
            check=False,
            cwd=directory,
            env=variables,
            stdin=subprocess.DEVNULL,
            timeout=GIT_S,
        )
    except subprocess.TimeoutExpired as error:
        # Such an answer counts until a file changes, so that git is not asked again and again.
        raise OSError(ENOENT, str(error)) from error
    if done.returncode and not done.stdout.startswith(b"true\n"):
        known = NO_REPOSITORY if NO_REPOSITORY in done.stderr else done.stderr
        raise OSError(known)
    return os.fsdecode(done.stdout)
