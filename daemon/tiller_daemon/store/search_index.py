"""The full-text index of all sessions, in its own file beside the log.

All its content comes from the log. So it is written without waiting for the disk, and a damaged
file, or one of another log, is replaced with an empty file. `session/searching` fills the index.
"""

import json
import os
import sqlite3
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from tiller_daemon.private import make_directory, open_private
from tiller_daemon.store.base import SessionRow
from tiller_daemon.store.search_query import BEGIN, END, indexed, original, pieces
from tiller_protocol.sessions import FoundText, PastInput, TextKind

INDEX_VERSION = "2"
"""The version of the file; a file of another version is replaced."""

TEXTS_PER_SESSION = 3
"""The most texts of one session that a search returns."""

EXCERPT_WORDS = 24
"""The length of an excerpt, which is about two lines of a terminal."""

_TABLES = """
CREATE TABLE meta (version TEXT NOT NULL, log_id TEXT NOT NULL);
CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY, workspace TEXT NOT NULL, archived INTEGER NOT NULL,
    updated_at REAL NOT NULL, title TEXT NOT NULL, head INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE texts (
    id INTEGER PRIMARY KEY, session_id TEXT NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL,
    time REAL NOT NULL, turn_id TEXT NOT NULL, item_id TEXT NOT NULL, digest BLOB
);
CREATE INDEX texts_by_session ON texts (session_id);
CREATE INDEX inputs_by_time ON texts (time, id) WHERE digest NOT NULL;
CREATE INDEX inputs_by_digest ON texts (digest, time, id) WHERE digest NOT NULL;
CREATE VIRTUAL TABLE words USING fts5 (text, tokenize = 'unicode61 remove_diacritics 2');
"""

_MATCHING = """
SELECT session_id, updated_at FROM sessions
WHERE session_id IN (
    SELECT texts.session_id FROM words JOIN texts ON texts.id = words.rowid WHERE words MATCH :match
) AND (:workspaces IS NULL OR workspace IN (SELECT value FROM json_each(:workspaces)))
AND archived <= :archived
AND (updated_at, session_id) < (:time, :before)
ORDER BY updated_at DESC, session_id DESC LIMIT :limit
"""

_NEWEST = """
SELECT session_id, id FROM (
    SELECT texts.session_id, texts.id, row_number() OVER (
        PARTITION BY texts.session_id ORDER BY kind = 'title' DESC, time DESC, texts.id DESC
    ) AS place
    FROM words JOIN texts ON texts.id = words.rowid
    WHERE words MATCH ? AND texts.session_id IN (SELECT value FROM json_each(?))
) WHERE place <= ? ORDER BY session_id, place
"""

_EXCERPTS = f"""
SELECT words.rowid, texts.kind, snippet(words, 0, '{BEGIN}', '{END}', '…', {EXCERPT_WORDS}),
    texts.time, texts.seq, texts.turn_id, texts.item_id
FROM words CROSS JOIN texts ON texts.id = words.rowid
WHERE words MATCH ? AND +words.rowid IN (SELECT value FROM json_each(?))
"""  # noqa: S608
"""The `+` makes SQLite go through all matches once, instead of searching anew for each row."""

_INPUTS = """
SELECT newest.id, words.text, newest.time, newest.session_id
FROM texts AS newest CROSS JOIN sessions USING (session_id)
CROSS JOIN words ON words.rowid = newest.id
WHERE newest.digest NOT NULL AND (newest.time, newest.id) < (:time, :before)
AND (:workspace IS NULL OR workspace = :workspace) AND NOT EXISTS (
    SELECT 1 FROM texts AS later JOIN sessions AS its USING (session_id)
    WHERE later.digest = newest.digest AND (later.time, later.id) > (newest.time, newest.id)
    AND (:workspace IS NULL OR its.workspace = :workspace)
) ORDER BY newest.time DESC, newest.id DESC LIMIT :limit
"""
"""`CROSS JOIN` keeps the tables in this order, so that the search stops when the page is full."""

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
"""Our SQL is fixed, so after `SQLITE_ERROR` a table must be wrong."""


