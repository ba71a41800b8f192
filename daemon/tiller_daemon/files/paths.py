"""Resolves paths that a model names, and opens files without ever hanging.

All links are resolved before a path is checked, and none are followed afterwards. So if a directory
is replaced by a link in between, the path still leads nowhere else. `whole_files` reads and writes
whole files.
"""

import errno
import os
import stat
import unicodedata
from collections.abc import Generator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

PATH_BYTES_MAX: Final = 4096
"""The longest path that Linux accepts (`PATH_MAX`); longer paths are refused without checking the
disk."""

NAMES_COMPARED_MAX: Final = 5000
"""In how many entries of a directory to look for a name that looks like a missing one."""

_LISTED: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""The flags for opening a directory in order to list it."""

DIRECTORY: Final = _LISTED | getattr(os, "O_PATH", os.O_RDONLY)
"""The flags for opening a directory on the way to a file; `O_PATH` needs no permission to list the
directory."""


class PathProblem(Exception):
    """A path can't be used as requested; the message is a sentence for the model."""


class Location(NamedTuple):
    """A resolved path: absolute, without links.

    `text` is the path that rules match and people see: relative to the workspace, with `/` between
    names (`.` for the workspace itself), or absolute if `inside` is False.
    """

    path: Path
    inside: bool
    text: str


def locate(workspace: Path, path: str) -> Location:
    """Resolve `path`, which is absolute or relative to `workspace`.

    The file need not exist. Raises `PathProblem` for text that can't be a path.
    """
    if not _is_path(path):
        shown = path[:100].encode(errors="replace").decode()
        raise PathProblem(
            f"{shown!r} is not a path: a path has 1 to {PATH_BYTES_MAX} bytes and no NUL."
        )
    # Strings are quicker than `Path`s; two calls of this take a third of the time of a short read.
    try:
        root = os.path.realpath(workspace)
        resolved = os.path.realpath(os.path.join(root, path))  # noqa: PTH118
        if _may_look_alike(resolved) and not os.path.lexists(resolved):
            resolved = os.path.realpath(_existing_path(resolved))
    except OSError:
        # A link was replaced while it was being read.
        raise PathProblem(f"{path} changed while it was being resolved. Try again.") from None
    above = root.rstrip("/") + "/"
    inside = resolved == root or resolved.startswith(above)
    shown = resolved[len(above) :] or "." if inside else resolved
    return Location(Path(resolved), inside, printable(shown))


def _may_look_alike(path: str) -> bool:
    return not path.isascii() or " " in path or "'" in path


def _existing_path(path: str) -> str:
    """Return the only existing path that looks like `path`, or else `path`.

    macOS puts narrow blanks into names, and combining characters, which nobody types.
    """
    above, name = os.path.split(path)
    if not name or os.path.lexists(path):
        return path
    above, looks = _existing_path(above), _looks(name)
    try:
        with os.scandir(above) as entries:
            names = (entry.name for entry in islice(entries, NAMES_COMPARED_MAX))
            alike = [each for each in names if _looks(each) == looks]
    except OSError:
        alike = []
    return os.path.join(above, alike[0] if len(alike) == 1 else name)  # noqa: PTH118


def _looks(name: str) -> str:
    return unicodedata.normalize("NFKC", name).replace("\u2019", "'")


def text_of(workspace: Path, path: Path) -> str:
    """Return the `Location.text` of a path; both paths are absolute, without links."""
    if path.is_relative_to(workspace):
        return printable(path.relative_to(workspace))
    return printable(path)


def printable(path: Path | str) -> str:
    """Return a path as valid text, whatever bytes its name has."""
    return os.fsencode(path).decode(errors="replace")


@contextmanager
def opened_parent(location: Location, *, make: bool = False) -> Generator[tuple[int, str]]:
    """Yield a descriptor of a location's directory, and the name of the location in it.

    With `make`, missing directories are created. An `OSError` in the block also becomes a
    `PathProblem`.
    """
    with os_errors_explained(location):
        opened = open_parent(location, make=make)
        try:
            yield opened, location.path.name or "."
        finally:
            os.close(opened)


def open_parent(location: Location, *, make: bool = False) -> int:
    """Open a location's directory and return its descriptor, which the caller closes.

    Opens one component after the other and follows no link, as `locate` has resolved all links.
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
    """Yield a descriptor that stays with its directory, even if the path is replaced.

    Without `listed`, the descriptor is only a starting point for other paths. An `OSError` in the
    block also becomes a `PathProblem`.
    """
    with opened_parent(location) as (parent, name):
        opened = os.open(name, _LISTED if listed else DIRECTORY, dir_fd=parent)
        try:
            yield opened
        finally:
            os.close(opened)


def open_regular(location: Location) -> int:
    """Open a regular file for reading and return its descriptor, which the caller closes.

    Raises `PathProblem`.
    """
    with opened_parent(location) as (parent, name):
        return open_regular_in(parent, name, location)


def open_regular_in(parent: int, name: str, location: Location) -> int:
    """Open a regular file in an open directory; raises `PathProblem` and `OSError`.

    Nothing else is opened: a FIFO would block, and opening a device may have effects.
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
    """Turn an `OSError` in the block into a `PathProblem`."""
    try:
        yield
    except OSError as error:
        raise explain(error, location) from error


def require_regular(state: os.stat_result, location: Location) -> None:
    """Raise `PathProblem` unless `state` is the state of a regular file."""
    if stat.S_ISREG(state.st_mode):
        return
    if stat.S_ISDIR(state.st_mode):
        raise explain(IsADirectoryError(), location)
    kinds = {
        stat.S_IFIFO: "a FIFO",
        stat.S_IFCHR: "a character device",
        stat.S_IFBLK: "a block device",
        stat.S_IFSOCK: "a socket",
        stat.S_IFLNK: "a link that leads nowhere (a loop)",
    }
    kind = kinds.get(stat.S_IFMT(state.st_mode), "something else")
    raise PathProblem(f"{location.text} is {kind}, not a regular file; it can't be read or edited.")


def explain(error: OSError, location: Location) -> PathProblem:
    """Return the problem for an error, with a sentence that names the path."""
    match error:
        case FileNotFoundError():
            reason = "does not exist"
        case NotADirectoryError() | FileExistsError():
            reason = "does not exist: a part of its path is a file, not a directory"
        case IsADirectoryError():
            reason = "is a directory, not a file; use `ls` to see what is in it"
        case PermissionError():
            reason = "can't be accessed: permission denied"
        case _:
            reason = f"can't be accessed: {error.strerror or error}"
    return PathProblem(f"{location.text} {reason}.")


def _open_below(parent: int, name: str, location: Location, *, make: bool) -> int:
    try:
        return os.open(name, DIRECTORY, dir_fd=parent)
    except FileNotFoundError:
        if not make:
            raise
        # Another program may have made the directory in between.
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
        return _open_below(parent, name, location, make=False)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        if not stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise NotADirectoryError from error
        raise PathProblem(
            f"{location.text} was not touched: {name} in its path has been replaced by a link. "
            "Check where it leads, then try again."
        ) from error


def _is_path(path: str) -> bool:
    try:
        return 0 < len(os.fsencode(path)) <= PATH_BYTES_MAX and "\0" not in path
    except UnicodeEncodeError:
        return False
