"""The interface of a log: its rows, its errors, and the protocol `Log`.

Here, bodies of events and summaries of sessions are opaque bytes. Sessions and requests have their
own rows, so that they can be found without reading events; `projection` makes the rows of requests
from events.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

LogErrorKind = Literal["full", "read_only", "corrupt", "newer", "older", "io", "closed", "conflict"]
"""`full`, `read_only` and `io` can be temporary: later writes succeed once the cause is gone.
`conflict` is a bug or race in the caller: a gap in `seq`, or a submission id that exists."""


class LogError(Exception):
    """An operation on the log failed; `message` says what happened, where, and what to do."""

    def __init__(self, kind: LogErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind: LogErrorKind = kind
        self.message = message


class BadCursor(ValueError):
    """The argument `after` for a page of sessions was not made by `cursor_of`."""


class EventRow(NamedTuple):
    """An event: its number, its Unix time in seconds, and its body, made by `encode_event`."""

    seq: int
    time: float
    body: bytes


class SessionRow(Struct, frozen=True):
    """The data of a session that lists and recovery need without reading its events."""

    session_id: str
    """The session's ULID."""
    workspace: str
    """The absolute path of the workspace."""
    created_at: float
    """When the session was created, in Unix seconds."""
    updated_at: float
    """When the session was last updated, in Unix seconds."""
    head: int
    """The `seq` of the session's last event."""
    title: str = ""
    """The title; empty until a title is set or generated."""
    archived: bool = False
    """Whether lists leave the session out by default."""
    unfinished: bool = False
    """Whether a turn is open."""
    parent_id: str = ""
    """The session that this one was forked from; its events begin this history. "" for none."""
    owner_id: str = ""
    """The session that this one works for as a sub-agent; "" for none."""
    summary: bytes = b""
    """The `SessionSummary` for lists, encoded by msgpack. A new field in it needs no new column."""


class SubmissionRow(Struct, frozen=True):
    """The answer to a submission, so that sending it again gets the same answer."""

    submission_id: str
    digest: bytes
    answer: bytes


class RequestRow(Struct, frozen=True):
    """A request and its resolution, which is empty while the request is open.

    A request that several sessions show has a row for each session. `by` is the name of the
    frontend that resolved the request.
    """

    request_id: str
    session_id: str
    resolution: str = ""
    by: str = ""


class Batch(Struct, frozen=True):
    """A unit that is committed atomically: a session's events, its new row, perhaps an answer."""

    session: SessionRow
    """The session's row after these events."""
    events: tuple[EventRow, ...]
    """The events, which follow the stored head without a gap and end at `session.head`; empty if
    only the row changes."""
    submission: SubmissionRow | None = None
    """The answer to the submission that caused the events; None if no answer is to be stored."""
    requests: tuple[RequestRow, ...] = ()
    """The rows made from these events."""
    synced: bool = True
    """Whether the batch survives a power failure as soon as it is stored. Otherwise it does so only
    after `database.UNSYNCED_S_MAX` or the next synced batch of any session. Every batch survives
    the end of the process."""


