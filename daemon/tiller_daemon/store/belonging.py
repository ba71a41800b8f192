"""Ties a write-ahead log to its file, because SQLite replays any sound one over any file.

Whoever restores a backup may leave the write-ahead log of the newer file beside it. So the table
`meta` has a random *mark*, followed by the mark before it. The first commit after each checkpoint
writes a new mark, and so does the last one before a checkpoint. Hence a write-ahead log contains
the mark that its file has, unless the two do not belong together.
"""

import os
import re
import secrets
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tiller_daemon.store.wal import FRAME, HEADER, is_in_use, kept_name, wal_of

FOREIGN_MARK: Final = ".foreign-"

FOREIGN: Final = (
    "{wal} does not belong to {path}: it is from another file, or from another state of this file, "
    "as after a backup was restored beside it"
)

PUT_ASIDE: Final = (
    "When the daemon started, it found a write-ahead log that does not belong to {path}, as after "
    "a backup was restored beside it. Nothing of it was used. It is kept as {copy}. Delete that "
    "file to end this warning."
)

_KEY: Final = "generation"
_MARK_CHARACTERS: Final = 32
_NONE: Final = "0" * _MARK_CHARACTERS
"""Stands for the mark of a file that has none yet, because an older release made it."""

_MARKS: Final = re.compile(rb"generation([0-9a-f]{32})([0-9a-f]{32})")
_CELL_HEADER_BYTES_MAX: Final = 16
_LEAF_OF_INDEX: Final = 0x0A
"""The type of the page with the table `meta`, which is small and has no row ids."""

_WRITE_MARK = f"""
INSERT INTO meta VALUES ('{_KEY}', :mark || '{_NONE}')
ON CONFLICT (key) DO UPDATE SET value = :mark || substr(value, 1, {_MARK_CHARACTERS})
"""  # noqa: S608 - the values are ours


def write_mark(connection: sqlite3.Connection) -> None:
    """Write a new mark, in the current transaction if there is one."""
    connection.execute(_WRITE_MARK, {"mark": secrets.token_hex(_MARK_CHARACTERS // 2)})


def is_foreign(path: Path) -> bool:
    """Whether the write-ahead log of the file at `path` does not belong to it.

    One without marks, from an older release, counts as belonging. Raises `OSError`.
    """
    try:
        data = wal_of(path).read_bytes()
    except FileNotFoundError:
        return False
    if len(data) < HEADER.size + FRAME.size:
        return False
    if not path.exists() or path.stat().st_size == 0:
        return True  # the file was moved away; SQLite would delete this without a word
    try:
        mark, page = _read_mark(path)
    except sqlite3.Error:
        return False  # SQLite tells more about a damaged file
    marks = _marks_in(data, page)
    return bool(marks) and mark not in marks


def put_aside_if_foreign(path: Path) -> None:
    """Rename the write-ahead log of the file at `path` if it does not belong to the file.

    Call this before SQLite opens the file. Raises `OSError`.
    """
    wal = wal_of(path)
    if path.exists() and not is_in_use(path) and is_foreign(path):
        wal.rename(kept_name(wal, FOREIGN_MARK))


def put_aside(path: Path) -> tuple[str, ...]:
    """Return sentences for users about each write-ahead log that was put aside."""
    wal = wal_of(path)
    copies = sorted(wal.parent.glob(f"{wal.name}{FOREIGN_MARK}*"))
    return tuple(PUT_ASIDE.format(path=path, copy=copy) for copy in copies)


def _read_mark(path: Path) -> tuple[str, int]:
    """Return the mark in the file itself, and the number of the page with the table `meta`."""
    # An immutable file is read without its write-ahead log.
    address = f"file:{quote(os.fsencode(path))}?mode=ro&immutable=1"
    with closing(sqlite3.connect(address, uri=True)) as connection:
        query = "SELECT rootpage FROM sqlite_schema WHERE name = 'meta'"
        row = connection.execute(query).fetchone()
        meta = dict(connection.execute("SELECT key, value FROM meta"))
    if "log_id" not in meta:  # a page of another table: a crash has interrupted a checkpoint
        raise sqlite3.DatabaseError("the table meta can't be read")
    return str(meta.get(_KEY, _NONE))[:_MARK_CHARACTERS], row[0]


def _marks_in(data: bytes, page: int) -> set[str]:
    """Return all marks in the frames of this page, and the mark before the first of them."""
    _, _, page_bytes, _, *salts, _, _ = HEADER.unpack_from(data)
    size = FRAME.size + page_bytes
    marks: set[str] = set()
    for start in range(HEADER.size, len(data) - size + 1, size):
        number, _, *own_salts, _, _ = FRAME.unpack_from(data, start)
        if own_salts != salts:  # a frame from before the write-ahead log was last begun
            break
        if number == page and (found := _marks_on(data[start + FRAME.size : start + size])):
            marks.update(found if not marks else found[:1])
    return marks


def _marks_on(page: bytes) -> tuple[str, ...]:
    """Return the mark on a page of the table `meta`, and the mark before it."""
    if page[0] != _LEAF_OF_INDEX:
        return ()
    cells = int.from_bytes(page[3:5], "big")
    # Only through the pointers: what no cell uses may be left from an older mark.
    for place in range(8, 8 + 2 * cells, 2):
        start = int.from_bytes(page[place : place + 2], "big")
        if found := _MARKS.search(page, start, start + _CELL_HEADER_BYTES_MAX + 74):
            return found[1].decode(), found[2].decode()
    return ()
