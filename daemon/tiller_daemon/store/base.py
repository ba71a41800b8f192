"""The interface of a log: its rows, its errors, and the protocol `Log`.

Bodies of events are opaque bytes here. Separate rows make sessions and requests searchable;
`projection` can rebuild the rows of requests from events.
"""

import math
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

LogErrorKind = Literal["full", "read_only", "corrupt", "newer", "io", "closed", "conflict"]
"""`full`, `read_only` and `io` can be temporary: later writes succeed once the cause is gone.
`conflict` is a bug or race in the caller: a gap in `seq`, or a submission id that exists."""


class LogError(Exception):
    """An operation on the log failed; `message` says what happened, where, and what to do."""

    def __init__(self, kind: LogErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind: LogErrorKind = kind
        self.message = message


class BadCursor(ValueError):
    """The `after` of a page of sessions was not made by `cursor_of`."""


class EventRow(NamedTuple):
    """One event: its number, Unix time in seconds, and the result of `encode_event`."""

    seq: int
    time: float
    body: bytes


class SessionFigures(Struct, frozen=True):
    """What only lists show of a session."""

    turns: int = 0
    """How many turns have begun."""
    cost: float | None = None
    """In US dollars; absent means unknown."""
    parent_turns: int = 0
    """How many turns a fork shares with its parent."""
    context_tokens: int = 0
    """Size of the history as the provider counted it last; 0 if it has not."""
    context_window: int = 0
    """Tokens that the model of the latest turn takes; 0 before the first turn."""
    branch: str = ""
    """What was checked out at the end of the latest turn; empty if unknown."""


class SessionRow(Struct, frozen=True):
    """What lists and recovery need of a session without reading its events."""

    session_id: str
    """ULID."""
    workspace: str
    """Absolute path."""
    created_at: float
    """Unix time in seconds."""
    updated_at: float
    """Unix time in seconds."""
    head: int
    """The `seq` of its last event."""
    title: str = ""
    """Empty until one is set or made."""
    archived: bool = False
    """Whether lists leave it out by default."""
    unfinished: bool = False
    """Whether a turn is open."""
    parent_id: str = ""
    """The session that this one was forked from, whose events begin its history; "" for none."""
    owner_id: str = ""
    """The session that this one works for as a sub-agent; "" for none."""
    figures: SessionFigures = SessionFigures()
    """The last field: its fields follow the others in the file."""


class SubmissionRow(Struct, frozen=True):
    """The answer to a submission, so that sending it again gets the same answer."""

    submission_id: str
    digest: bytes
    answer: bytes


class RequestRow(Struct, frozen=True):
    """A request and its resolution, which is empty while the request is open.

    A request shown in several sessions has a row for each. `by` is the name of the frontend that
    resolved it.
    """

    request_id: str
    session_id: str
    resolution: str = ""
    by: str = ""


class Batch(Struct, frozen=True):
    """What is committed atomically: events of one session, its new row, and perhaps an answer."""

    session: SessionRow
    """The row after these events."""
    events: tuple[EventRow, ...]
    """They follow the stored head without a gap and end at `session.head`; empty if only the row
    changes."""
    submission: SubmissionRow | None = None
    """The answer to the submission that caused the events; None if none did, or none is stored."""
    requests: tuple[RequestRow, ...] = ()
    """The rows made from these events."""
    synced: bool = True
    """Whether the batch survives a power failure at once. Any survives the end of the process.
    Another one does so `UNSYNCED_S_MAX` of `database` later, or after the next synced batch of any
    session."""


class Log(Protocol):
    """The append-only record of all sessions. Every method may raise `LogError`."""

    log_id: str
    """Random, made with the log; if it changes, event numbers that a frontend knows are void."""

    path: str

    async def append(self, batch: Batch) -> None:
        """Return when all of `batch` is stored; after a `LogError` nothing of it is stored.

        May return without yielding to other tasks.

        Cancellation while waiting for a place in the queue stores nothing. Later, the batch is
        stored anyway, but the caller does not learn the result.
        """
        ...

    async def record(self, submission: SubmissionRow) -> None:
        """Store an answer without events, such as a rejection; as durable as `append`."""
        ...

    async def delete(self, session_id: str) -> None:
        """Delete a session, except the answers to its submissions. As durable as `append`."""
        ...

    async def events(self, session_id: str, after: int, limit: int, bytes_max: int) -> list[bytes]:
        """Bodies of the events after `after`, in order.

        Returns at most `limit` bodies of at most `bytes_max` bytes together, but at least one if
        there is one.
        """
        ...

    async def head(self, session_id: str) -> int:
        """The `seq` of the last event; 0 for an unknown session."""
        ...

    async def submission(self, submission_id: str) -> SubmissionRow | None:
        """The stored answer to a submission, or None if it never took effect."""
        ...

    async def highest_submission(self) -> str:
        """The greatest submission id as text; no id above it is stored. "" if there is none."""
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
        """A page of rows, newest `updated_at` first, filtered by the other arguments.

        A `workspace` or `owner_id` of None matches any. `after` is `cursor_of` the last row of the
        previous page, or None for the first page; raises `BadCursor` for any other text. A session
        that is updated between two pages moves to the front and may be missing from the second.
        """
        ...

    async def unfinished(self) -> list[str]:
        """The ids of sessions with an open turn, sorted."""
        ...

    async def forks(self, session_id: str) -> list[str]:
        """The ids of sessions that were forked from this one, sorted."""
        ...

    async def sub_agents(self, session_id: str) -> list[str]:
        """The ids of sessions that work for this one, sorted."""
        ...

    async def count(self) -> int:
        """The number of sessions, including archived ones."""
        ...

    def problems(self) -> tuple[str, ...]:
        """What is wrong with the log, for users, in whole sentences."""
        ...


def cursor_of(row: SessionRow) -> str:
    """The `after` of the page that follows `row`."""
    # `repr` keeps all digits, so that the row itself is not part of the next page.
    return f"{row.updated_at!r} {row.session_id}"


def read_cursor(text: str) -> tuple[float, str]:
    """The `updated_at` and id in a cursor; raises `BadCursor`."""
    time, blank, session_id = text.partition(" ")
    try:
        updated_at = float(time)
    except ValueError:
        updated_at = math.nan
    if not blank or not session_id or math.isnan(updated_at):  # NaN compares false to everything
        raise BadCursor("`after` is not the `next` of a page: request the first page again")
    return updated_at, session_id


def seq_before(batch: Batch) -> int:
    """The head that `batch` follows; raises `LogError` if its own numbers have a gap."""
    row = batch.session
    before = row.head - len(batch.events)
    if any(event.seq != before + place for place, event in enumerate(batch.events, 1)):
        seqs = f"{batch.events[0].seq} … {batch.events[-1].seq}"
        raise LogError(
            "conflict",
            f"the events {seqs} of session {row.session_id} do not end at its head {row.head};"
            " nothing was stored: load the session again",
        )
    return before


def head_conflict(session_id: str, before: int, head: int) -> LogError:
    """The error for events that do not follow the stored `head`."""
    return LogError(
        "conflict",
        f"session {session_id} is at event {head}, but these events follow event {before};"
        " nothing was stored: load the session again",
    )


def submission_conflict(submission_id: str) -> LogError:
    """The error for a submission id that already has an answer."""
    return LogError(
        "conflict",
        f"submission {submission_id} already has an answer; nothing was stored: send that answer",
    )
