"""Checks the file of the log while no daemon has it open, and changes nothing."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from tiller_daemon.store.base import LogError
from tiller_daemon.store.log import SELECT_SESSION
from tiller_daemon.store.schema import (
    SCHEMA_VERSION,
    check_file_types,
    checksum,
    damaged,
    log_error,
    read_log_id,
    session_of,
)
from tiller_daemon.store.wal import FOREIGN, is_damaged, is_foreign, is_in_use, kept, wal_of

_ROWS = {
    "event {1} of session {0}": "SELECT session_id, seq, time, body, checksum FROM events",
    "the answer to submission {0}": "SELECT submission_id, digest, answer, checksum"
    " FROM submissions",
    "the row of request {0}": "SELECT request_id, session_id, resolution, who, checksum"
    " FROM requests",
}
"""The names of rows, and the query for all of them; `log` has the one for sessions."""


def check_log(path: Path) -> None:
    """Raise `LogError` if a daemon could not start with the log, or if parts can't be read.

    Copies of lost commits are reported too, because users want to know about them. A log that does
    not exist is no error.
    """
    try:
        os.lstat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise log_error(error, path) from error
    try:
        check_file_types(path)
        # This fails if the log can't be written, and changes nothing.
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        if is_in_use(path):
            raise LogError(
                "io",
                f"another process has the log {path} open, probably a running tillerd. To ask it"
                " about the log: tiller doctor. To check the file, first stop tillerd: tiller"
                " daemon stop",
            )
        if is_foreign(path):
            raise LogError(
                "corrupt",
                f"{FOREIGN.format(wal=wal_of(path), path=path)}. The next daemon puts it aside",
            )
        if is_damaged(path):
            raise damaged(path, "the end of the write-ahead log")
        address = f"file:{quote(os.fsencode(path))}?mode=ro"
        with closing(sqlite3.connect(address, timeout=0, uri=True)) as connection:
            ((answer,),) = connection.execute("PRAGMA quick_check(1)").fetchall()
            if answer != "ok":
                reason = sqlite3.DatabaseError(answer.splitlines()[-1])
                raise log_error(reason, path, "corrupt")
            if read_log_id(connection, path):
                _check_rows(connection, path)
    except (OSError, sqlite3.Error) as error:
        raise log_error(error, path) from error
    for sentence in kept(path):
        raise LogError("corrupt", sentence)


def _check_rows(connection: sqlite3.Connection, path: Path) -> None:
    """Raise `LogError` if a row is not as it was written, which no check of pages finds."""
    for name, query in _ROWS.items():
        for *fields, stored in connection.execute(query):
            if checksum(*fields) != stored:
                raise damaged(path, name.format(*fields))
    query = "SELECT 1 FROM meta WHERE key = 'version' AND value = ?"
    if connection.execute(query, (str(SCHEMA_VERSION),)).fetchone():
        for row in connection.execute(SELECT_SESSION):
            session_of(row, path)
