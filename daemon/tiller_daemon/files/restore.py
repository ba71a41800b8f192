"""Putting files back to what they were, without a change of anybody else getting lost.

A file is changed only while it is still what it is expected to be, and in one step. Meanwhile a
journal beside the snapshots says what is being done, so that a start after a crash undoes the half
of it. Everything here blocks for as long as the disk takes. Where contents come from is in
`snapshots`.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from tiller_daemon.files.paths import Location, PathProblem, opened_parent
from tiller_daemon.files.whole_files import EDITABLE_BYTES_MAX, TEMPORARY, write_new
from tiller_daemon.private import open_private

FILE_BYTES_MAX: Final = EDITABLE_BYTES_MAX
"""The largest file that is kept, and so can be put back: what tools may edit."""

EMPTY_LEVELS_MAX: Final = 64
"""How deep directories without any file may be nested to be replaced: each level takes a descriptor
and a frame of the stack."""

LINK: Final = 0o120000
PLAIN: Final = 0o100644
EXECUTABLE: Final = 0o100755

_ANY_X: Final = 0o111
_ANY_R: Final = 0o444


class GitEntry(NamedTuple):
    """A file as git knows it: its mode and the id of its content."""

    mode: int
    blob: str


class FileRestore(NamedTuple):
    """A file and what becomes of it. `path` is relative to the workspace; None is no file."""

    path: str
    expected: GitEntry | None
    wanted: GitEntry | None

    def reversed(self) -> "FileRestore":
        """The way back."""
        return FileRestore(self.path, self.wanted, self.expected)


class Untracked(NamedTuple):
    """What is there is nothing that could have been kept: a device, a huge file."""


def restore_files(
    workspace: Path, restores: Iterable[FileRestore], contents: Mapping[str, bytes]
) -> tuple[str, ...]:
    """Do each move whose file is as expected; returns the paths of the others.

    `contents` are those of all wanted blobs. Files are removed first, so that a directory can make
    room for a file. A directory that has become empty is removed as well.
    """
    conflicts: list[str] = []
    for move in sorted(restores, key=lambda move: (move.wanted is not None, move.path)):
        content = contents.get(move.wanted.blob) if move.wanted else b""
        if content is None or not _restore(workspace, move, content):
            conflicts.append(move.path)
    return tuple(conflicts)


def blob_id(data: bytes) -> str:
    """The id that git gives to this content."""
    # SHA-1 is git's name for a file, not a secret: who can change files needs no collision.
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def write_durably(path: Path, data: bytes) -> None:
    """Make `data` the content of a file of the daemon's own, in one step and on disk."""
    temporary = path.with_name(f"{path.name}.new")
    with open(temporary, "wb", opener=open_private) as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


def files_to_exclude(
    workspace: Path, paths: Sequence[str], secret_values: Sequence[bytes]
) -> frozenset[str]:
    """Those of the files that hold one of these values, can't be read, or are none of its own."""
    parents = {(workspace / path).parent for path in paths}
    behind_links = {parent for parent in parents if os.path.realpath(parent) != str(parent)}
    return frozenset(
        path
        for path in paths
        if (workspace / path).parent in behind_links
        or _is_excluded(workspace / path, secret_values)
    )


def _is_excluded(path: Path, secret_values: Sequence[bytes]) -> bool:
    try:
        state = os.lstat(path)
        if stat.S_ISLNK(state.st_mode):
            data = os.fsencode(os.readlink(path))  # noqa: PTH115 - bytes
        elif stat.S_ISREG(state.st_mode):
            if not secret_values:
                return not os.access(path, os.R_OK)
            data = path.read_bytes()
        else:
            return True
    except OSError:
        return True
    return any(value in data for value in secret_values)


