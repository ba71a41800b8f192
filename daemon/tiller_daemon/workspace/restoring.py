"""Putting files back to what they were, without a change of anybody else getting lost.

A file is changed only while it is still what it is expected to be, and in one step. Meanwhile a
journal beside the snapshots says what is being done, so that a start after a crash undoes the half
of it. Everything here blocks for as long as the disk takes. Where contents come from is in
`snapshots`.
"""

import hashlib
import os
import secrets
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from tiller_daemon.workspace.files import EDITABLE_BYTES_MAX

FILE_BYTES_MAX: Final = EDITABLE_BYTES_MAX
"""The largest file that is kept, and so can be put back: what tools may edit."""

LINK: Final = 0o120000
PLAIN: Final = 0o100644
EXECUTABLE: Final = 0o100755

_ANY_X: Final = 0o111
_ANY_R: Final = 0o444


class Entry(NamedTuple):
    """A file as git knows it: its mode and the id of its content."""

    mode: int
    blob: str


class Move(NamedTuple):
    """A file and what becomes of it. `path` is relative to the workspace; None is no file."""

    path: str
    expected: Entry | None
    wanted: Entry | None

    def reversed(self) -> "Move":
        """The way back."""
        return Move(self.path, self.wanted, self.expected)


class NotOurs(NamedTuple):
    """What is there is nothing that could have been kept: a directory, a device, a huge file."""


def put_back(
    workspace: Path, moves: Iterable[Move], contents: Mapping[str, bytes]
) -> tuple[str, ...]:
    """Do each move whose file is as expected; returns the paths of the others.

    `contents` are those of all wanted blobs. Files are removed first, so that a directory can make
    room for a file. A directory that has become empty is removed as well.
    """
    left: list[str] = []
    moves = sorted(moves, key=lambda move: (move.wanted is not None, move.path))
    for move in moves:
        path = workspace / move.path
        content = contents.get(move.wanted.blob) if move.wanted else b""
        try:
            if content is None or found_at(workspace, move.path) != move.expected:
                left.append(move.path)
            elif move.wanted is None:
                path.unlink()
                _remove_empty(path.parent, workspace)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                if path.is_dir() and not path.is_symlink():
                    path.rmdir()
                _replace(path, move.wanted.mode, content)
        except OSError:
            left.append(move.path)
    return tuple(left)


def found_at(workspace: Path, path: str) -> Entry | NotOurs | None:
    """What is there now; no link is followed, neither at the end nor on the way.

    An empty directory is nothing, as no snapshot tells of one.
    """
    whole = workspace / path
    if os.path.realpath(whole.parent) != str(whole.parent):
        return NotOurs()
    try:
        state = os.lstat(whole)
        if stat.S_ISLNK(state.st_mode):
            return Entry(LINK, blob_id(os.fsencode(os.readlink(whole))))  # noqa: PTH115 - bytes
        if stat.S_ISDIR(state.st_mode):
            return NotOurs() if any(whole.iterdir()) else None
        if not stat.S_ISREG(state.st_mode) or state.st_size > FILE_BYTES_MAX:
            return NotOurs()
        mode = EXECUTABLE if state.st_mode & stat.S_IXUSR else PLAIN
        return Entry(mode, blob_id(whole.read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return NotOurs()


def blob_id(data: bytes) -> str:
    """The id that git gives to this content."""
    # SHA-1 is git's name for a file, not a secret: who can change files needs no collision.
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def write_durably(path: Path, data: bytes) -> None:
    """Make `data` the content of a file of the daemon's own, in one step and on disk."""
    temporary = path.with_name(f"{path.name}.new")
    with temporary.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


def unkept(workspace: Path, paths: Sequence[str], secret_values: Sequence[bytes]) -> frozenset[str]:
    """Those of the files that hold one of these values, can't be read, or are none of its own."""
    parents = {(workspace / path).parent for path in paths}
    behind_links = {parent for parent in parents if os.path.realpath(parent) != str(parent)}
    return frozenset(
        path
        for path in paths
        if (workspace / path).parent in behind_links or _is_unkept(workspace / path, secret_values)
    )


def _is_unkept(path: Path, secret_values: Sequence[bytes]) -> bool:
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


def _replace(path: Path, mode: int, content: bytes) -> None:
    temporary = path.with_name(f".tiller-{secrets.token_hex(8)}")
    try:
        if mode == LINK:
            temporary.symlink_to(os.fsdecode(content))
        else:
            _write_new(temporary, path, mode, content)
        temporary.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise


def _write_new(temporary: Path, path: Path, mode: int, content: bytes) -> None:
    how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = os.open(temporary, how, 0o777 if mode == EXECUTABLE else 0o666)
    with os.fdopen(opened, "wb") as stream:
        with suppress(FileNotFoundError):
            before = os.lstat(path)
            if stat.S_ISREG(before.st_mode):
                _take_over(opened, before, mode)
        stream.write(content)
        stream.flush()
        os.fsync(opened)


def _take_over(opened: int, before: os.stat_result, mode: int) -> None:
    """Give a file the owner and the permissions that it had, but for who may run it."""
    with suppress(PermissionError):
        os.fchown(opened, before.st_uid, before.st_gid)
    kept = stat.S_IMODE(before.st_mode)
    if mode == PLAIN:
        kept &= ~_ANY_X
    elif not kept & stat.S_IXUSR:
        kept |= (kept & _ANY_R) >> 2
    os.fchmod(opened, kept)


def _remove_empty(directory: Path, workspace: Path) -> None:
    with suppress(OSError):
        while directory != workspace:
            directory.rmdir()
            directory = directory.parent
