"""Copies the log while it is in use, into a file that can take the log's place."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from tiller_daemon.private import open_private
from tiller_daemon.store.base import LogError
from tiller_daemon.store.schema import ADVICE, log_error, separate


def back_up(connection: sqlite3.Connection, file: Path) -> int:
    """Write a compact copy of the log to `file`, which must not exist; return its size in bytes.

    The copy is complete and on the disk before it has its name. It has an id of its own. Call this
    outside of a transaction. Raises `LogError`.
    """
    if os.path.lexists(file):
        raise LogError("io", f"{file} exists: choose another name, or move that file away")
    draft = file.with_name(f".{file.name}.new")
    try:
        draft.unlink(missing_ok=True)
        os.close(open_private(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        try:
            connection.execute("VACUUM INTO ?", (str(draft),))
            with closing(sqlite3.connect(draft, isolation_level=None)) as copy:
                separate(copy, draft)
            _sync(draft)
            draft.rename(file)
        finally:
            draft.unlink(missing_ok=True)
        _sync(file.parent)
        return file.stat().st_size
    except (OSError, sqlite3.Error) as error:
        kind = log_error(error, file).kind
        reason = error.strerror if isinstance(error, OSError) else error
        raise LogError(kind, f"the backup {file} was not made: {reason}; {ADVICE[kind]}") from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
