"""Errors that cross the daemon's packages. Each package defines its other errors itself."""

from typing import Any

from tiller_protocol.answers import Rejected
from tiller_protocol.errors import RejectionCode


class RejectionError(Exception):
    """An op was rejected and had no effect; the server turns this into a `Rejected` answer.

    The cause is the frontend or the current state, never a bug. The error is raised before anything
    is committed. `code` determines which details `data` holds for frontends, such as the actual
    turn id or the input handed back.
    """

    def __init__(
        self, code: RejectionCode, message: str, data: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code: RejectionCode = code
        self.message = message
        self.data: dict[str, Any] = {} if data is None else data

    def answer(self, submission_id: str) -> Rejected:
        """Return the answer to the rejected submission."""
        return Rejected(submission_id, self.code, self.message, self.data)
