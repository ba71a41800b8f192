"""Restores files to earlier contents without losing anyone else's changes.

A file is replaced in one step, and only if it has exactly the expected content. The transaction
differs from the one in `changes`. A changed file is skipped instead of failing the whole restore.
The old contents are in git, so no backup lies beside a file. The session's log commits the restore,
so `snapshots` keeps the journal.

All functions here block for as long as the disk takes.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Generator, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from tiller_daemon.files.paths import Location, PathProblem, opened_parent
from tiller_daemon.files.whole_files import EDITABLE_BYTES_MAX, TEMPORARY, write_new

FILE_BYTES_MAX: Final = EDITABLE_BYTES_MAX
"""The largest file that snapshots store and that can be restored; tools edit no larger files
either."""

EMPTY_LEVELS_MAX: Final = 64
"""How deep empty directories may be nested that a file replaces. Each level takes a descriptor and
a stack frame."""

LINK: Final = 0o120000
PLAIN: Final = 0o100644
EXECUTABLE: Final = 0o100755

NO_CONTENT: Final = "its earlier content is missing from the snapshots, or damaged"

_UNWRITABLE: Final = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "the operation is not permitted",
    errno.EIO: "the disk has failed",
}
"""What is wrong with the disk, rather than with a file, by the number of the error."""

_ANY_X: Final = 0o111
_ANY_R: Final = 0o444


class GitEntry(NamedTuple):
    """A file as git records it: its mode and the id of its content."""

    mode: int
    blob: str


class FileRestore(NamedTuple):
    """A file to change from `expected` to `wanted`, if it is still as expected.

    `path` is relative to the workspace. None means that there is no file. `held` are the ids of
    other contents that the file had meanwhile.
    """

    path: str
    expected: GitEntry | None
    wanted: GitEntry | None
    held: frozenset[str] = frozenset()

    def reversed(self) -> "FileRestore":
        """Return the restore that undoes this one."""
        return FileRestore(self.path, self.wanted, self.expected, self.held)

    def takes_away(self, contents: AbstractSet[str]) -> bool:
        """Return whether the file has, or was made from, one of these contents."""
        return self.expected is not None and not contents.isdisjoint(
            {self.expected.blob, *self.held}
        )


def restore_files(
    workspace: Path, restores: Iterable[FileRestore], contents: Mapping[str, bytes]
) -> dict[str, str]:
    """Restore each file that has its expected content; return the paths of the others.

    Each path comes with a clause that says why the file could not be written, or with "" if
    something else has changed the file.

    `contents` maps the ids of all wanted blobs to their bytes. If removals come first, a directory
    can replace a file, and a file can replace a directory. Directories that become empty are
    removed.
    """
    left: dict[str, str] = {}
    for one in restores:
        content = contents.get(one.wanted.blob) if one.wanted else b""
        problem = NO_CONTENT if content is None else _restore(workspace, one, content)
        if problem is not None:
            left[one.path] = problem
    return left


def blob_id(data: bytes) -> str:
    """Return the id that git gives to this content."""
    # git names files by SHA-1, which protects no secret. An attacker who can change the files needs
    # no collision.
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _restore(workspace: Path, one: FileRestore, content: bytes) -> str | None:
    """Restore a file if it has the expected content; follow no link, not even in its path.

    Returns None if that was done, and otherwise why not, as `restore_files` does.
    """
    location = Location(workspace / one.path, inside=True, text=one.path)
    try:
        with opened_parent(location, make=one.expected is None) as (parent, name):
            for left in (_temporary_name(name), _aside_name(name)):
                with suppress(FileNotFoundError):
                    # If a killed daemon has left its temporary file, this call undoes its restore.
                    os.unlink(left, dir_fd=parent)
            if _current_entry(parent, name) != one.expected:
                return ""
            if one.wanted is None:
                put = one.expected is None or _remove(parent, name, one.expected)
            else:
                put = _replace(parent, name, one.wanted.mode, content, one.expected)
            if not put:
                return ""
    except (OSError, PathProblem) as problem:
        return _why(problem)
    if one.wanted is None:
        _remove_empty(location.path.parent, workspace)
    return None


def _why(problem: OSError | PathProblem) -> str:
    """Return why a file can't be written; "" if it is no longer what it was."""
    cause = problem if isinstance(problem, OSError) else problem.__cause__
    if not isinstance(cause, OSError) or cause.errno not in _UNWRITABLE:
        return ""
    return f"it can't be written: {_UNWRITABLE[cause.errno]}"


