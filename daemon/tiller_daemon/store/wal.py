"""Finds damage in a write-ahead log before SQLite reads it.

SQLite silently takes the first damaged frame for the end of the log, so a single wrong bit hides
all commits after it. A killed process leaves a damaged frame too, but only as the last one. The
format: https://www.sqlite.org/fileformat2.html#the_write_ahead_log
"""

import array
import fcntl
import os
import shutil
import struct
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tiller_daemon.private import open_private

MAGICS: Final = {0x377F0682: "little", 0x377F0683: "big"}
"""The byte order of the checksums, by the first word of the file."""

HEADER: Final = struct.Struct(">8I")
"""The fields: magic, version, page size, number of checkpoints, two salts, and a checksum of two
words."""

FRAME: Final = struct.Struct(">6I")
"""The fields: page number, pages of the file after a commit or 0, two salts, and a checksum of two
words."""

SHARED_FIRST: Final = 0x40000002
SHARED_BYTES: Final = 510
"""The bytes of the file that a reader locks for all readers, and a writer for itself alone."""

COPY_MARK: Final = ".damaged-"

LOST_COMMITS: Final = (
    "When the daemon started, it found damage in the log. The latest commits could not be read, so "
    "sessions may be missing or end early. The damaged part is kept as {copy}. Delete that file to "
    "end this warning."
)

_SUMMED_OF_HEADER: Final = 24
_SUMMED_OF_FRAME: Final = 8


def wal_of(path: Path) -> Path:
    """Return the path of a SQLite file's write-ahead log."""
    return path.with_name(f"{path.name}-wal")


def keep_if_damaged(path: Path) -> None:
    """Copy the write-ahead log of the file at `path` if commits in it can't be read.

    Call this before SQLite opens the file, because SQLite may remove the write-ahead log. Raises
    `OSError`.
    """
    wal = wal_of(path)
    if not wal.exists() or is_in_use(path) or not is_damaged(wal.read_bytes()):
        return
    kept = open_private(kept_name(wal, COPY_MARK), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with wal.open("rb") as source, os.fdopen(kept, "wb") as copy:
        shutil.copyfileobj(source, copy)
        copy.flush()
        os.fsync(copy.fileno())


def kept_name(wal: Path, mark: str) -> Path:
    """Return a new name for a write-ahead log that is kept."""
    return wal.with_name(f"{wal.name}{mark}{datetime.now(UTC):%Y%m%dT%H%M%S%f}")


def kept_copies(path: Path) -> list[Path]:
    """Return the copies of damaged write-ahead logs, oldest first."""
    wal = wal_of(path)
    return sorted(wal.parent.glob(f"{wal.name}{COPY_MARK}*"))


def lost_commits(path: Path) -> tuple[str, ...]:
    """Return sentences for users about each copy of a damaged write-ahead log."""
    return tuple(LOST_COMMITS.format(copy=copy) for copy in kept_copies(path))


def is_in_use(path: Path) -> bool:
    """Whether another process has the file open, and so may be writing the end of the log."""
    with path.open("rb") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, SHARED_BYTES, SHARED_FIRST)
        except OSError:
            return True
    return False


def is_damaged(data: bytes) -> bool:
    """Whether a write-ahead log has commits that SQLite would not find."""
    if len(data) < HEADER.size + FRAME.size:
        return False
    magic, _, page_bytes, _, *salts, sum_1, sum_2 = HEADER.unpack_from(data)
    order = MAGICS.get(magic)
    if order is None or _checksum(data[:_SUMMED_OF_HEADER], order, (0, 0)) != (sum_1, sum_2):
        return True
    size = FRAME.size + page_bytes
    starts = range(HEADER.size, len(data) - size + 1, size)
    so_far = (sum_1, sum_2)
    sound = 0
    for start in starts:
        page, _, *own_salts, sum_1, sum_2 = FRAME.unpack_from(data, start)
        head = data[start : start + _SUMMED_OF_FRAME]
        content = data[start + FRAME.size : start + size]
        so_far = _checksum(content, order, _checksum(head, order, so_far))
        if page == 0 or own_salts != salts or so_far != (sum_1, sum_2):
            break
        sound += 1
    bad = starts[sound:]
    if not bad:
        return False
    # Old frames, from before the log was last restarted, have two other salts. One wrong bit
    # changes only one salt.
    of_now = [
        any(a == b for a, b in zip(FRAME.unpack_from(data, start)[2:4], salts, strict=True))
        for start in bad
    ]
    # A killed process leaves a frame half written, over an old frame or at the end of the file.
    ends_whole = of_now[0] and len(bad) == 1 and bad[0] + size == len(data)
    return any(of_now[1:]) or ends_whole


def _checksum(data: bytes, order: str, start: tuple[int, int]) -> tuple[int, int]:
    """Return SQLite's checksum of `data`, continued from `start`."""
    words = array.array("I", data)
    if order != sys.byteorder:
        words.byteswap()
    first, second = start
    pairs = iter(words)
    for low, high in zip(pairs, pairs, strict=True):
        first = (first + low + second) & 0xFFFFFFFF
        second = (second + high + first) & 0xFFFFFFFF
    return first, second
