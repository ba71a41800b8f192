"""The log in a SQLite file: the statements that write batches and read them back.

`database` decides where each statement runs, so that no slow statement blocks the event loop.
`schema` has the tables.
"""

import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import structlog
import trio
from msgspec.structs import astuple

from tiller_daemon.store.backup import back_up
from tiller_daemon.store.base import (
    Batch,
    EventRow,
    LogError,
    RequestRow,
    SessionRow,
    SubmissionRow,
    head_conflict,
    read_cursor,
    seq_before,
    submission_conflict,
)
from tiller_daemon.store.database import Database
from tiller_daemon.store.schema import (
    INSERT_SESSION,
    SESSION_FIELDS,
    checksum,
    damaged,
    open_file,
    session_of,
    session_values,
)
from tiller_daemon.store.wal import kept

SELECT_SESSION = f"SELECT {', '.join(SESSION_FIELDS)}, checksum FROM sessions"  # noqa: S608


@asynccontextmanager
async def open_log(
    path: Path, check_owner: Callable[[], None] = lambda: None
) -> AsyncGenerator["SqliteLog"]:
    """Open the log at `path`, or create it; on exit, finish all jobs and close the log.

    `check_owner` is called before each write, and does not return if this process must not write.

    Raises a `LogError` of the kind `newer`, `corrupt`, `read_only`, `full` or `io`. Closing is
    shielded from cancellation for at most `database.CLOSE_S_MAX` seconds.
    """
    connection, log_id = await trio.to_thread.run_sync(open_file, path)
    database = Database(connection, path, check_owner)
    try:
        yield SqliteLog(database, path, log_id)
    finally:
        await database.close()


class SqliteLog:
    """Implements `Log` in a file. Made by `open_log`, in whose event loop it must be used."""

    def __init__(self, database: Database, path: Path, log_id: str) -> None:
        self.log_id = log_id
        self.path = str(path)
        self._file = path
        self._database = database

    async def append(self, batch: Batch) -> None:
        """Store a batch; see `Log.append`."""
        before = seq_before(batch)
        size = sum(len(event.body) for event in batch.events)
        await self._database.write(
            lambda connection: _write_batch(connection, batch, before),
            size=size,
            synced=batch.synced,
        )

    async def record(self, submission: SubmissionRow) -> None:
        """Store an answer; see `Log.record`."""
        await self._database.write(lambda connection: _write_submission(connection, submission))

    async def delete(self, session_id: str) -> None:
        """Remove a session; see `Log.delete`."""
        await self._database.write(lambda connection: _delete_session(connection, session_id))

    async def events(self, session_id: str, after: int, limit: int, bytes_max: int) -> list[bytes]:
        """Return the bodies after `after`; see `Log.events`.

        Raises a `LogError` of the kind `corrupt` if an event is damaged or missing.
        """
        return await self._database.read(
            lambda connection: self._read_events(
                connection, session_id, max(after, 0), limit, bytes_max
            )
        )

    async def head(self, session_id: str) -> int:
        """Return the last `seq`; see `Log.head`."""
        return await self._database.look_up(lambda connection: _head(connection, session_id))

    async def submission(self, submission_id: str) -> SubmissionRow | None:
        """Return the stored answer; see `Log.submission`."""
        return await self._database.look_up(
            lambda connection: self._read_submission(connection, submission_id)
        )

    async def highest_submission(self) -> str:
        """Return the greatest submission id; see `Log.highest_submission`."""
        rows = await self._rows("SELECT coalesce(max(submission_id), '') FROM submissions")
        return rows[0][0]

    async def requests(self, request_id: str) -> list[RequestRow]:
        """Return the rows of a request; see `Log.requests`. A damaged row raises `LogError`."""
        query = (
            "SELECT request_id, session_id, resolution, who, checksum FROM requests"
            " WHERE request_id = ? ORDER BY resolution = '', session_id"
        )
        return [self._request_row(row) for row in await self._look_up(query, request_id)]

    async def session(self, session_id: str) -> SessionRow | None:
        """Return the row of a session; see `Log.session`."""
        rows = await self._look_up(f"{SELECT_SESSION} WHERE session_id = ?", session_id)
        try:
            return session_of(rows[0], self._file) if rows else None
        except LogError as error:
            self._database.met(error)
            raise

    async def sessions(
        self,
        *,
        workspace: str | None,
        owner_id: str | None = "",
        archived: bool | None,
        limit: int,
        after: str | None,
        session_ids: Sequence[str] | None = None,
        beside: Sequence[str] = (),
    ) -> list[SessionRow]:
        """Return a page of rows; see `Log.sessions`. A damaged row is skipped and reported."""
        query = f"{SELECT_SESSION} WHERE TRUE"
        values: list[Any] = []
        if archived is not None:
            query += " AND archived = ?"
            values.append(archived)
        if session_ids is not None:
            query += f" AND session_id IN ({', '.join('?' * len(session_ids))})"
            values.extend(session_ids)
        if owner_id is not None:
            query += " AND owner_id = ?"
            values.append(owner_id)
        if workspace is not None:
            query += f" AND workspace IN (?{', ?' * len(beside)})"
            values += (workspace, *beside)
        if after is not None:
            query += " AND (updated_at, session_id) < (?, ?)"
            values.extend(read_cursor(after))
        query += " ORDER BY updated_at DESC, session_id DESC LIMIT ?"
        rows = await self._rows(query, *values, limit)
        return [row for values in rows if (row := self._valid_row(values)) is not None]

    async def unfinished(self) -> list[str]:
        """Return the sessions with an open turn; see `Log.unfinished`."""
        return await self._ids("unfinished")

    async def forks(self, session_id: str) -> list[str]:
        """Return the sessions that were forked from this one; see `Log.forks`."""
        return await self._ids("parent_id = ? AND parent_id != ''", session_id)

    async def sub_agents(self, session_id: str) -> list[str]:
        """Return the sessions that work for this one; see `Log.sub_agents`."""
        return await self._ids("owner_id = ?", session_id)

    async def count(self) -> int:
        """Return the number of sessions; see `Log.count`."""
        return (await self._rows("SELECT count(*) FROM sessions"))[0][0]

    async def back_up(self, file: Path) -> int:
        """Copy the log; see `Log.back_up`."""
        return await self._database.read(lambda connection: back_up(connection, file))

    def problems(self) -> tuple[str, ...]:
        """Return sentences about problems of the files and about what was kept of them."""
        return (*self._database.problems(), *kept(self._file))

    async def _ids(self, where: str, *values: str) -> list[str]:
        query = f"SELECT session_id FROM sessions WHERE {where} ORDER BY session_id"  # noqa: S608 - `where` is ours
        return [session_id for (session_id,) in await self._rows(query, *values)]

    async def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return await self._database.read(
            lambda connection: connection.execute(query, values).fetchall()
        )

    async def _look_up(self, query: str, key: str) -> list[tuple[Any, ...]]:
        return await self._database.look_up(
            lambda connection: connection.execute(query, (key,)).fetchall()
        )

    def _valid_row(self, values: tuple[Any, ...]) -> SessionRow | None:
        try:
            return session_of(values, self._file)
        except LogError as error:  # one damaged row must not hide the other sessions
            self._database.met(error)
            structlog.get_logger().warning("session_row_damaged", message=error.message)
            return None

    def _request_row(self, row: tuple[Any, ...]) -> RequestRow:
        *fields, stored = row
        if checksum(*fields) != stored:
            raise damaged(self._file, f"the row of request {fields[0]}")
        return RequestRow(*fields)

    def _read_events(
        self,
        connection: sqlite3.Connection,
        session_id: str,
        after: int,
        limit: int,
        bytes_max: int,
    ) -> list[bytes]:
        query = (
            "SELECT seq, time, body, checksum FROM events"
            " WHERE session_id = ? AND seq > ? ORDER BY seq LIMIT ?"
        )
        bodies: list[bytes] = []
        total = 0
        expected = after
        for seq, time, body, stored in connection.execute(query, (session_id, after, limit)):
            expected += 1
            if seq != expected or checksum(session_id, seq, time, body) != stored:
                raise damaged(self._file, f"event {expected} of session {session_id}")
            total += len(body)
            if bodies and total > bytes_max:
                return bodies
            bodies.append(body)
        # Missing events at the end show only in the session's row, which has the true head.
        if len(bodies) < limit and _head(connection, session_id) > expected:
            raise damaged(self._file, f"event {expected + 1} of session {session_id}")
        return bodies

    def _read_submission(
        self, connection: sqlite3.Connection, submission_id: str
    ) -> SubmissionRow | None:
        query = "SELECT digest, answer, checksum FROM submissions WHERE submission_id = ?"
        row = connection.execute(query, (submission_id,)).fetchone()
        if row is None:
            return None
        digest, answer, stored = row
        if checksum(submission_id, digest, answer) != stored:
            raise damaged(self._file, f"the answer to submission {submission_id}")
        return SubmissionRow(submission_id, digest, answer)


