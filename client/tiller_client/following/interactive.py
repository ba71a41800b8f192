"""Follows one session: shows its events, asks its requests, sends typed lines.

All verbs that follow a session use this; they decide when to stop and what Ctrl-C does.
"""

import os
import re
import time
from collections.abc import Callable, Iterable
from typing import Literal

from tiller_client.connecting.silence import Silence
from tiller_client.console import Console, complain, print_json
from tiller_client.errors import RejectedError, UsageError
from tiller_client.following.typed import Reply, is_reply, prompt_for, read_reply
from tiller_client.following.watch import Watch, WatchUpdate
from tiller_client.program_name import program
from tiller_client.program_status.changes import StatusChanges
from tiller_client.program_status.records import SessionRecords
from tiller_client.program_status.report import is_wanted
from tiller_client.rendering.events import Renderer
from tiller_client.rendering.text import one_line
from tiller_protocol.events import (
    Event,
    ItemStarted,
    QueueChanged,
    RequestOpened,
    RequestResolved,
    StatusChanged,
    TurnEnded,
    TurnStarted,
)
from tiller_protocol.items import Request, UserMessage
from tiller_protocol.ops import Answer, AnyOp, UserInput
from tiller_protocol.snapshot import SessionSummary

STEER_HINT = "»"
"""The bottom line below the output of a running call."""

_COMMAND = re.compile(r"/[a-z]+(?:\s|$)")

IDLE_HINT = "type the next task · Ctrl-C leaves »"
"""The bottom line when a typed line would start a turn."""


class _OpenRequests:
    """The open requests of a session, oldest first, with the user's progress in answering them."""

    def __init__(self) -> None:
        self.by_id: dict[str, Request] = {}
        self.shown = ""
        """The request that was shown last: an answer must not go to another request."""
        self.asked = ""
        """The request that a typed line answers."""
        self.answered = ""
        """The request whose answer was accepted, until its resolution is shown."""
        self.rejecting = ""
        """The request that the user is rejecting, while the reason is being typed."""
        self._hinted: set[str] = set()

    def clear(self) -> None:
        """Forget all requests: their turn has ended, or the daemon has a new event log."""
        self.by_id.clear()
        self.answered = ""

    def resolve(self, request_id: str) -> None:
        """Forget one request, which was resolved."""
        self.by_id.pop(request_id, None)
        if self.rejecting == request_id:
            self.rejecting = ""
        if self.answered == request_id:
            self.answered = ""

    def take_unhinted(self) -> list[Request]:
        """Return the requests that this has not returned before."""
        new = [request for request in self.by_id.values() if request.id not in self._hinted]
        self._hinted.update(request.id for request in new)
        return new


