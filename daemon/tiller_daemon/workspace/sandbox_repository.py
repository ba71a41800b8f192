"""What a command may write of the repository at the root of a workspace, and what is kept from it.

In a second work tree and in a submodule `.git` is a file, and what git writes lies elsewhere. That
place is opened only when it says itself that it belongs to this workspace: a `.git` file comes with
whatever was unpacked here, but nobody else can write into the git directory of another repository.
Either way the file is kept as it is, as another one would lead git to another configuration.
"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tiller_daemon.workspace.documents import names_in, read_document
from tiller_daemon.workspace.repository import GIT_FILE_BYTES_MAX, git_directory

MODULES_MAX: Final = 50
"""Submodules that commands may commit in; each costs three mounts. With more of them in none."""

MODULES_DEPTH_MAX: Final = 6
"""Names of submodules hold slashes, and submodules have submodules."""

SHARED: Final = ("objects", "refs", "logs", "packed-refs", "packed-refs.lock")
"""What work trees write in the git directory that they share."""

CONFIG_BYTES_MAX: Final = 64 * 1024

_WORKTREE: Final = re.compile(r"^\s*worktree\s*=\s*\"?(.+?)\"?\s*$", re.MULTILINE | re.IGNORECASE)


class Kept(NamedTuple):
    """What is writable beside the workspace, and what is not although it lies in what is.

    `own` is the git directory that is this workspace's alone, where it is not in there. `folders`
    and `files` can't be made either, `if_there` is kept only where it is there, `never_made` can't
    be prevented and is taken away afterwards.
    """

    own: Path | None = None
    writable: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()
    files: tuple[Path, ...] = ()
    if_there: tuple[Path, ...] = ()
    never_made: tuple[Path, ...] = ()


def kept_of_repository(workspace: Path) -> Kept:
    """Look at `.git` in a workspace (absolute, links followed); blocks for some file reads."""
    mark = workspace / ".git"
    try:
        kind = os.lstat(mark).st_mode
    except OSError:
        kind = stat.S_IFDIR
    if stat.S_ISLNK(kind):
        return _of_git_directory(Path(os.path.realpath(mark)))._replace(if_there=(mark,))
    if not stat.S_ISREG(kind):
        return _of_git_directory(mark)
    git = Path(os.path.realpath(git_directory(mark)))
    alone = Kept(if_there=(mark,))
    if common := _common_of_worktree(git, mark):
        found = _of_worktree(git, common, workspace)
    elif _is_of_submodule(git, workspace):
        found = _of_git_directory(git)._replace(own=git, writable=(git,))
    else:
        return alone
    return found._replace(if_there=(mark, *found.if_there))


def _of_git_directory(git: Path) -> Kept:
    """A whole one: all of it but what makes git run something."""
    modules, closed = _modules_in(git)
    owners = (git, *modules)
    return Kept(
        folders=tuple(one / "hooks" for one in owners),
        files=tuple(one / name for one in owners for name in ("config", "config.worktree")),
        if_there=(git / "worktrees", *closed),
        # Leads git to another configuration, and no stand-in is possible.
        never_made=tuple(one / "commondir" for one in owners),
    )


def _of_worktree(git: Path, common: Path, workspace: Path) -> Kept:
    """Of a second work tree: its own directory, and what it shares with the first one."""
    shared = _of_git_directory(common)
    modules, closed = _modules_in(git)
    first = [common / "HEAD", common / "index"]
    if common in workspace.parents:
        # A bare repository with its work trees in it: the others are nobody's business here.
        others = (common / name for name in names_in(common) if name not in SHARED)
        first += [path for path in others if path != workspace]
    return Kept(
        own=git,
        writable=(git, common),
        folders=(*shared.folders, *(one / "hooks" for one in modules)),
        files=(*shared.files, git / "config.worktree", *(one / "config" for one in modules)),
        if_there=(*shared.if_there, *first, git / "commondir", git / "gitdir", *closed),
        never_made=shared.never_made,
    )


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
    return all((git / name).exists() for name in ("HEAD", "objects", "refs", "config"))


def _modules_in(git: Path) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """The git directories of submodules, and those folders of them that are closed as a whole."""
    found = tuple(_modules(git / "modules", MODULES_DEPTH_MAX))
    return ((), (git / "modules",)) if len(found) > MODULES_MAX else (found, ())


def _modules(folder: Path, depth: int) -> Iterator[Path]:
    """The git directories of submodules in a folder, and of theirs."""
    for name in names_in(folder) if depth else ():
        path = folder / name
        if path.is_symlink() or not path.is_dir():
            continue
        if (path / "HEAD").exists():
            yield path
            yield from _modules(path / "modules", depth - 1)
        else:
            yield from _modules(path, depth - 1)
