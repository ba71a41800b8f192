"""Failures that the user can do something about, with their exit status.

`__main__` reports any other exception as a bug.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # `starting` is imported before anything that takes long
    from tiller_protocol.answers import Rejected
    from tiller_protocol.errors import RejectionCode

STATUS_FAILED = 1
STATUS_USAGE = 2
STATUS_TIMED_OUT = 124
"""The same status as from `timeout` in coreutils."""

STATUS_INTERRUPTED = 130
"""128 + SIGINT, as used by shells."""


class TillerError(Exception):
    """A failure whose message is a sentence that says what to do; `status` is the exit status."""

    status = STATUS_FAILED


class UsageError(TillerError):
    """The command line, or a file that it names, can't be used."""

    status = STATUS_USAGE


class NoDaemon(TillerError):
    """No daemon is running, and none is to be started."""


class StartFailed(TillerError):
    """The daemon was started, but it ended or does not listen."""


class LinkLost(TillerError):
    """ssh could not connect, or lost the connection; the text includes ssh's message."""


class HostKeyRefused(TillerError):
    """ssh does not trust the host's key, which has changed or which it does not know yet."""


class NotInstalled(TillerError):
    """The host has no `tiller`, or one that is too old for `--host`."""


class NoAnswer(TillerError):
    """The daemon is running but did not answer in time."""


class NotPrivate(TillerError):
    """Other users can access the runtime directory or the token, so tiller does not use it."""


class StartedOver(TillerError):
    """The daemon has a new log, so the session's events seen so far are void."""


class Detached(TillerError):
    """The user has left a running turn, which continues without this frontend."""

    status = STATUS_INTERRUPTED


class UnwritableOutput(TillerError):
    """stdout can't be written, for example because the disk is full."""


class TimedOut(TillerError):
    """The time limit of the command passed before a turn began."""

    status = STATUS_TIMED_OUT


class RejectedError(TillerError):
    """The daemon has rejected an op; `answer` has the code and its data."""

    def __init__(self, answer: "Rejected", message: str = "") -> None:
        super().__init__(message or answer.message)
        self.answer = answer

    @property
    def code(self) -> "RejectionCode":
        """The code of the rejection, for programs."""
        return self.answer.code

    @property
    def is_cut_off(self) -> bool:
        """Whether a replay says that a turn has ended whose last events could not be stored yet."""
        return bool(self.answer.data.get("turn_ended"))
