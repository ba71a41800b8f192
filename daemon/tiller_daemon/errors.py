"""Failures that cross rooms of the daemon. What concerns one room only is declared in that room."""

from typing import Any

from tiller_protocol.answers import Rejected
from tiller_protocol.errors import RejectionCode


class RejectionError(Exception):
    """An op that had no effect, and why; the server turns it into a `Rejected` answer.

    It is the frontend's fault or the moment's, never a bug: raised before anything was committed.
    `data` holds what the code needs, such as the actual turn id or the input handed back.
    """

    def __init__(
        self, code: RejectionCode, message: str, data: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code: RejectionCode = code
        self.message = message
        self.data: dict[str, Any] = {} if data is None else data

    def answer(self, submission_id: str) -> Rejected:
        """The answer to the submission that was refused."""
        return Rejected(submission_id, self.code, self.message, self.data)
