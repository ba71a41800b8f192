"""Rejection codes, and the error that a turn or a step ends with."""

from typing import Annotated, Literal

from msgspec import Struct

from tiller_protocol.doc import doc

RejectionCode = Literal[
    "bad_message",
    "unauthorized",
    "forbidden",
    "unsupported_protocol",
    "not_found",
    "busy",
    "no_active_turn",
    "expected_turn_mismatch",
    "turn_not_steerable",
    "empty_input",
    "already_resolved",
    "overloaded",
    "too_large",
    "invalid_settings",
    "worktree",
    "conflict",
    "unavailable",
    "shutting_down",
    "internal",
]


class ErrorInfo(Struct, frozen=True, omit_defaults=True):
    """Why something failed."""

    code: Annotated[str, doc("Code of the error, for programs; codes do not change.")]
    message: Annotated[str, doc("What went wrong and what to do about it, for people.")]


class BadMessage(ValueError):
    """Data that is not a message of this protocol; `submission_id` is empty if unreadable."""

    def __init__(self, message: str, submission_id: str = "") -> None:
        super().__init__(message)
        self.submission_id = submission_id
