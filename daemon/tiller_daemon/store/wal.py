"""Sees to it that no commit is lost, and no stranger's is replayed, without a word.

SQLite replays any sound write-ahead log over any file, so whoever restores a backup may leave that
of the newer file beside it. Hence the table `meta` has a random *mark*, followed by the mark that
the file itself has. The first commit after each checkpoint writes a new mark, and so does the last
one before a checkpoint. So the file has one of the two marks that are read with the write-ahead
log, unless the two do not belong together.

SQLite also takes the first damaged frame for the end of a write-ahead log, so a single wrong bit
hides all commits after it. Then it finds fewer frames than the file has. Of a file that was cut
short, only `wal_length` knows. The format:
https://www.sqlite.org/fileformat2.html#the_write_ahead_log
"""

import fcntl
import os
import secrets
import shutil
import sqlite3
import struct
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tiller_daemon.private import open_private
from tiller_daemon.store.wal_length import forget, is_cut_short

PAGE_BYTES: Final = 4096
"""The size of a page."""

MAGICS: Final = (0x377F0682, 0x377F0683)
"""The first word of a write-ahead log, by the byte order of its checksums."""

HEADER: Final = struct.Struct(">8I")
"""The fields: magic, version, page size, number of checkpoints, two salts, and a checksum of two
words."""

FRAME: Final = struct.Struct(">6I")
"""The fields: page number, pages of the file after a commit or 0, two salts, and a checksum of two
words."""

FRAME_BYTES: Final = FRAME.size + PAGE_BYTES

SHARED_FIRST: Final = 0x40000002
SHARED_BYTES: Final = 510
"""The bytes of the file that a reader locks for all readers, and a writer for itself alone."""

FOREIGN: Final = (
    "{wal} does not belong to {path}: it is from another file, or from another state of this file, "
    "as after a backup was restored beside it"
)

_DAMAGED_MARK: Final = ".damaged-"
_FOREIGN_MARK: Final = ".foreign-"

_KEPT: Final = {
    _DAMAGED_MARK: (
        "When the daemon started, it found damage in the log. The latest commits could not be read,"
        " so sessions may be missing or end early. The damaged part is kept as {copy}. Delete that "
        "file to end this warning."
    ),
    _FOREIGN_MARK: (
        "When the daemon started, it found a write-ahead log that does not belong to {path}, as "
        "after a backup was restored beside it. Nothing of it was used. It is kept as {copy}. "
        "Delete that file to end this warning."
    ),
}
"""What users are told about each kind of copy, by the mark in its name."""

_KEY: Final = "mark"
_COMMITTED_FRAMES: Final = struct.Struct("=16xI")
"""The field `mxFrame` of SQLite's index of a write-ahead log, which it makes in the file `-shm`."""


def wal_of(path: Path) -> Path:
    """Return the path of a SQLite file's write-ahead log."""
    return path.with_name(f"{path.name}-wal")


def write_mark(connection: sqlite3.Connection, path: Path) -> None:
    """Write a new mark, in the current transaction if there is one."""
    try:
        own = _mark(path, "immutable=1").split()[:1]
    except sqlite3.Error:  # the file has no tables yet, or a failed checkpoint has left it half new
        own = []
    values = (_KEY, " ".join([secrets.token_hex(16), *own]))
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", values)


def keep_what_is_not_read(path: Path) -> None:
    """Put the write-ahead log aside if it is foreign, and copy it if commits in it can't be read.

    Call this before SQLite opens the file at `path`, because SQLite may remove the write-ahead log.
    Raises `OSError` and `sqlite3.Error`.
    """
    wal = wal_of(path)
    if not wal.exists() or is_in_use(path):
        return
    if is_foreign(path):
        wal.rename(_kept_name(wal, _FOREIGN_MARK))
        return
    with suppress(sqlite3.Error):  # SQLite tells more later, or goes on, as on a full disk
        if is_damaged(path):
            name = _kept_name(wal, _DAMAGED_MARK)
            descriptor = open_private(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with wal.open("rb") as source, os.fdopen(descriptor, "wb") as copy:
                shutil.copyfileobj(source, copy)
                copy.flush()
                os.fsync(copy.fileno())
            forget(wal)


def kept(path: Path) -> tuple[str, ...]:
    """Return sentences for users about each write-ahead log that was copied or put aside."""
    wal = wal_of(path)
    return tuple(
        sentence.format(path=path, copy=copy)
        for mark, sentence in _KEPT.items()
        for copy in sorted(wal.parent.glob(f"{wal.name}{mark}*"))
    )


def is_in_use(path: Path) -> bool:
    """Whether another process has the file open, and so may be writing the end of the log."""
    with path.open("rb") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, SHARED_BYTES, SHARED_FIRST)
        except OSError:
            return True
    return False


