"""Shows a turn that this program has started until the turn ends, and reports its outcome."""

import contextlib
from argparse import Namespace
from typing import assert_never

from tiller_client.console import Console, complain
from tiller_client.errors import (
    STATUS_INTERRUPTED,
    STATUS_TIMED_OUT,
    RejectedError,
    TillerError,
    TimedOut,
)
from tiller_client.following.interactive import InteractiveSession
from tiller_client.following.watch import Signals, Watch
from tiller_client.program_name import program
from tiller_client.rendering.labels import no_turn_began
from tiller_client.rendering.text import SHORT_ID_CHARS, one_line
from tiller_protocol.answers import Queued, Started, Steered
from tiller_protocol.events import Outcome, TurnEnded
from tiller_protocol.ops import Compact, Interrupt, QueueEdit, Shell, TurnContinue, UserInput
from tiller_protocol.settings import TurnOverrides

STATUS_BLOCKED = 3
STATUS_LIMIT_REACHED = 4


class RunningTurn:
    """The turn that an op starts, shown on this program's output."""

    def __init__(
        self,
        op: UserInput | TurnContinue | Compact | Shell,
        watch: Watch,
        signals: Signals,
        arguments: Namespace,
    ) -> None:
        """Use `json`, `verbose`, `quiet`, `wait` and `no_wait` of `arguments`.

        Without a keyboard, a request interrupts the turn, unless another frontend has the session
        open (but with `no_wait`, also then), or unless `wait`.
        """
        self._watch = watch
        self._connection = watch.connection
        self._op = op
        self._signals = signals
        self._console = Console(separate_answers=True, quiet=arguments.quiet, json=arguments.json)
        self._gives_up = not arguments.wait and self._console.keyboard is None
        self._asks_others = not arguments.no_wait
        self._leaves = arguments.detach
        self._has_looked = False
        self._blocked = False
        self._session = InteractiveSession(
            watch,
            self._console,
            prompts=isinstance(op, TurnContinue),  # other prompts have just been typed
            whole=arguments.verbose,
            delivery="steer",
            says_how_to_answer=not self._gives_up,
        )

    def follow(self, begun: Started | Queued | Steered) -> int:
        """Show the session until the turn has ended; return the exit status.

        Raises `TillerError` if the turn has ended but its end could not be stored.
        """
        session = self._session
        session.start_from((), busy=True)
        if isinstance(begun, Started):
            session.ends_with = begun.turn_id
        else:
            session.ends_with_input = begun.input_id
            if isinstance(self._op, UserInput) and self._op.overrides != TurnOverrides():
                complain(no_turn_began())
        if not self._console.json and not self._console.quiet:
            self._console.line(self._console.theme.dim(self._named()))
        try:
            ended = self._until_ended()
        finally:
            session.show_end()
        if session.ends_with is None:
            complain(
                f"the running turn ended ({ended.outcome}) without taking your input; "
                f"continue with: {program()} resume {self._op.session_id}"
            )
        if self._console.json and ended.error:
            complain(one_line(ended.error.message))
        return self._status(ended)

    def _named(self) -> str:
        """The session, and for a turn that outlives this program how to come back to it."""
        named = f"session {self._op.session_id}"
        if not self._leaves:
            return named
        again = f"{program()} attach {self._op.session_id[-SHORT_ID_CHARS:]}"
        return f"{named}; Ctrl-C leaves the turn running; to watch it again: {again}"

    def _until_ended(self) -> TurnEnded:
        while True:
            try:
                update = self._session.advance()
            except OSError:
                if self._signals.interrupted:  # the signal has also ended the reader of stdout
                    self._interrupt()
                raise
            if self._session.ended:
                return self._session.ended
            if update.cut_off:
                raise TillerError(
                    f"{update.cut_off}; when that is fixed, continue with: "
                    f"{program()} resume {self._op.session_id}"
                )
            if update.interrupted:
                self._interrupt()
            elif self._gives_up and not self._blocked and self._is_stuck and not self._is_watched():
                self._blocked = True
                self._interrupt()

    @property
    def _is_stuck(self) -> bool:
        """Whether this program's own turn, not an earlier one, waits for an answer."""
        return self._session.has_requests and self._session.ends_with is not None

    def _is_watched(self) -> bool:
        """Whether others who have the session open may answer, as far as is known now."""
        if not self._asks_others:
            return False
        if self._watch.others:
            self._has_looked = False
            return True
        if not self._has_looked:  # the others are known as of some seconds ago
            self._has_looked = True
            self._watch.suspect_gap()
            return True
        return False

    def _interrupt(self) -> None:
        session = self._session
        if session.ends_with is None and session.ends_with_input:
            # The running turn is not this program's own.
            with contextlib.suppress(RejectedError):  # the input may have been taken just now
                edit = QueueEdit(self._op.session_id, session.ends_with_input, "remove")
                self._connection.submit(edit)
                if self._signals.timed_out:
                    raise TimedOut(
                        "the time limit (--timeout) has passed; your input was removed from the "
                        "queue"
                    )
                raise KeyboardInterrupt
        with contextlib.suppress(RejectedError):  # the turn may have ended just now
            self._connection.submit(Interrupt(self._op.session_id, session.ends_with))

    def _status(self, ended: TurnEnded) -> int:
        """Return the exit status; if the turn was not interrupted by the user, say why it was."""
        again = f"continue with: {program()} resume {self._op.session_id}"
        if ended.outcome == "interrupted" and self._blocked:
            complain(
                "the turn needed an answer that nobody could give here, so it was interrupted; "
                f"{again}; to wait for `{program()} answer`, add --wait; to decide beforehand, use "
                "--approve"
            )
            return STATUS_BLOCKED
        if ended.outcome == "interrupted" and self._signals.timed_out:
            complain(f"the time limit (--timeout) has passed, so the turn was interrupted; {again}")
            return STATUS_TIMED_OUT
        if self._session.ends_with is None:
            return 1
        return status_of(ended.outcome)


def status_of(outcome: Outcome) -> int:
    """The exit status for the outcome of a turn."""
    match outcome:
        case "completed":
            return 0
        case "failed":
            return 1
        case "blocked":
            return STATUS_BLOCKED
        case "limit_reached":
            return STATUS_LIMIT_REACHED
        case "interrupted":
            return STATUS_INTERRUPTED
        case _:
            assert_never(outcome)
