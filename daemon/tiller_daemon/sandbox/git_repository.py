"""Asks git about the repository of a workspace, and which files there make git execute something.

git itself answers, with the configuration that the user's own git would read. So nothing here
interprets repositories or configuration. The commands execute nothing that a repository names.
"""

import os
import subprocess
import time
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, cast

from tiller_daemon.isolation import environment_of_commands, find_program
from tiller_daemon.stamps import Stamp, take_stamps

GIT_S: Final = 5.0
"""How long git may take to answer. It takes milliseconds, unless it reads from a pipe."""

NO_REPOSITORY: Final = b"not a git repository"

UNANSWERED: Final = "git does not answer"
"""The problem of a repository with a pipe. Git is asked again only after a file has changed."""

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

T = TypeVar("T")

_FORBIDDEN: Final = frozenset((".git", "..", ".", ""))
"""What no part of a path in an index may be, in lower case."""

KNOWN_MAX: Final = 256
"""How many answers are kept; the oldest is dropped first."""

_known: Final[dict[Hashable, "_Known"]] = {}
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


class _Known(NamedTuple):
    """An answer of git, and the files on which it depends."""

    answer: Any
    files: tuple[Path, ...]
    stamps: tuple[Stamp, ...] | None


def find_git(workspace: Path) -> GitRepository:
    """Return the repository of a workspace (absolute, without links); blocks while git runs."""
    return _kept(workspace, partial(_find, workspace), partial(_files_of, workspace))


def read_index(git: GitRepository) -> GitIndex:
    """Return what the index of a repository names; blocks while git reads it."""
    if git.top is None or not git.directories:
        return GitIndex()
    index = git.directories[-1] / "index"
    try:
        return _kept(git, partial(_read_index, git.top), lambda _: (index,))
    except OSError:
        return GitIndex(is_unsafe=True)


def _kept(key: Hashable, ask: Callable[[], T], files_of: Callable[[T], tuple[Path, ...]]) -> T:
    """Return the last answer to `ask`; ask again if one of its files has changed.

    An answer without files is not kept. May be called in any thread.
    """
    now_ns, known = time.time_ns(), _known.pop(key, None)
    if known is None or known.stamps is None or known.stamps != take_stamps(known.files, now_ns):
        answer = ask()
        files = files_of(answer)
        known = _Known(answer, files, take_stamps(files, now_ns) if files else None)
    _known[key] = known
    if len(_known) > KNOWN_MAX:
        _known.pop(next(iter(_known)), None)
    return cast("T", known.answer)


def _files_of(workspace: Path, git: GitRepository) -> tuple[Path, ...]:
    """Return the files on which git's answer depends; none if the answer should not be kept."""
    if git.problem and git.problem != UNANSWERED:
        return ()
    home = Path(os.environ.get("HOME") or "/")
    base = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    marks = [directory / ".git" for directory in (workspace, *workspace.parents)]
    heads = (directory / "HEAD" for directory in (*marks, *git.directories))
    users = (home / ".gitconfig", base / "git/config", Path("/etc/gitconfig"))
    return (*marks, *users, *heads, *git.executed)


def _find(workspace: Path) -> GitRepository:
    try:
        answer = _ask(
            workspace,
            *("rev-parse", "--path-format=absolute", "--is-bare-repository", "--git-dir"),
            *("--git-common-dir", "--show-toplevel"),
        )
    except OSError as error:
        if NO_REPOSITORY in error.args or isinstance(error, FileNotFoundError):
            return GitRepository()
        is_slow = isinstance(error, TimeoutError)
        return GitRepository(problem=UNANSWERED if is_slow else "git can't read the repository")
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
    except OSError:
        return GitRepository(top, problem="git's configuration can't be read")
    parts = (one / name for one in (common, own) for name in EXECUTED)
    return GitRepository(top, directories, tuple(dict.fromkeys((*parts, *configured))))


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


def _read_index(top: Path) -> GitIndex:
    entries = _ask(top, "ls-files", "--stage", "-z").split("\0")
    links = [entry.partition("\t")[2] for entry in entries if entry.startswith("160000 ")]
    # git checks paths when it adds them to an index, but not when it reads an index.
    parts = (entry.partition("\t")[2].casefold().split("/") for entry in entries if entry)
    is_unsafe = any(not _FORBIDDEN.isdisjoint(one) for one in parts)
    return GitIndex(tuple(top / link for link in links), is_unsafe)


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
        raise TimeoutError(str(error)) from error
    if done.returncode and not done.stdout.startswith(b"true\n"):
        known = NO_REPOSITORY if NO_REPOSITORY in done.stderr else done.stderr
        raise OSError(known)
    return os.fsdecode(done.stdout)
