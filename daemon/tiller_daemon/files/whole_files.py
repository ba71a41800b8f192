"""Whole files: reading them with a bound, writing new ones.

How a new one takes the place of an old one is in `changes`, where a path leads in `paths`.
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
"""The largest file that is compared, edited and shown as a diff; larger ones are for commands."""

SMALL_BYTES: Final = 64 * 1024
"""Up to here a file is read on the loop: some 20 us, where a thread would cost 100."""

TEMPORARY: Final = ".tiller-"
"""How the names of files begin that are about to take another one's place."""

_READ_BYTES: Final = 1024 * 1024


def fingerprint(data: bytes) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def size_of(location: Location) -> int | None:
    """Return the size of what is there in bytes; None when nothing is. Raises `PathProblem`."""
    found = state_of(location)
    return found and found.st_size


def state_of(location: Location) -> os.stat_result | None:
    """Return the state of what is there; None when nothing is. Raises `PathProblem`."""
    try:
        with opened_parent(location) as (parent, name):
            return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except PathProblem as problem:
        if isinstance(problem.__cause__, FileNotFoundError):
            return None
        raise


def read_whole(location: Location) -> bytes:
    """Return the bytes of a regular file of at most `EDITABLE_BYTES_MAX`.

    Blocks for as long as the disk takes. Raises `PathProblem`.
    """
    with opened_parent(location) as (parent, name):
        return read_whole_in(parent, name, location)


def read_whole_in(parent: int, name: str, location: Location) -> bytes:
    """Return the bytes of one in a directory that is open; raises `PathProblem` and `OSError`."""
    opened = open_regular_in(parent, name, location)
    try:
        pieces: list[bytes] = []
        left = EDITABLE_BYTES_MAX + 1
        while left > 0 and (piece := os.read(opened, min(left, _READ_BYTES))):
            pieces.append(piece)
            left -= len(piece)
    finally:
        os.close(opened)
    if left <= 0:
        raise PathProblem(
            f"{location.text} is larger than {EDITABLE_BYTES_MAX // 1024**2} MiB; "
            "change it with a command."
        )
    return b"".join(pieces)


def temporary_name() -> str:
    """Return a name, beside a file, for what is to take its place."""
    return f"{TEMPORARY}{secrets.token_hex(8)}"


def writable_state(parent: int, name: str, location: Location) -> os.stat_result | None:
    """Return the state of a plain file that may be changed; None when nothing is there.

    Raises `PathProblem` for anything else, and `OSError`.
    """
    try:
        before = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    require_regular(before, location)
    if not os.access(name, os.W_OK, dir_fd=parent):
        raise PathProblem(f"{location.text} is read-only; its mode forbids to change it.")
    return before


def write_new(parent: int, name: str, data: bytes, like: os.stat_result | None) -> None:
    """Write a file that is not there yet, with mode and owner of `like`, and have it on disk.

    Raises `OSError`.
    """
    how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = os.open(name, how, 0o666, dir_fd=parent)
    try:
        if like is not None:
            with suppress(PermissionError):
                os.fchown(opened, like.st_uid, like.st_gid)
            os.fchmod(opened, stat.S_IMODE(like.st_mode))
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(opened, rest) :]
        os.fsync(opened)
    finally:
        os.close(opened)
