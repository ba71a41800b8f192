"""What a log is: its rows, its errors, and the protocol that `SqliteLog` and `MemoryLog` keep.

Bodies are opaque bytes here; what an event means is the business of `session`. What can be found
without reading events is in rows beside them, which `projection` can make anew.
"""

import math
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

LogErrorKind = Literal["full", "read_only", "corrupt", "newer", "io", "closed", "conflict"]
"""`full`, `read_only` and `io` may pass: later writes succeed when the cause is gone. `conflict`
is a bug or a race of the caller: a `seq` that does not follow, or a submission id already there."""


class LogError(Exception):
    """The log could not do what was asked; `message` says what, where, and what to do."""

    def __init__(self, kind: LogErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind: LogErrorKind = kind
        self.message = message


class BadCursor(ValueError):
    """The `after` of a page of sessions is not one that `cursor_of` made."""


class EventRow(NamedTuple):
    """One event: its number, Unix seconds, and `encode_event` of the whole of it."""

    seq: int
    time: float
    body: bytes


class SessionRow(Struct, frozen=True):
    """What lists and recovery need to know of a session without reading its events.

    `head` is the `seq` of its last event; `unfinished` says that a turn is open. A fork reads the
    beginning of its history from the events of `parent_id`; a sub-agent works for `owner_id`.
    """

    session_id: str
    workspace: str
    created_at: float
    updated_at: float
    head: int
    title: str = ""
    archived: bool = False
    turns: int = 0
    cost: float | None = None
    unfinished: bool = False
    parent_id: str = ""
    owner_id: str = ""


class SubmissionRow(Struct, frozen=True):
    """What was answered to a submission, so that a re-send gets the same (T5)."""

    submission_id: str
    digest: bytes
    answer: bytes


class RequestRow(Struct, frozen=True):
    """Where a request was opened and how it was resolved; open while `resolution` is empty.

    A request that several sessions show has a row for each of them. `by` is the frontend's name.
    """

    request_id: str
    session_id: str
    resolution: str = ""
    by: str = ""


class Batch(Struct, frozen=True):
    """What is committed together: events of one session, its new row, perhaps an answer.

    `events` follow the stored head without a gap and end at `session.head`; they may be empty
    when only the row changes. `requests` are what the events say of requests.
    """

    session: SessionRow
    events: tuple[EventRow, ...]
    submission: SubmissionRow | None = None
    requests: tuple[RequestRow, ...] = ()


class Log(Protocol):
    """The append-only truth of all sessions. Every method may raise `LogError`."""

    log_id: str
    """Random, made when the log is made; tells a frontend that its numbers belong to another."""

    path: str

    async def append(self, batch: Batch) -> None:
        """Return when `batch` is durable, all of it; after a `LogError` nothing of it is stored.

        Cancellation: while it waits for room in the queue nothing is stored; later the batch is
        stored all the same, the caller just does not hear of it.
        """
        ...

    async def record(self, submission: SubmissionRow) -> None:
        """Store an answer without events, such as a rejection; durable as `append`."""
        ...

    async def delete(self, session_id: str) -> None:
        """Remove all of a session but its submissions for good. Durable as `append`."""
        ...

    async def events(self, session_id: str, after: int, limit: int, bytes_max: int) -> list[bytes]:
        """Bodies of the events after `after`, in order.

        At most `limit`, and at most `bytes_max` bytes together, but at least one if there is one.
        """
        ...

    async def head(self, session_id: str) -> int:
        """The `seq` of the last event; 0 for a session that is not there."""
        ...

    async def submission(self, submission_id: str) -> SubmissionRow | None:
        """The stored answer to a submission, or None when it never took effect."""
        ...

    async def highest_submission(self) -> str:
        """The greatest submission id as text; one above it is surely not stored. "" for none."""
        ...

    async def requests(self, request_id: str) -> list[RequestRow]:
        """The rows of a request, resolved ones first, then in order of session id."""
        ...

    async def session(self, session_id: str) -> SessionRow | None:
        """The row of a session, or None."""
        ...

    async def sessions(
        self,
        *,
        workspace: str | None,
        owner_id: str | None = "",
        archived: bool,
        limit: int,
        after: str | None,
    ) -> list[SessionRow]:
        """Rows by `updated_at`, newest first, of one workspace or (None) of all.

        Only those whose `archived` and `owner_id` are the ones given, of any owner if that is
        None. `after` is `cursor_of` the last row of the page before, or None for the first page;
        raises `BadCursor` for any other text. A session that is updated between two pages moves to
        the front and may be missed by the second.
        """
        ...

    async def unfinished(self) -> list[str]:
        """The ids of the sessions whose row says `unfinished`, in order of id."""
        ...

    async def forks(self, session_id: str) -> list[str]:
        """The ids of the sessions whose parent this one is, in order of id."""
        ...

    async def sub_agents(self, session_id: str) -> list[str]:
        """The ids of the sessions whose owner this one is, in order of id."""
        ...

    async def count(self) -> int:
        """How many sessions there are, archived ones too."""
        ...


def cursor_of(row: SessionRow) -> str:
    """The `after` that continues a list of sessions behind `row`."""
    return f"{row.updated_at!r} {row.session_id}"


def read_cursor(text: str) -> tuple[float, str]:
    """The `updated_at` and id in a cursor; raises `BadCursor`."""
    time, blank, session_id = text.partition(" ")
    try:
        updated_at = float(time)
    except ValueError:
        updated_at = math.nan
    if not blank or not session_id or math.isnan(updated_at):
        raise BadCursor("this `after` is not the `next` of a page: ask for the first page again")
    return updated_at, session_id


def seq_before(batch: Batch) -> int:
    """The head that `batch` follows; raises `LogError` when its own numbers have a gap."""
    row = batch.session
    before = row.head - len(batch.events)
    if any(event.seq != before + place for place, event in enumerate(batch.events, 1)):
        seqs = f"{batch.events[0].seq} … {batch.events[-1].seq}"
        raise LogError(
            "conflict",
            f"the events {seqs} of session {row.session_id} do not count up to its head {row.head};"
            " nothing was stored, read the session again",
        )
    return before


def head_conflict(session_id: str, before: int, head: int) -> LogError:
    """The error for events that do not follow the stored `head`."""
    return LogError(
        "conflict",
        f"session {session_id} is at {head} and not at {before}, which these events follow;"
        " nothing was stored, read the session again",
    )


def submission_conflict(submission_id: str) -> LogError:
    """The error for a submission id that has an answer already."""
    return LogError(
        "conflict",
        f"submission {submission_id} is answered already; nothing was stored, send that answer",
    )
