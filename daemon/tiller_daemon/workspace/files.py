"""Whole files: reading them with a bound, replacing them in one step.

A replaced file is always the old one or the new one, never a torn one. Where a path leads is
decided in `paths`, what a file should hold in the tools.
"""

import hashlib
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from tiller_daemon.workspace.paths import (
    Location,
    PathProblem,
    explain,
    must_be_regular,
    open_regular,
)

EDITABLE_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest file that is compared, edited and shown as a diff; larger ones are for commands."""

SMALL_BYTES: Final = 64 * 1024
"""Up to here a file is read on the loop: some 20 us, where a thread would cost 100."""

_READ_BYTES: Final = 1024 * 1024


def fingerprint(data: bytes) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def size_of(location: Location) -> int | None:
    """Return the size of what is there in bytes; None when nothing is. Raises `PathProblem`."""
    try:
        return os.lstat(location.path).st_size
    except FileNotFoundError:
        return None
    except OSError as error:
        raise explain(error, location) from error


def read_whole(location: Location) -> bytes:
    """Return the bytes of a regular file of at most `EDITABLE_BYTES_MAX`.

    Blocks for as long as the disk takes. Raises `PathProblem`.
    """
    opened = open_regular(location)
    try:
        pieces: list[bytes] = []
        left = EDITABLE_BYTES_MAX + 1
        while left > 0 and (piece := os.read(opened, min(left, _READ_BYTES))):
            pieces.append(piece)
            left -= len(piece)
    except OSError as error:
        raise explain(error, location) from error
    finally:
        os.close(opened)
    if left <= 0:
        raise PathProblem(
            f"{location.text} is larger than {EDITABLE_BYTES_MAX // 1024**2} MiB; "
            "change it with a command."
        )
    return b"".join(pieces)


def replace(location: Location, data: bytes) -> None:
    """Make `data` the content of a file, in one step, on disk when it returns.

    Missing directories are made. An existing file keeps its mode and, where that is permitted,
    its owner; a new one gets what the umask leaves. Blocks for as long as the disk takes. When it
    fails nothing has changed, and `PathProblem` says why.
    """
    try:
        location.path.parent.mkdir(parents=True, exist_ok=True)
        before = _writable(location)
        temporary = location.path.with_name(f".tiller-{secrets.token_hex(8)}")
        try:
            _write_new(temporary, data, before)
            temporary.replace(location.path)
        except BaseException:
            with suppress(FileNotFoundError):
                temporary.unlink()
            raise
    except OSError as error:
        raise explain(error, location) from error


def _writable(location: Location) -> os.stat_result | None:
    try:
        before = os.lstat(location.path)
    except FileNotFoundError:
        return None
    must_be_regular(before, location)
    if not os.access(location.path, os.W_OK):
        raise PathProblem(f"{location.text} is read-only; its mode forbids to change it.")
    return before


def _write_new(path: Path, data: bytes, before: os.stat_result | None) -> None:
    how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = os.open(path, how, 0o666)
    try:
        if before is not None:
            with suppress(PermissionError):
                os.fchown(opened, before.st_uid, before.st_gid)
            os.fchmod(opened, stat.S_IMODE(before.st_mode))
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(opened, rest) :]
        os.fsync(opened)
    finally:
        os.close(opened)