def _write_batch(connection: sqlite3.Connection, batch: Batch, before: int) -> None:
    row = batch.session
    head = _head(connection, row.session_id)
    if head != before:
        raise head_conflict(row.session_id, before, head)
    if batch.submission is not None:
        _write_submission(connection, batch.submission)
    connection.execute(INSERT_SESSION, session_values(row))
    connection.executemany(
        "INSERT INTO events VALUES (?, ?, ?, ?, ?)",
        [_event_values(row.session_id, event) for event in batch.events],
    )
    connection.executemany(
        "INSERT OR REPLACE INTO requests VALUES (?, ?, ?, ?, ?)",
        [(*values, checksum(*values)) for values in map(astuple, batch.requests)],
    )


def _event_values(session_id: str, event: EventRow) -> tuple[str, int, float, bytes, int]:
    # The column is REAL: an integer would come back as a float, and the checksum would not match.
    seq, time, body = event.seq, float(event.time), event.body
    return session_id, seq, time, body, checksum(session_id, seq, time, body)


def _write_submission(connection: sqlite3.Connection, submission: SubmissionRow) -> None:
    values = (submission.submission_id, submission.digest, submission.answer)
    try:
        connection.execute(
            "INSERT INTO submissions VALUES (?, ?, ?, ?)", (*values, checksum(*values))
        )
    except sqlite3.IntegrityError:
        raise submission_conflict(submission.submission_id) from None


def _delete_session(connection: sqlite3.Connection, session_id: str) -> None:
    for table in ("events", "requests", "sessions"):
        connection.execute(f"DELETE FROM {table} WHERE session_id = ?", (session_id,))  # noqa: S608


def _head(connection: sqlite3.Connection, session_id: str) -> int:
    query = "SELECT head FROM sessions WHERE session_id = ?"
    row = connection.execute(query, (session_id,)).fetchone()
    return row[0] if row else 0
