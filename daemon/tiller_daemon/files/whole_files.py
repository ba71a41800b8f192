"""Reads whole files up to a limit, and writes new files.

`changes` replaces old files with new ones, and `paths` resolves paths.
"""

import hashlib
import os
import secrets
import stat
from contextlib import suppress
from typing import Final

from tiller_daemon.files.paths import (
    Location,
    PathProblem,
    open_regular_in,
    opened_parent,
    require_regular,
)

EDITABLE_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest file that is compared, edited and shown as a diff; larger files are left to
commands."""

SMALL_BYTES: Final = 64 * 1024
"""The largest file that is read on the event loop. That takes some 20 us; a thread costs 100 us."""

TEMPORARY: Final = ".tiller-"
"""The prefix of temporary files that are about to replace other files."""

_READ_BYTES: Final = 1024 * 1024


def fingerprint(data: bytes) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def state_of(location: Location) -> os.stat_result | None:
    """Return the state of a file; None if it does not exist. Raises `PathProblem`."""
    try:
        with opened_parent(location) as (parent, name):
            return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except PathProblem as problem:
        if isinstance(problem.__cause__, FileNotFoundError):
            return None
        raise


def read_whole(location: Location) -> bytes:
    """Return the bytes of a regular file.

    Blocks for as long as the disk takes. Raises `PathProblem`, also if the file is larger than
    `EDITABLE_BYTES_MAX`.
    """
    with opened_parent(location) as (parent, name):
        return read_whole_in(parent, name, location)


def read_whole_in(parent: int, name: str, location: Location) -> bytes:
    """Return the bytes of a file in an open directory; raises `PathProblem` and `OSError`."""
    opened = open_regular_in(parent, name, location)
    try:
        return _read_opened(opened, location)
    finally:
        os.close(opened)


def read_if_small(location: Location, beginning_bytes: int) -> tuple[int, bytes]:
    """Return the size of a regular file, and its bytes.

    If it is larger than `SMALL_BYTES`, only the first `beginning_bytes` are returned. Opens the
    file once. Raises `PathProblem`.
    """
    with opened_parent(location) as (parent, name):
        opened = open_regular_in(parent, name, location)
        try:
            size_bytes = os.fstat(opened).st_size
            if size_bytes > SMALL_BYTES:
                return size_bytes, os.read(opened, beginning_bytes)
            return size_bytes, _read_opened(opened, location)
        finally:
            os.close(opened)


def temporary_name() -> str:
    """Return a random name for a temporary file."""
    return f"{TEMPORARY}{secrets.token_hex(8)}"


def writable_state(parent: int, name: str, location: Location) -> os.stat_result | None:
    """Return the state of a regular file that may be changed; None if it does not exist.

    Raises `PathProblem` for anything else, and `OSError`.
    """
    try:
        before = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    require_regular(before, location)
    if not os.access(name, os.W_OK, dir_fd=parent):
        what = "file system" if os.fstatvfs(parent).f_flag & os.ST_RDONLY else "mode"
        raise PathProblem(f"{location.text} is read-only: its {what} does not allow changes.")
    return before


def write_new(parent: int, name: str, data: bytes, like: os.stat_result | None) -> None:
    """Create a file with the mode and owner of `like`, and sync its content to disk.

    Raises `OSError`, for example if the file exists.
    """
    how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = os.open(name, how, 0o666, dir_fd=parent)
    try:
        if like is not None:
            # Only root may give a file away. The mode comes second, as a new owner clears its
            # setuid bits.
            with suppress(PermissionError):
                os.fchown(opened, like.st_uid, like.st_gid)
            os.fchmod(opened, stat.S_IMODE(like.st_mode))
        rest = memoryview(data)
        while rest:
            # A write may be partial.
            rest = rest[os.write(opened, rest) :]
        os.fsync(opened)
    finally:
        os.close(opened)


def _read_opened(opened: int, location: Location) -> bytes:
    """Return the rest of an open file; raises `PathProblem` and `OSError`."""
    pieces: list[bytes] = []
    # One byte more than the maximum shows that the file is too large.
    left = EDITABLE_BYTES_MAX + 1
    while left > 0 and (piece := os.read(opened, min(left, _READ_BYTES))):
        pieces.append(piece)
        left -= len(piece)
    if left <= 0:
        raise PathProblem(
            f"{location.text} is larger than {EDITABLE_BYTES_MAX // 1024**2} MiB; "
            "change it with a command."
        )
    return b"".join(pieces)
