"""Keeps how long the write-ahead log is, in a small file beside it, so that a cut one is noticed.

SQLite takes the end of the file for the end of the log, so it can't know of commits that were cut
off. The small file is not synced: it survives `kill -9`, and says nothing after a power failure.
"""

import math
import os
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from tiller_daemon.private import open_private

SALTS: Final = slice(16, 24)
"""The bytes of the write-ahead log that are new whenever it begins anew."""

_RECORD: Final = struct.Struct("=8sQ")
"""The salts, and the length in bytes."""


class WalLength:
    """Writes down the length of the write-ahead log `wal`. A failure only loses the check."""

    def __init__(self, wal: Path) -> None:
        self._wal: Final = wal
        self._descriptor: int | None = None
        self._salts = b""

    def note(self) -> None:
        """Write down the present length; call this after each commit."""
        with suppress(OSError):
            if not self._salts:
                self._salts = _salts_of(self._wal)
            size = os.stat(self._wal).st_size  # noqa: PTH116 - after every commit, see `_identity`
            self._write(_RECORD.pack(self._salts, size))

    def begin_anew(self) -> None:
        """Write down nothing; call this before anything shortens or restarts the log."""
        self._salts = b""
        with suppress(OSError):
            self._write(bytes(_RECORD.size))

    def close(self) -> None:
        """Remove what was written down, because a closed file has no write-ahead log."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if not self._wal.exists():
            forget(self._wal)

    def _write(self, record: bytes) -> None:
        if self._descriptor is None:
            self._descriptor = open_private(_place_of(self._wal), os.O_WRONLY | os.O_CREAT)
        os.pwrite(self._descriptor, record, 0)


def is_cut_short(wal: Path) -> bool:
    """Whether the write-ahead log is shorter than it was; False if that is unknown."""
    try:
        place = _place_of(wal)
        salts, size = _RECORD.unpack(place.read_bytes())
        is_of_this_boot = place.stat().st_mtime >= _booted_at()
        present = wal.stat().st_size
        # Too little may be left to tell.
        is_same = present < SALTS.stop or _salts_of(wal) == salts
    except (OSError, struct.error):
        return False
    return is_of_this_boot and is_same and present < size


def forget(wal: Path) -> None:
    """Remove what was written down about a write-ahead log."""
    with suppress(OSError):
        _place_of(wal).unlink()


def _place_of(wal: Path) -> Path:
    return wal.with_name(f"{wal.name}-length")


def _salts_of(wal: Path) -> bytes:
    with wal.open("rb") as file:
        return file.read(SALTS.stop)[SALTS]


def _booted_at() -> float:
    """Return when the machine was started, in seconds since 1970; infinite if unknown."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return math.inf if clock is None else time.time() - time.clock_gettime(clock)