class Log(Protocol):
    """The append-only record of all sessions. Every method may raise `LogError`."""

    log_id: str
    """A random id, made with the log. If it changes, all event numbers that frontends know are
    invalid."""

    path: str

    async def append(self, batch: Batch) -> None:
        """Store `batch` completely; if this raises `LogError`, nothing is stored.

        May return without yielding to other tasks.

        If the call is cancelled while it waits for a place in the queue, nothing is stored. If it
        is cancelled later, the batch is stored anyway, but the caller does not get the result.
        """
        ...

    async def record(self, submission: SubmissionRow) -> None:
        """Store an answer without events, such as a rejection, as durably as a synced batch."""
        ...

    async def delete(self, session_id: str) -> None:
        """Delete a session but not the answers to its submissions, as durably as a synced batch."""
        ...

    async def events(self, session_id: str, after: int, limit: int, bytes_max: int) -> list[bytes]:
        """Return the bodies of the events after number `after`, in order.

        These are at most `limit` bodies with at most `bytes_max` bytes in total, but the first body
        is returned even if it is larger.
        """
        ...

    async def head(self, session_id: str) -> int:
        """Return the `seq` of the session's last event; 0 for an unknown session."""
        ...

    async def submission(self, submission_id: str) -> SubmissionRow | None:
        """Return the stored answer to a submission, or None if it never took effect."""
        ...

    async def highest_submission(self) -> str:
        """Return the greatest stored submission id, in text order; "" if none is stored."""
        ...

    async def requests(self, request_id: str) -> list[RequestRow]:
        """Return the rows of a request, resolved ones first, then in order of session id."""
        ...

    async def session(self, session_id: str) -> SessionRow | None:
        """Return the row of a session, or None."""
        ...

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
        """Return a page of rows, newest `updated_at` first, filtered by the other arguments.

        A filter that is None matches all sessions. With a `workspace`, the workspaces `beside` it
        match, too. `after` is `cursor_of` the last
        row of the previous page, or None for the first page; any other text raises `BadCursor`. A
        session that is updated between two pages moves to the front, so the second page may miss
        it.
        """
        ...

    async def unfinished(self) -> list[str]:
        """Return the ids of sessions with an open turn, sorted."""
        ...

    async def forks(self, session_id: str) -> list[str]:
        """Return the ids of sessions that were forked from this one, sorted."""
        ...

    async def sub_agents(self, session_id: str) -> list[str]:
        """Return the ids of sessions that work for this one, sorted."""
        ...

    async def count(self) -> int:
        """Return the number of sessions, including archived ones."""
        ...

    async def back_up(self, file: Path) -> int:
        """Write a copy of the log to a new file, and return its size in bytes.

        Reads and writes of the log wait meanwhile.
        """
        ...

    def problems(self) -> tuple[str, ...]:
        """Return the problems of the log in whole sentences for users."""
        ...


async def newest_activity(log: Log) -> float:
    """Return when any session was last updated, in Unix seconds; 0 if there are no sessions."""
    pages = [
        await log.sessions(workspace=None, owner_id=None, archived=archived, limit=1, after=None)
        for archived in (False, True)
    ]
    return max((row.updated_at for page in pages for row in page), default=0.0)


def cursor_of(row: SessionRow) -> str:
    """Return the `after` argument for the page that follows `row`."""
    # `repr` keeps all digits, so that the row itself is not part of the next page.
    return f"{row.updated_at!r} {row.session_id}"


def read_cursor(text: str) -> tuple[float, str]:
    """Return the `updated_at` and the session id in a cursor; raises `BadCursor`."""
    time, blank, session_id = text.partition(" ")
    try:
        updated_at = float(time)
    except ValueError:
        updated_at = math.nan
    if not blank or not session_id or math.isnan(updated_at):  # NaN compares false to everything
        raise BadCursor(
            "`after` must be the `next` of an earlier page: request the first page again"
        )
    return updated_at, session_id


def seq_before(batch: Batch) -> int:
    """Return the head that `batch` follows; raises `LogError` if its event numbers have a gap."""
    row = batch.session
    before = row.head - len(batch.events)
    if any(event.seq != before + place for place, event in enumerate(batch.events, 1)):
        seqs = f"{batch.events[0].seq} … {batch.events[-1].seq}"
        raise LogError(
            "conflict",
            f"the events {seqs} of session {row.session_id} have a gap, or do not end at its last"
            f" event, {row.head}; nothing was stored: load the session again",
        )
    return before


def head_conflict(session_id: str, before: int, head: int) -> LogError:
    """Return the error for events that do not follow the stored `head`."""
    return LogError(
        "conflict",
        f"session {session_id} is at event {head}, but these events follow event {before};"
        " nothing was stored: load the session again",
    )


def submission_conflict(submission_id: str) -> LogError:
    """Return the error for a submission id that already has an answer."""
    return LogError(
        "conflict",
        f"submission {submission_id} already has an answer; nothing was stored: send that answer",
    )
