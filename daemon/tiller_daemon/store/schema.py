"""The log's file: its tables, how it is opened, and SQLite's errors.

Only this module, `log` and `wal` contain SQL for the file. Nothing here knows of trio or
threads.
"""

import errno
import os
import secrets
import sqlite3
import stat
import tempfile
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict, astuple, replace

from tiller_daemon.private import make_directory, open_private
from tiller_daemon.store.base import LogError, LogErrorKind, SessionRow
from tiller_daemon.store.wal import keep_what_is_not_read, write_mark
from tiller_protocol.snapshot import SessionSummary

SCHEMA_VERSION = 5
"""The version of the file; files of other versions are refused. It is increased if older releases
can't write the new file."""

_COLUMNS = ("turns", "cost", "parent_turns", "context_tokens", "context_window", "branch")
VERSIONS_WITH_COLUMNS = {3: _COLUMNS, 4: (*_COLUMNS, "outcome")}
"""The versions that become the current one when they are opened, and their columns instead of
`summary`."""

SESSION_FIELDS = SessionRow.__struct_fields__
"""The columns of a session in the order that its checksum covers them, without the checksum."""

BUSY_S_MAX = 5.0
"""How long opening waits for another process, such as a daemon that is being replaced."""

PROBE_BYTES = 64 * 1024
"""How much is written to find out why a write has failed."""

_SESSIONS = """
CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY, workspace TEXT NOT NULL,
    created_at REAL NOT NULL, updated_at REAL NOT NULL, head INTEGER NOT NULL,
    title TEXT NOT NULL, archived INTEGER NOT NULL, unfinished INTEGER NOT NULL,
    parent_id TEXT NOT NULL, owner_id TEXT NOT NULL, summary BLOB NOT NULL,
    checksum INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX sessions_by_time ON sessions (owner_id, archived, updated_at, session_id);
CREATE INDEX sessions_unfinished ON sessions (session_id) WHERE unfinished;
CREATE INDEX sessions_forked ON sessions (parent_id, session_id) WHERE parent_id != '';
"""

