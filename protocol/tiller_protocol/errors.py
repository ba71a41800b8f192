"""Rejection codes, and the error that a turn or a step ends with."""

from typing import Literal

from msgspec import Struct

RejectionCode = Literal[
    "bad_message",
    "unauthorized",
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
    "unavailable",
    "shutting_down",
    "internal",
]


class ErrorInfo(Struct, frozen=True, omit_defaults=True):
    """Why something failed: a stable `code`, and a sentence that says what to do."""

    code: str
    message: str


class BadMessage(ValueError):
    """Bytes that are no message of this protocol. `submission_id` is set when it could be read."""

    def __init__(self, message: str, submission_id: str = "") -> None:
        super().__init__(message)
        self.submission_id = submission_id