def is_foreign(path: Path) -> bool:
    """Whether the write-ahead log of the file at `path` does not belong to it.

    One without marks, from an older release, counts as belonging. Call this only while this process
    has the file not open, because it would drop the locks. Raises `OSError` and `sqlite3.Error`.
    """
    if not _has_frames(path):
        return False
    if path.stat().st_size == 0:
        return True  # the file was moved away; SQLite would delete this without a word
    try:
        own = _mark(path, "immutable=1")
    except sqlite3.Error:
        return False  # SQLite tells more about a damaged file; a new one has nothing to lose
    try:
        marks = _mark(path, "vfs=unix-none")
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
            return True  # together they are no log, although the file alone is one
        raise
    return bool(marks) and own[:32] not in (marks[:32], marks[33:])


def is_damaged(path: Path) -> bool:
    """Whether the write-ahead log of the file at `path` has commits that SQLite does not find.

    Call this only while no process has the file open. Raises `OSError` and `sqlite3.Error`.
    """
    if is_cut_short(wal_of(path)):
        return True
    if not _has_frames(path):
        return False
    found = _committed_frames(path)
    data = wal_of(path).read_bytes()
    magic, _, _, _, *salts, _, _ = HEADER.unpack_from(data)
    starts = range(HEADER.size, len(data) - FRAME_BYTES + 1, FRAME_BYTES)
    # Old frames, from before the log was last restarted, have two other salts. One wrong bit
    # changes only one salt.
    lost = [
        (start, pages)
        for start in starts[found:]
        for _, pages, *own, _, _ in [FRAME.unpack_from(data, start)]
        if any(a == b for a, b in zip(own, salts, strict=True))
    ]
    # A killed process leaves frames without a commit, and the last of all frames half written, over
    # an old frame or at the end of the file.
    return magic not in MAGICS or any(
        pages and (start != lost[-1][0] or start == starts[-1]) for start, pages in lost
    )


def _kept_name(wal: Path, mark: str) -> Path:
    return wal.with_name(f"{wal.name}{mark}{datetime.now(UTC):%Y%m%dT%H%M%S%f}")


def _has_frames(path: Path) -> bool:
    wal = wal_of(path)
    return wal.exists() and wal.stat().st_size >= HEADER.size + FRAME_BYTES


def _mark(path: Path, how: str) -> str:
    """Return the mark and the one after it; empty if an older release made the file.

    An immutable file is read without its write-ahead log. "unix-none" reads both without making
    another file, for which a full disk has no room.
    """
    with closing(sqlite3.connect(_address(path, how), uri=True)) as connection:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        meta = dict(connection.execute("SELECT key, value FROM meta"))
    if "log_id" not in meta:  # a page of another table, as after a crash in a checkpoint
        raise sqlite3.DatabaseError("the table meta can't be read")
    return meta.get(_KEY, "")


def _committed_frames(path: Path) -> int:
    """Return how many frames of the write-ahead log SQLite finds sound, up to the last commit."""
    index = path.with_name(f"{path.name}-shm")
    with closing(sqlite3.connect(_address(path, ""), uri=True)) as connection:
        connection.execute("PRAGMA user_version").fetchall()
        (frames,) = _COMMITTED_FRAMES.unpack_from(index.read_bytes())
    index.unlink(missing_ok=True)
    return frames


def _address(path: Path, how: str) -> str:
    return f"file:{quote(os.fsencode(path))}?mode=ro&{how}"