class InteractiveSession:
    """A session on a console.

    It is `busy` while a turn is running, and `idle` once the session has reported that it is idle,
    which is the last event after a turn. If `ends_with` is the id of a turn, that turn's end is
    stored in `ended` and is the last event shown. If `ends_with_input` is the id of a queued input,
    `ends_with` becomes the id of the turn that takes the input.
    """

    def __init__(
        self,
        watch: Watch,
        console: Console,
        *,
        prompts: bool = True,
        whole: bool = False,
        delivery: Literal["auto", "steer"] = "auto",
        says_how_to_answer: bool = True,
        op_of: Callable[[str], AnyOp | None] | None = None,
        goes_on: str = "",
    ) -> None:
        """Send typed lines as input with `delivery`, or as the op that `op_of` makes.

        With `prompts`, show input that starts a turn; with `whole`, the whole output of calls.
        Hints name `goes_on`, or else a verb, as the command that continues the session. With
        `says_how_to_answer` and without a keyboard, show the commands that answer requests.
        """
        self._watch = watch
        self._console = console
        Silence.say = console.complain
        self._delivery: Literal["auto", "steer"] = delivery
        self._renderer = Renderer(
            console.theme,
            console.width,
            prompts=prompts,
            wraps=console.terminal,
            whole=whole,
            goes_on=goes_on,
        )
        self._op_of = op_of or self._input
        self._has_commands = op_of is not None
        self._requests = _OpenRequests()
        self._records = SessionRecords()
        wanted = console.terminal and not console.json and is_wanted(os.environ)
        self._status = StatusChanges(is_wanted=wanted)
        self._says_how_to_answer = says_how_to_answer
        self._is_queued = False
        self.busy = False
        self.idle = True
        self.ends_with: str | None = None
        self.ends_with_input: str | None = None
        self.ended: TurnEnded | None = None

    @property
    def has_requests(self) -> bool:
        """Whether a request is open."""
        return bool(self._requests.by_id)

    def start_from(self, requests: Iterable[Request], *, busy: bool) -> None:
        """Set the initial state, which later events update."""
        self._requests.by_id = {request.id: request for request in requests}
        self.busy, self.idle = busy, not busy
        self._records.start_from(self._requests.by_id.values(), busy=busy)
        self._report()

    def follow(self, session: SessionSummary, is_done: Callable[[], bool]) -> None:
        """Show the session from its present state on, until the user leaves or `is_done`."""
        self.start_from(session.requests, busy=session.status != "idle")
        told = ""
        try:
            while True:
                update = self.advance()
                # The daemon is asked again from time to time.
                if update.cut_off and told != str(update.cut_off):
                    told = str(update.cut_off)
                    self._console.complain(told)
                elif update.events:
                    told = ""
                if update.interrupted or update.input_ended or is_done():
                    return
        finally:
            self.show_end()

    def advance(self) -> WatchUpdate:
        """Wait for the next update and show it; send typed lines; ask the next request."""
        update = self._watch.wait(busy=self.busy, keyboard=self._console.keyboard)
        self._renderer.width = self._console.width
        if update.continued:
            self._console.moved()
        if update.started_over:
            self._requests.clear()
            self._console.show(self._renderer.end_line())
            complain("the daemon has a new event log; following the session from its start")
        if update.cut_off:
            self.busy, self.idle = False, True
            self._requests.clear()
            self._records.cut_off()
            self._console.show(self._renderer.cut_off())
        for event in update.events:
            self._note(event)
            self._records.note(event)
            self._show(event)
            if isinstance(event.body, TurnEnded) and self._is_last(event):
                self.ended = event.body
                break
        if self._watch.caught_up or self.ended:
            self._report()
        if self.ended:
            return update
        if update.line is not None:
            self._console.entered()
            self._take_line(update.line.rstrip("\r\n"))
        if self._watch.caught_up:
            self._ask_next()
        return update

    def show_end(self) -> None:
        """Remove the bottom line, and end an unfinished line.

        The terminal keeps the result of the turn that this program has started, and nothing else.
        """
        self._console.bottom()
        self._console.show(self._renderer.end_line())
        self._console.escape(self._status.end(keeps_result=self.ended is not None))

    def _report(self) -> None:
        """Tell the terminal what the session does."""
        self._console.escape(self._status.update(self._records.records()))

    def _note(self, event: Event) -> None:
        match event.body:
            case QueueChanged(queue) if any(one.id == self.ends_with_input for one in queue):
                self._is_queued = True
            case ItemStarted(UserMessage(input_id)) if input_id == self.ends_with_input:
                self.ends_with = event.turn_id
            case StatusChanged(status):
                self.idle = status == "idle"
            case TurnStarted():
                self.busy, self.idle = True, False
            case TurnEnded():
                self.busy = False
                self._requests.clear()
            case RequestOpened(request):
                self._requests.by_id[request.id] = request
            case RequestResolved(request_id):
                self._requests.resolve(request_id)
            case _:
                pass

    def _is_last(self, event: Event) -> bool:
        """Whether the turn that ends here is the one to wait for."""
        if self.ends_with_input and self.ends_with is None:
            return self._is_queued
        return event.turn_id == self.ends_with

    def _is_of_others(self, event: Event) -> bool:
        """Whether the turn is another than the one to wait for, such as a worktree's set-up."""
        if self.ends_with is None:
            return bool(self.ends_with_input)
        return event.turn_id != self.ends_with

    def _show(self, event: Event) -> None:
        if self._console.json:
            print_json(event)
            return
        if isinstance(event.body, TurnEnded) and not self._is_of_others(event):
            outcome = event.body.outcome
            if outcome in ("blocked", "interrupted"):
                self._console.unfinished()  # the last message is about what was to come
            else:
                self._console.final(event.body.last_message)
        self._console.show(self._renderer.feed(event))
        if isinstance(event.body, RequestOpened):
            self._requests.shown = event.body.request.id

    def _ask_next(self) -> None:
        """Ask the oldest open request; without a keyboard, show the command that answers it."""
        if self._console.keyboard is None:
            for request in self._requests.take_unhinted():
                self._show_whole(request)
                if self._says_how_to_answer:
                    complain(how_to_answer(request))
            self._show_activity()
            return
        request = next(iter(self._requests.by_id.values()), None)
        if request is None or self._requests.answered:  # its resolution is shown first
            self._show_activity()
            return
        if request.id != self._requests.asked:
            for line in self._watch.typed_ahead(self._console.keyboard):
                self._console.entered()
                self._send(line.rstrip("\r\n"))
            self._requests.asked = request.id
        self._show_whole(request)
        rejecting = self._requests.rejecting == request.id
        self._console.ask(prompt_for(request, rejecting=rejecting), request.id)

    def _show_whole(self, request: Request) -> None:
        """Show this request, unless it was the last one shown."""
        if self._requests.shown != request.id:
            self._requests.shown = request.id
            self._console.show(self._renderer.ask(request))

    def _show_activity(self) -> None:
        """Show the current activity at the bottom, above the output of a running call."""
        if not self._renderer.at_line_start:
            self._console.bottom()
        elif not self.busy and not self._console.json and self._delivery == "auto":
            self._console.ask(IDLE_HINT)
        elif self._console.quiet:
            self._console.bottom()
        else:
            output = self._renderer.live_output()
            hint = (STEER_HINT,) if output and self._console.keyboard is not None else ()
            self._console.bottom(self._renderer.moving_line(time.time()), *output, *hint)

    def _take_line(self, line: str) -> None:
        """Answer the request on the screen with a typed line; if there is none, send the line.

        A line that was typed before the request was on the screen never answers it, nor does a
        command such as `/interrupt`.
        """
        request = self._requests.by_id.get(self._requests.asked)
        if request is None or (self._has_commands and _COMMAND.match(line)):
            self._send(line)
            return
        reply = read_reply(request, line, rejecting=self._requests.rejecting == request.id)
        if isinstance(reply, Reply):
            self._requests.rejecting = ""
            self._answer(request, reply)
        elif reply == "reject":
            self._requests.rejecting = request.id
        else:
            self._console.line(f"  {reply}")

    def _answer(self, request: Request, reply: Reply) -> None:
        self._requests.by_id.pop(request.id, None)
        try:
            self._watch.connection.submit(Answer(request.id, reply.decision, reply.text))
            self._requests.answered = request.id
        except RejectedError as error:
            self._console.line(f"  {one_line(str(error))}")

    def _send(self, line: str) -> None:
        if not line.strip():
            return
        if self.busy and is_reply(line):
            self._console.line(f"  nothing has been asked yet, so {one_line(line)!r} was not sent")
            return
        try:
            if (op := self._op_of(line)) is not None:
                self._watch.connection.submit(op)
        except (RejectedError, UsageError) as error:
            self._console.line(f"  not sent: {one_line(str(error))}")

    def _input(self, line: str) -> AnyOp:
        return UserInput(self._watch.session_id, line, delivery=self._delivery)


def how_to_answer(request: Request) -> str:
    """Return a hint on how to answer a request from another terminal."""
    if request.kind == "question":
        return f"a question is open; answer it with: {program()} answer {request.id} answer TEXT"
    decisions = "once|always|always_here|reject" if request.always_here else "once|always|reject"
    return f"an approval is open; answer it with: {program()} answer {request.id} {decisions}"