_TABLES = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
{_SESSIONS}
CREATE TABLE events (
    session_id TEXT NOT NULL, seq INTEGER NOT NULL, time REAL NOT NULL, body BLOB NOT NULL,
    checksum INTEGER NOT NULL, PRIMARY KEY (session_id, seq)
) WITHOUT ROWID;
CREATE TABLE submissions (
    submission_id TEXT PRIMARY KEY, digest BLOB NOT NULL, answer BLOB NOT NULL,
    checksum INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE requests (
    request_id TEXT NOT NULL, session_id TEXT NOT NULL, resolution TEXT NOT NULL,
    who TEXT NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY (request_id, session_id)
) WITHOUT ROWID;
CREATE INDEX requests_by_session ON requests (session_id);
"""

_KINDS: dict[int, LogErrorKind] = {
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_READONLY: "read_only",
    sqlite3.SQLITE_CORRUPT: "corrupt",
    sqlite3.SQLITE_NOTADB: "corrupt",
    sqlite3.SQLITE_ERROR: "corrupt",  # our SQL is fixed, so a table or column must be wrong
    sqlite3.SQLITE_CONSTRAINT: "conflict",
}

_SYSTEM_KINDS: dict[int, LogErrorKind] = {
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EROFS: "read_only",
    errno.EACCES: "read_only",
    errno.EPERM: "read_only",
}

ADVICE: dict[LogErrorKind, str] = {
    "full": "the disk is full: free some space; stored data is safe",
    "read_only": "the file or its file system is read-only: make it writable",
    "corrupt": "the file is damaged: stop tillerd, copy the file and its -wal, then restore a"
    " backup (docs/backup.md); or, to begin a new log, move both files away",
    "conflict": "nothing was stored: load the session again",
    "io": "the disk or file system failed: see the system's journal",
}

_QUOTA_ADVICE = "your quota on this disk is used up: free some space; stored data is safe"

_BUSY_ADVICE = "another process has it open: stop that process, or use another --state directory"

_FILE_TYPES = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFLNK: "a link",
    stat.S_IFSOCK: "a socket",
}

_INCREMENTAL = 2
"""The value of `auto_vacuum` that lets `transactions` return unused pages to the disk."""

_INODE = "inode"
"""The key in `meta` for the file's inode number, which is another one for a copy of the file."""

INSERT_SESSION = (
    f"INSERT OR REPLACE INTO sessions ({', '.join(SESSION_FIELDS)}, checksum)"  # noqa: S608
    f" VALUES ({', '.join('?' * len(SESSION_FIELDS))}, ?)"
)

_encode = msgspec.msgpack.Encoder().encode


def open_file(path: Path) -> tuple[sqlite3.Connection, str]:
    """Open or create the log at `path`; return the only connection and the log's id.

    A new file has mode 0600, new directories 0700. The file stays locked against all other
    processes until the connection is closed, so that no second daemon can write to it. Any thread
    may use the connection, but only one at a time. Raises `LogError`.
    """
    try:
        check_file_types(path)
        _make_file(path)
        keep_what_is_not_read(path)
        connection = sqlite3.connect(
            path, timeout=BUSY_S_MAX, isolation_level=None, check_same_thread=False
        )
    except (OSError, sqlite3.Error) as error:
        raise log_error(error, path) from error
    try:
        return connection, _prepare(connection, path)
    except sqlite3.Error as error:
        connection.close()
        raise log_error(error, path) from error
    except BaseException:
        connection.close()
        raise


def check_file_types(path: Path) -> None:
    """Raise `LogError` if something else is in the place of a file of the log.

    Reading a FIFO would block, and what SQLite says about the others helps nobody.
    """
    others = (path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal"))
    for file in (path, *others):
        with suppress(FileNotFoundError):
            mode = file.lstat().st_mode
            if not stat.S_ISREG(mode):
                found = _FILE_TYPES.get(stat.S_IFMT(mode), "a device")
                raise LogError(
                    "io",
                    f"the log needs a regular file at {file}, but {found} is there: move it away,"
                    " or use another --state directory",
                )


def read_log_id(connection: sqlite3.Connection, path: Path) -> str:
    """Return the id of an open log; empty if the file is empty.

    Raises `LogError` if this is no log that this release can use.
    """
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    if not tables:
        return ""
    if "meta" not in tables:
        raise LogError("corrupt", f"{path} is a database, but not a log of tillerd: move it away")
    meta: dict[str, str] = dict(connection.execute("SELECT key, value FROM meta"))
    version = str(meta.get("version", ""))
    if version.isdecimal() and int(version) not in (SCHEMA_VERSION, *VERSIONS_WITH_COLUMNS):
        kind: LogErrorKind = "newer" if int(version) > SCHEMA_VERSION else "older"
        raise LogError(
            kind,
            f"the log {path} has version {version}, but this tillerd supports {SCHEMA_VERSION}:"
            f" install the {kind} tillerd again, or use another --state directory",
        )
    if not version.isdecimal() or not meta.get("log_id"):
        raise damaged(path, "the table meta")
    return meta["log_id"]


def separate(connection: sqlite3.Connection, path: Path) -> None:
    """Make a copy of the log a log of its own, to which no write-ahead log belongs."""
    # Nor may it count as the original, if its bytes are copied into the file of the original.
    connection.execute(
        "INSERT OR REPLACE INTO meta VALUES ('log_id', ?), (?, '')", (_new_id(), _INODE)
    )
    write_mark(connection, path)


def log_error(error: Exception, path: Path, kind: LogErrorKind = "io") -> LogError:
    """Return the `LogError` for an exception of SQLite or the operating system.

    An error without a known code gets this `kind`.
    """
    if isinstance(error, OSError):
        kind = _SYSTEM_KINDS.get(error.errno or 0, kind)
        advice = _QUOTA_ADVICE if error.errno == errno.EDQUOT else ADVICE[kind]
        return LogError(kind, f"cannot use the log {path}: {error.strerror}; {advice}")
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_IOERR and (cause := _why_not_writable(path)):
        return log_error(cause, path)
    kind = _KINDS.get(code, kind)
    advice = _BUSY_ADVICE if code == sqlite3.SQLITE_BUSY else ADVICE[kind]
    return LogError(kind, f"the log {path} failed: {error}; {advice}")


def _why_not_writable(path: Path) -> OSError | None:
    """Return why nothing can be stored beside the file, which SQLite does not tell."""
    try:
        with tempfile.TemporaryFile(dir=path.parent, buffering=0) as probe:
            probe.write(bytes(PROBE_BYTES))
            os.fsync(probe.fileno())
    except OSError as error:
        return error
    return None


def damaged(path: Path, what: str) -> LogError:
    """Return the error for damage to a part of the log."""
    return LogError(
        "corrupt",
        f"{what} in the log {path} is damaged; the rest can be read: keep a copy of the file, then"
        " restore a backup or delete the damaged part",
    )


def checksum(*fields: object) -> int:
    """Return a CRC-32 of a row's fields, because SQLite itself does not detect flipped bits."""
    return zlib.crc32(_encode(fields))


def session_values(row: SessionRow) -> tuple[Any, ...]:
    """Return the values of a row, as SQLite gives them back, and its checksum."""
    times = {"created_at": float(row.created_at), "updated_at": float(row.updated_at)}
    flags = {"archived": int(row.archived), "unfinished": int(row.unfinished)}
    values = tuple((asdict(row) | times | flags).values())
    return *values, checksum(*values)


def session_of(values: Sequence[Any], path: Path) -> SessionRow:
    """Return the row with the values and the checksum, or raise `LogError` if it is damaged."""
    *fields, stored = values
    if checksum(*fields) != stored:
        raise damaged(path, f"the row of session {fields[0]}")
    return _with_flags(SessionRow(*fields))


def _with_flags(row: SessionRow) -> SessionRow:
    return replace(row, archived=bool(row.archived), unfinished=bool(row.unfinished))


def _make_file(path: Path) -> None:
    make_directory(path.parent)
    os.close(open_private(path, os.O_RDWR | os.O_CREAT))
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)  # the name of a new file must survive a power failure
    finally:
        os.close(directory)


def _prepare(connection: sqlite3.Connection, path: Path) -> str:
    for pragma in (
        "locking_mode = EXCLUSIVE",  # no other process may open the file
        "synchronous = FULL",  # a commit survives a power failure
        "wal_autocheckpoint = 0",  # `transactions` does it, with a mark
        "cell_size_check = ON",  # finds damaged pages early
        "trusted_schema = OFF",  # a manipulated file can't call functions with side effects
    ):
        connection.execute(f"PRAGMA {pragma}")
    log_id = read_log_id(connection, path)
    if connection.execute("PRAGMA auto_vacuum").fetchone()[0] != _INCREMENTAL:
        # For new files and backups: removed sessions free the disk. If set again, it is written.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")  # writes to the file, so only if it is ours
    inode = str(path.stat().st_ino)
    if not log_id:
        return _make_tables(connection, path, inode)
    _make_summaries(connection, path)
    return _keep_or_renew_id(connection, path, inode)


def _make_summaries(connection: sqlite3.Connection, path: Path) -> None:
    """Make a file of the current version out of one of `VERSIONS_WITH_COLUMNS`."""
    ((version,),) = connection.execute("SELECT value FROM meta WHERE key = 'version'")
    if int(version) == SCHEMA_VERSION:
        return
    own, columns = SESSION_FIELDS[:-1], VERSIONS_WITH_COLUMNS[int(version)]
    query = f"SELECT {', '.join((*own, *columns))}, checksum FROM sessions"  # noqa: S608 - ours
    rows = connection.execute(query).fetchall()
    connection.executescript(f"BEGIN IMMEDIATE; DROP TABLE sessions; {_SESSIONS}")
    for *fields, stored in rows:
        row = _with_flags(SessionRow(*fields[: len(own)]))
        covered = (*astuple(row)[:-1], *fields[len(own) :])
        shown = dict(zip(columns, fields[len(own) :], strict=True))
        outcome = shown.pop("outcome", None) or None
        if "outcome" in columns and not outcome:
            covered = covered[:-1]  # Only a known outcome was covered.
        summary = SessionSummary(
            row.session_id,
            row.workspace,
            row.created_at,
            row.updated_at,
            row.head,
            title=row.title,
            archived=row.archived,
            parent_id=row.parent_id or None,
            last_outcome=outcome,
            **shown,
        )
        *values, valid = session_values(replace(row, summary=_encode(summary)))
        # A damaged row must not become a valid one.
        is_damaged = checksum(*covered) != stored
        connection.execute(INSERT_SESSION, (*values, valid ^ is_damaged))
    connection.execute("UPDATE meta SET value = ? WHERE key = 'version'", (str(SCHEMA_VERSION),))
    write_mark(connection, path)
    connection.execute("COMMIT")


def _keep_or_renew_id(connection: sqlite3.Connection, path: Path, inode: str) -> str:
    """Return the log's id, a new one if the file is a copy, whose events will be others."""
    meta: dict[str, str] = dict(connection.execute("SELECT key, value FROM meta"))
    if meta.get(_INODE) != inode:
        if _INODE in meta:
            meta["log_id"] = _new_id()
        write_mark(connection, path)
        connection.execute(
            "INSERT OR REPLACE INTO meta VALUES ('log_id', ?), (?, ?)",
            (meta["log_id"], _INODE, inode),
        )
    return meta["log_id"]


def _make_tables(connection: sqlite3.Connection, path: Path, inode: str) -> str:
    log_id = _new_id()
    connection.executescript(f"BEGIN IMMEDIATE; {_TABLES}")
    connection.executemany(
        "INSERT INTO meta VALUES (?, ?)",
        [("version", str(SCHEMA_VERSION)), ("log_id", log_id), (_INODE, inode)],
    )
    write_mark(connection, path)
    connection.execute("COMMIT")
    return log_id


def _new_id() -> str:
    return secrets.token_hex(16)