def _restore(workspace: Path, move: FileRestore, content: bytes) -> bool:
    """Do a move if its file is as expected; no link is followed, not even on the way."""
    location = Location(workspace / move.path, inside=True, text=move.path)
    try:
        with opened_parent(location, make=move.expected is None) as (parent, name):
            with suppress(FileNotFoundError):
                # A daemon that was killed may have left it; then this is the way back.
                os.unlink(_temporary_name(name), dir_fd=parent)
            if _current_entry(parent, name) != move.expected:
                return False
            if move.wanted is None:
                os.unlink(name, dir_fd=parent)
            else:
                _replace(parent, name, move.wanted.mode, content, new=move.expected is None)
    except (OSError, PathProblem):
        return False
    if move.wanted is None:
        _remove_empty(location.path.parent, workspace)
    return True


def _current_entry(parent: int, name: str) -> GitEntry | Untracked | None:
    """What is there now. Directories without any file are nothing, as no snapshot tells of them.

    Raises `OSError` for a directory with a file somewhere in it.
    """
    try:
        state = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(state.st_mode):
        return GitEntry(LINK, blob_id(os.readlink(os.fsencode(name), dir_fd=parent)))
    if stat.S_ISDIR(state.st_mode):
        for _ in _walk_directories(parent, name):
            pass
        return None
    if not stat.S_ISREG(state.st_mode) or state.st_size > FILE_BYTES_MAX:
        return Untracked()
    how = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(name, how, dir_fd=parent), "rb") as stream:
        mode = EXECUTABLE if state.st_mode & stat.S_IXUSR else PLAIN
        return GitEntry(mode, blob_id(stream.read(FILE_BYTES_MAX + 1)))


def _walk_directories(
    parent: int, name: str, levels: int = EMPTY_LEVELS_MAX
) -> Generator[tuple[int, str]]:
    """Give a directory and all below it, the deepest first, as a descriptor and a name in that.

    Raises `OSError` at anything that is no directory: the system opens nothing else here.
    """
    if levels == 0:
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
    how = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = os.open(name, how, dir_fd=parent)
    try:
        for below in os.listdir(opened):  # noqa: PTH208 - by descriptor
            yield from _walk_directories(opened, below, levels - 1)
    finally:
        os.close(opened)
    yield parent, name


def _temporary_name(name: str) -> str:
    """The name under which the new content of a file waits: always the same, to be found again."""
    return f"{TEMPORARY}{blob_id(os.fsencode(name))[:16]}"


def _replace(parent: int, name: str, mode: int, content: bytes, *, new: bool) -> None:
    """Put a file in place in one step; where it is `new`, only directories make room for it."""
    temporary = _temporary_name(name)
    try:
        if mode == LINK:
            os.symlink(content, os.fsencode(temporary), dir_fd=parent)
        else:
            before = _plain_state(parent, name)
            write_new(parent, temporary, content, before)
            _set_executable(parent, temporary, executable=mode == EXECUTABLE)
        if new:
            with suppress(FileNotFoundError):
                for above, directory in _walk_directories(parent, name):
                    os.rmdir(directory, dir_fd=above)
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=parent)
        raise


def _plain_state(parent: int, name: str) -> os.stat_result | None:
    """Owner and permissions to take over, where there is a file."""
    with suppress(FileNotFoundError):
        state = os.stat(name, dir_fd=parent, follow_symlinks=False)
        return state if stat.S_ISREG(state.st_mode) else None
    return None


def _set_executable(parent: int, name: str, *, executable: bool) -> None:
    """Let those run a file who may read it, or nobody; left as it is when that holds already."""
    mode = stat.S_IMODE(os.stat(name, dir_fd=parent).st_mode)
    if executable and not mode & stat.S_IXUSR:
        os.chmod(name, mode | (mode & _ANY_R) >> 2, dir_fd=parent)
    elif not executable and mode & _ANY_X:
        os.chmod(name, mode & ~_ANY_X, dir_fd=parent)


def _remove_empty(directory: Path, workspace: Path) -> None:
    with suppress(OSError):
        while directory != workspace:
            directory.rmdir()
            directory = directory.parent
