"""Rows that the tests of the log write: short sessions whose every body says what it is."""

from typing import Any

from tiller_daemon.store.base import Batch, EventRow, RequestRow, SessionRow, SubmissionRow


def session_row(session_id: str, head: int, **changes: Any) -> SessionRow:
    fields: dict[str, Any] = {"workspace": "/w", "created_at": 1.0, "updated_at": 2.0}
    return SessionRow(session_id=session_id, head=head, **(fields | changes))


def body_of(session_id: str, seq: int, bytes_min: int = 0) -> bytes:
    return f"{session_id} {seq} ".encode().ljust(bytes_min, b".")


def batch_of(
    session_id: str,
    first: int,
    last: int,
    *,
    submission: SubmissionRow | None = None,
    requests: tuple[RequestRow, ...] = (),
    bytes_min: int = 0,
    **changes: Any,
) -> Batch:
    """Events `first` … `last` of a session, whose row then has the head `last`."""
    events = tuple(
        EventRow(seq, 10.0 + seq, body_of(session_id, seq, bytes_min))
        for seq in range(first, last + 1)
    )
    return Batch(session_row(session_id, last, **changes), events, submission, requests)


def submission_row(submission_id: str, answer: bytes = b"answer") -> SubmissionRow:
    return SubmissionRow(submission_id, b"digest", answer)
