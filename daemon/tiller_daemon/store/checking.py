"""Checks the file of the log while no daemon has it open, and changes nothing."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from tiller_daemon.store.base import LogError
from tiller_daemon.store.schema import damaged, log_error
from tiller_daemon.store.wal import is_damaged, lost_commits, wal_of


def check_log(path: Path) -> None:
    """Raise `LogError` if the log can't be written or parts of it can't be read.

    Copies of lost commits are reported too, because users want to know about them. A log that does
    not exist is no error.
    """
    if not path.exists():
        return
    try:
        # This fails if the log can't be written, and changes nothing.
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        if wal_of(path).exists() and is_damaged(wal_of(path).read_bytes()):
            raise damaged(path, "the end of the write-ahead log")
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
            ((answer,),) = connection.execute("PRAGMA quick_check(1)").fetchall()
    except (OSError, sqlite3.Error) as error:
        raise log_error(error, path) from error
    if answer != "ok":
        raise log_error(sqlite3.DatabaseError(answer.splitlines()[-1]), path, "corrupt")
    for sentence in lost_commits(path):
        raise LogError("corrupt", sentence)