def _current_entry(parent: int, name: str) -> GitEntry | None:
    """Return the current entry; None if it is missing, or a directory without any file in it.

    git stores no empty directories. Raises `OSError` for a directory with a file somewhere in it,
    and for an entry that no snapshot stores, such as a device or a file that is too large.
    """
    try:
        state = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(state.st_mode):
        for _ in _walk_directories(parent, name):
            pass
        return None
    mode, content = read_entry(parent, name)
    return GitEntry(mode, blob_id(content))


def read_entry(parent: int, name: str) -> tuple[int, bytes]:
    """Return git's mode and the content of a file or link in an open directory; follow no link.

    Raises `OSError`, also for anything else and for a file of more than `FILE_BYTES_MAX`.
    """
    state = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if stat.S_ISLNK(state.st_mode):
        return LINK, os.readlink(os.fsencode(name), dir_fd=parent)
    if stat.S_ISREG(state.st_mode):
        how = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with os.fdopen(os.open(name, how, dir_fd=parent), "rb") as stream:
            state = os.fstat(stream.fileno())
            if stat.S_ISREG(state.st_mode) and state.st_size <= FILE_BYTES_MAX:
                content = stream.read(FILE_BYTES_MAX + 1)
                if len(content) <= FILE_BYTES_MAX:
                    return EXECUTABLE if state.st_mode & stat.S_IXUSR else PLAIN, content
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


def _walk_directories(
    parent: int, name: str, levels: int = EMPTY_LEVELS_MAX
) -> Generator[tuple[int, str]]:
    """Yield a directory and all directories in it, deepest first.

    Each is a parent descriptor and a name. Raises `OSError` if there is anything but directories,
    as `O_DIRECTORY` opens nothing else.
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
    """Return the name for a file's new content, derived from its name so that an undo finds it."""
    return f"{TEMPORARY}{blob_id(os.fsencode(name))[:16]}"


def _aside_name(name: str) -> str:
    """Return the name for a file's old content, until it is known that nobody has changed it."""
    return f"{TEMPORARY}{blob_id(os.fsencode(name))[16:32]}"


def _remove(parent: int, name: str, expected: GitEntry) -> bool:
    """Remove a file; return False, with the file in its place, if it is not as expected now."""
    aside = _aside_name(name)
    os.rename(name, aside, src_dir_fd=parent, dst_dir_fd=parent)
    try:
        is_same = _current_entry(parent, aside) == expected
    except OSError:
        is_same = False
    if not is_same and not _exists(parent, name):
        os.rename(aside, name, src_dir_fd=parent, dst_dir_fd=parent)
    else:
        # If there is a file again, it is newer.
        os.unlink(aside, dir_fd=parent)
    return is_same


def _link(parent: int, name: str, other: str) -> None:
    os.link(name, other, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)


def _replace(parent: int, name: str, mode: int, content: bytes, expected: GitEntry | None) -> bool:
    """Put a file in place in one step; a new file may replace empty directories.

    Returns False, with the file in its place, if somebody has written to the old file meanwhile.
    """
    temporary, aside = _temporary_name(name), _aside_name(name)
    try:
        if mode == LINK:
            os.symlink(content, os.fsencode(temporary), dir_fd=parent)
        else:
            before = _plain_state(parent, name)
            write_new(parent, temporary, content, before)
            _set_executable(parent, temporary, executable=mode == EXECUTABLE)
        if expected is None:
            with suppress(FileNotFoundError):
                # No directory contains a file, so nothing is lost.
                for above, directory in _walk_directories(parent, name):
                    os.rmdir(directory, dir_fd=above)
        else:
            # Some file systems have no links. Then what is written in these microseconds is lost.
            with suppress(OSError):
                _link(parent, name, aside)
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        if expected and _exists(parent, aside) and _current_entry(parent, aside) != expected:
            os.rename(aside, name, src_dir_fd=parent, dst_dir_fd=parent)
            return False
    finally:
        for left in (temporary, aside):
            with suppress(FileNotFoundError):
                os.unlink(left, dir_fd=parent)
    return True


def _exists(parent: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _plain_state(parent: int, name: str) -> os.stat_result | None:
    """Return the state of a regular file, whose owner and mode the new file gets; else None."""
    with suppress(FileNotFoundError):
        state = os.stat(name, dir_fd=parent, follow_symlinks=False)
        return state if stat.S_ISREG(state.st_mode) else None
    return None


def _set_executable(parent: int, name: str, *, executable: bool) -> None:
    """Make a file executable for everybody who may read it, or for nobody.

    If the owner's bit is right already, the mode is not changed.
    """
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
