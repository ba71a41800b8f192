"""Paths that a model names: where they really lead, and opening what is there without a hang.

Every link is followed before a path is judged, and none after it: who puts a link in the place of
a directory meanwhile leads nobody out. Reading and replacing whole files is in `whole_files`.
"""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

PATH_BYTES_MAX: Final = 4096
"""The longest path Linux takes (`PATH_MAX`); a longer one is refused before the disk is asked."""

_LISTED: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""How a directory is opened whose names are read."""

DIRECTORY: Final = _LISTED | getattr(os, "O_PATH", os.O_RDONLY)
"""How a directory on the way is opened; `O_PATH` needs no right to list it."""


class PathProblem(Exception):
    """A path that can't be used as asked; the message is a sentence for the model."""


class Location(NamedTuple):
    """Where a path leads: absolute, every link followed.

    `text` is what rules are matched against and people are shown: relative to the workspace with
    `/` between names (`.` for the workspace itself), or absolute when `inside` is False.
    """

    path: Path
    inside: bool
    text: str


def locate(workspace: Path, path: str) -> Location:
    """Follow `path`, relative to `workspace` or absolute, to where it leads.

    Nothing has to be there. Raises `PathProblem` for text that can't be a path.
    """
    if not _is_path(path):
        shown = path[:100].encode(errors="replace").decode()
        raise PathProblem(
            f"{shown!r} is no path: a path has 1 to {PATH_BYTES_MAX} bytes and no NUL."
        )
    # Text, not `Path`s: two calls of this are a third of what a short read costs.
    try:
        root = os.path.realpath(workspace)
        found = os.path.realpath(os.path.join(root, path))  # noqa: PTH118
    except OSError:
        # A link that is none any more when it is looked at.
        raise PathProblem(f"{path} changed while it was followed. Try again.") from None
    above = root.rstrip("/") + "/"
    inside = found == root or found.startswith(above)
    shown = found[len(above) :] or "." if inside else found
    return Location(Path(found), inside, printable(shown))


def text_of(workspace: Path, path: Path) -> str:
    """Return the `Location.text` of a path; both are absolute, with links followed."""
    if path.is_relative_to(workspace):
        return printable(path.relative_to(workspace))
    return printable(path)


def printable(path: Path | str) -> str:
    """Return a path as text that can be stored and sent, whatever bytes its name has."""
    return os.fsencode(path).decode(errors="replace")


@contextmanager
def opened_parent(location: Location, *, make: bool = False) -> Generator[tuple[int, str]]:
    """Give a descriptor of the directory that a location is in, and the name of it there.

    With `make` missing directories are made. Failures of the block, too, become `PathProblem`.
    """
    with os_errors_explained(location):
        opened = open_parent(location, make=make)
        try:
            yield opened, location.path.name or "."
        finally:
            os.close(opened)


def open_parent(location: Location, *, make: bool = False) -> int:
    """Open the directory that a location is in and return its descriptor; the caller closes it.

    The way is gone step by step and follows no link: `locate` has followed those that there were.
    Raises `PathProblem` and `OSError`.
    """
    opened = os.open("/", DIRECTORY)
    for name in location.path.parent.parts[1:]:
        above = opened
        try:
            opened = _open_below(above, name, location, make=make)
        finally:
            os.close(above)
    return opened


@contextmanager
def opened_directory(location: Location, *, listed: bool = False) -> Generator[int]:
    """Give a descriptor of a directory, by which it stays this one whatever takes its place.

    Without `listed` it is only a place to begin from. Failures of the block, too, become
    `PathProblem`.
    """
    with opened_parent(location) as (parent, name):
        opened = os.open(name, _LISTED if listed else DIRECTORY, dir_fd=parent)
        try:
            yield opened
        finally:
            os.close(opened)


def open_regular(location: Location) -> int:
    """Open a regular file for reading and return its descriptor; the caller closes it.

    Raises `PathProblem`.
    """
    with opened_parent(location) as (parent, name):
        return open_regular_in(parent, name, location)


def open_regular_in(parent: int, name: str, location: Location) -> int:
    """Open a regular file in a directory that is open; raises `PathProblem` and `OSError`.

    Nothing else is opened: a FIFO would hang and a device may act.
    """
    require_regular(os.stat(name, dir_fd=parent, follow_symlinks=False), location)
    how = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    opened = os.open(name, how, dir_fd=parent)
    try:
        require_regular(os.fstat(opened), location)
    except PathProblem:
        os.close(opened)
        raise
    return opened


@contextmanager
def os_errors_explained(location: Location) -> Generator[None]:
    """Make a `PathProblem` of what the system refuses in the block."""
    try:
        yield
    except OSError as error:
        raise explain(error, location) from error


def require_regular(found: os.stat_result, location: Location) -> None:
    """Raise `PathProblem` unless `found`, the state of what is there, is that of a plain file."""
    if stat.S_ISREG(found.st_mode):
        return
    if stat.S_ISDIR(found.st_mode):
        raise explain(IsADirectoryError(), location)
    kinds = {
        stat.S_IFIFO: "a FIFO",
        stat.S_IFCHR: "a character device",
        stat.S_IFBLK: "a block device",
        stat.S_IFSOCK: "a socket",
        stat.S_IFLNK: "a link that leads nowhere (a loop)",
    }
    kind = kinds.get(stat.S_IFMT(found.st_mode), "no file")
    raise PathProblem(f"{location.text} is {kind}, not a regular file; it can't be read or edited.")


def explain(error: OSError, location: Location) -> PathProblem:
    """Return a failed access as a sentence that names the path."""
    match error:
        case FileNotFoundError():
            said = "does not exist"
        case NotADirectoryError() | FileExistsError():
            said = "does not exist: a part of its path is a file, not a directory"
        case IsADirectoryError():
            said = "is a directory, not a file; use `ls` to see what is in it"
        case PermissionError():
            said = "can't be accessed: permission denied"
        case _:
            said = f"can't be accessed: {error.strerror or error}"
    return PathProblem(f"{location.text} {said}.")


def _open_below(parent: int, name: str, location: Location, *, make: bool) -> int:
    try:
        return os.open(name, DIRECTORY, dir_fd=parent)
    except FileNotFoundError:
        if not make:
            raise
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
        return _open_below(parent, name, location, make=False)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        if not stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise NotADirectoryError from error
        raise PathProblem(
            f"{location.text} was left alone: {name} on its way has become a link meanwhile. "
            "Look where it leads, then try again."
        ) from error


def _is_path(path: str) -> bool:
    try:
        return 0 < len(os.fsencode(path)) <= PATH_BYTES_MAX and "\0" not in path
    except UnicodeEncodeError:
        return False
