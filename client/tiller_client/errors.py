"""Failures that the person at the keyboard can do something about, and the exit status of each.

Everything else is a bug, and is reported as one by `__main__`.
"""

from tiller_protocol.answers import Rejected
from tiller_protocol.errors import RejectionCode

STATUS_FAILED = 1
STATUS_USAGE = 2
STATUS_INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""


class TillerError(Exception):
    """A failure whose message is a sentence that says what to do; `status` is the exit status."""

    status = STATUS_FAILED


class UsageError(TillerError):
    """The command line, or what was read because of it, can't be used."""

    status = STATUS_USAGE


class NoDaemon(TillerError):
    """No daemon lives, and this verb does not start one."""


class StartFailed(TillerError):
    """The daemon was started and did not come up."""


class NoAnswer(TillerError):
    """A daemon is there and does not answer in time."""


class NotPrivate(TillerError):
    """The runtime directory or the token could be somebody else's, so they are not used."""


class Detached(TillerError):
    """The user let go of a running turn, which goes on without this frontend."""

    status = STATUS_INTERRUPTED


class RejectedError(TillerError):
    """The daemon refused an op; `answer` is its own word, with a code and the data of the code."""

    def __init__(self, answer: Rejected, message: str = "") -> None:
        super().__init__(message or answer.message)
        self.answer = answer

    @property
    def code(self) -> RejectionCode:
        """What programs go by."""
        return self.answer.code