class SearchError(Exception):
    """The index can't be used; the message says why and what to do."""


class Text(NamedTuple):
    """A searchable text in an event of the log."""

    kind: TextKind
    """The kind of text, such as an input or a title."""
    text: str
    """The text itself."""
    time: float
    """The Unix time of the event, in seconds."""
    seq: int
    """The number of the event."""
    turn_id: str = ""
    """The turn that the text belongs to; empty outside turns."""
    item_id: str = ""
    """The item that contains the text; empty for a title."""


class SearchIndex:
    """The index of one log; the first use opens the file.

    Any thread may use the index, but only one at a time. Methods raise `SearchError`. If they find
    damage, the index becomes empty, and so does the result of `heads`.
    """

    def __init__(self, path: Path, log_id: str) -> None:
        self._path = path
        self._log_id = log_id
        self._opened: sqlite3.Connection | None = None

    def heads(self) -> dict[str, tuple[int, float]]:
        """Return the number and the time of the last event of each indexed session."""
        with self._transaction() as connection:
            query = "SELECT session_id, head, updated_at FROM sessions"
            rows = connection.execute(query).fetchall()
        return {session_id: (head, updated_at) for session_id, head, updated_at in rows}

    def head(self, session_id: str) -> int:
        """Return the number of the event up to which a session is indexed."""
        with self._transaction() as connection:
            query = "SELECT head FROM sessions WHERE session_id = ?"
            row = connection.execute(query, (session_id,)).fetchone()
        return row[0] if row else 0

    def add(self, row: SessionRow, head: int, texts: Iterable[Text]) -> None:
        """Add texts of a session, which is then indexed up to `head`, in one transaction."""
        with self._transaction() as connection:
            query = "SELECT title FROM sessions WHERE session_id = ?"
            known = connection.execute(query, (row.session_id,)).fetchone()
            if known is None or known[0] != row.title:
                _delete_texts(connection, row.session_id, "title")
                _insert(connection, row.session_id, Text("title", row.title, row.created_at, 0))
            for text in texts:
                _insert(connection, row.session_id, text)
            values = (row.session_id, row.workspace, row.archived, row.updated_at, row.title, head)
            connection.execute("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?)", values)

    def forget(self, session_id: str) -> None:
        """Remove a session and its texts."""
        with self._transaction() as connection:
            _delete_texts(connection, session_id)
            connection.execute("DELETE FROM sessions WHERE session_id = ?", (session_id,))

    def find(
        self,
        match: str,
        workspaces: Sequence[str] | None,
        *,
        archived: bool,
        limit: int,
        before: tuple[float, str],
    ) -> list[tuple[str, float, tuple[FoundText, ...]]]:
        """Return a page of sessions with matching texts: id, time of last activity, and texts.

        The most recently active session comes first. `workspaces` are directories; None matches
        all. `match` is a `match_expression`; `before`
        is the time and id of the last session on the previous page.
        """
        page = {
            "match": match,
            "workspaces": None if workspaces is None else json.dumps(workspaces),
            "archived": archived,
            "limit": limit,
            "time": before[0],
            "before": before[1],
        }
        with self._transaction() as connection:
            sessions: list[tuple[str, float]] = connection.execute(_MATCHING, page).fetchall()
            wanted = json.dumps([session_id for session_id, _ in sessions])
            places = connection.execute(_NEWEST, (match, wanted, TEXTS_PER_SESSION)).fetchall()
            numbers = json.dumps([number for _, number in places])
            found = {
                number: FoundText(kind, pieces(excerpt), *rest)
                for number, kind, excerpt, *rest in connection.execute(_EXCERPTS, (match, numbers))
            }
        texts: dict[str, list[FoundText]] = {}
        for session_id, number in places:
            texts.setdefault(session_id, []).append(found[number])
        return [(session_id, at, tuple(texts[session_id])) for session_id, at in sessions]

    def inputs(
        self, workspace: str | None, limit: int, before: tuple[float, int]
    ) -> list[tuple[int, PastInput]]:
        """Return the user's inputs with their numbers, newest first and without repetitions.

        `before` is the time and number of the last input on the previous page.
        """
        page = {"workspace": workspace, "limit": limit, "time": before[0], "before": before[1]}
        with self._transaction() as connection:
            rows = connection.execute(_INPUTS, page).fetchall()
        return [(number, PastInput(original(text), *rest)) for number, text, *rest in rows]

    def close(self) -> None:
        """Close the file."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        """Yield the connection in a transaction; opens the file if necessary."""
        try:
            connection = self._opened = self._opened or self._open()
            connection.execute("BEGIN")
            yield connection
            connection.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            self.close()  # which rolls back
            if _is_damage(error):
                self._remove()
            message = f"The search index {self._path} can't be used: {error}."
            raise SearchError(message) from error
        except BaseException:
            self.close()  # to the next caller, an open transaction would look like damage
            raise

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except sqlite3.Error as error:
            if not _is_damage(error):
                raise
        self._remove()
        return self._connect()

    def _connect(self) -> sqlite3.Connection:
        make_directory(self._path.parent)
        os.close(open_private(self._path, os.O_RDWR | os.O_CREAT))
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            _prepare(connection, (INDEX_VERSION, self._log_id))
        except BaseException:
            connection.close()
            raise
        return connection

    def _remove(self) -> None:
        """Remove the file, so that the next use begins with an empty file."""
        for end in ("", "-wal", "-shm"):
            Path(f"{self._path}{end}").unlink(missing_ok=True)


def _prepare(connection: sqlite3.Connection, owner: tuple[str, str]) -> None:
    """Make the tables unless they exist; `owner` is the index version and the log's id."""
    for pragma in (
        "locking_mode = EXCLUSIVE",  # only for this daemon, which holds the log's lock
        "journal_mode = WAL",
        "synchronous = NORMAL",  # a power failure takes the latest commits, but breaks nothing
        "cell_size_check = ON",
        "trusted_schema = OFF",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    if connection.execute("SELECT name FROM sqlite_schema").fetchall():
        if connection.execute("SELECT version, log_id FROM meta").fetchall() != [owner]:
            raise sqlite3.DatabaseError("it belongs to another log or version")
        return
    connection.executescript(f"BEGIN; {_TABLES}")
    connection.execute("INSERT INTO meta VALUES (?, ?)", owner)
    connection.execute("COMMIT")


def _is_damage(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return isinstance(error, sqlite3.Error) and code & 0xFF in _DAMAGED


def _insert(connection: sqlite3.Connection, session_id: str, text: Text) -> None:
    if not text.text:
        return
    is_input = text.kind == "input"
    digest = blake2b(text.text.encode(), digest_size=8).digest() if is_input else None
    values = (session_id, text.seq, text.kind, text.time, text.turn_id, text.item_id, digest)
    query = (
        "INSERT INTO texts (session_id, seq, kind, time, turn_id, item_id, digest)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)"
    )
    number = connection.execute(query, values).lastrowid
    connection.execute(
        "INSERT INTO words (rowid, text) VALUES (?, ?)", (number, indexed(text.text))
    )


def _delete_texts(connection: sqlite3.Connection, session_id: str, kind: str = "") -> None:
    """Remove the texts of a session, or only its texts of one `kind`."""
    where = "session_id = ? AND ? IN ('', kind)"
    values = (session_id, kind)
    words = f"DELETE FROM words WHERE rowid IN (SELECT id FROM texts WHERE {where})"  # noqa: S608
    connection.execute(words, values)
    connection.execute(f"DELETE FROM texts WHERE {where}", values)  # noqa: S608
