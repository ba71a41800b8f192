"""The current activity of a session, for the bottom of a terminal; pure.

An `Activity` follows the events and keeps only open things: running calls with the end of their
output, a retry, and a model that is silent.
"""

from collections import deque
from dataclasses import dataclass, field

from msgspec import structs

from tiller_client.rendering.labels import COMMAND_LINES_SHOWN, call_label, output_row
from tiller_client.rendering.text import cut, seconds
from tiller_protocol.events import (
    AnyBody,
    ItemCompleted,
    ItemDelta,
    ItemStarted,
    StatusChanged,
    StepEnded,
    StepStarted,
    ToolCallUpdated,
    TurnEnded,
)
from tiller_protocol.items import ToolCall

MODEL_WAIT_SHOWN_AFTER_S = 1.0
"""Silence of the model after which the user is told that tiller waits for the model."""

LIVE_LINE_CHARS_MAX = 2_000
"""Characters to keep of an unfinished line of output; more than any terminal is wide."""


class _OutputTail:
    """The last lines of output that arrives in pieces of any size."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=COMMAND_LINES_SHOWN)
        self._open = ""

    def feed(self, piece: str) -> None:
        """Add the next piece."""
        *whole, rest = (self._open + piece).split("\n")
        self._lines.extend(line[-LIVE_LINE_CHARS_MAX:] for line in whole[-COMMAND_LINES_SHOWN:])
        self._open = rest[-LIVE_LINE_CHARS_MAX:]

    def lines(self) -> list[str]:
        """The last lines; if carriage returns overwrite a line, only its latest text."""
        lines = [*self._lines, self._open] if self._open else [*self._lines]
        last = [line.rstrip("\r").rpartition("\r")[2] for line in lines]
        return last[-COMMAND_LINES_SHOWN:]


@dataclass
class _OpenCall:
    """A call that has not ended, with its start (Unix seconds) and the end of its output."""

    call: ToolCall
    since: float | None = None
    output: _OutputTail = field(default_factory=_OutputTail)


class Activity:
    """The running calls, the retry and the silent model of one session."""

    def __init__(self) -> None:
        self._calls: dict[str, _OpenCall] = {}
        self._retry: tuple[str, float] | None = None
        self._model_since: float | None = None

    def note(self, body: AnyBody, time: float) -> None:
        """Note the next event, which happened at `time` (Unix seconds)."""
        self._note_model(body, time)
        match body:
            case ItemStarted(item=ToolCall() as call):
                self._calls[call.id] = _OpenCall(call)
            case ItemDelta():
                self._extend(body)
            case ToolCallUpdated():
                self._update(body, time)
            case ItemCompleted():
                self._calls.pop(body.item.id, None)
            case StatusChanged():
                self._retry = None
                if body.status == "retry" and body.delay_s is not None:
                    self._retry = (f"↻ retry{which_attempt(body)} in ", time + body.delay_s)
            case TurnEnded():
                self.end()
            case _:
                pass

    def end(self) -> None:
        """Forget everything, because the turn has ended."""
        self._calls.clear()
        self._retry = self._model_since = None

    def moving_line(self, now: float, width: int) -> str:
        """One line about the activity at `now` (Unix seconds), without colours; often empty."""
        if self._retry:
            text, until = self._retry
            return cut(f"{text}{seconds(max(0.0, until - now))}", width - 1)
        if not (call := self._shown()):
            since = now if self._model_since is None else self._model_since
            return cut(model_wait(now - since), width - 1)
        others = sum(one.since is not None for one in self._calls.values()) - 1
        more = f" and {others} more" if others else ""
        tail = f" {seconds(max(0.0, now - (call.since or now)))}{more}"
        return cut(f"○ {call_label(call.call)}", width - 1 - len(tail)) + tail

    def live_output(self, width: int) -> list[str]:
        """The last output rows of the call in the moving line, without colours."""
        call = None if self._retry else self._shown()
        return [output_row(line, width) for line in call.output.lines()] if call else []

    def _shown(self) -> _OpenCall | None:
        """The first running call that has written something, or else the first running call."""
        running = [call for call in self._calls.values() if call.since is not None]
        writing = (call for call in running if call.output.lines())
        return next(writing, running[0] if running else None)

    def _extend(self, body: ItemDelta) -> None:
        if not (open_call := self._calls.get(body.item_id)):
            return
        if body.channel == "output":
            open_call.output.feed(body.delta)
        elif body.channel == "arguments":
            call = open_call.call
            open_call.call = structs.replace(call, arguments=call.arguments + body.delta)

    def _update(self, body: ToolCallUpdated, time: float) -> None:
        if open_call := self._calls.get(body.item_id):
            call = open_call.call
            open_call.call = structs.replace(call, title=body.title or call.title)
            if body.state == "running" and open_call.since is None:
                open_call.since = time

    def _note_model(self, body: AnyBody, time: float) -> None:
        """Note when the model's present silence began."""
        match body:
            case StepStarted() | StatusChanged(status="busy"):
                self._model_since = time
            case ItemDelta() | StepEnded() | TurnEnded() | ToolCallUpdated():
                self._model_since = None
            case _:
                pass


def model_wait(waited_s: float) -> str:
    """The text about a silent model; empty during the first second."""
    waiting = f"○ waiting for the model {seconds(waited_s)}"
    return waiting if waited_s >= MODEL_WAIT_SHOWN_AFTER_S else ""


def which_attempt(body: StatusChanged) -> str:
    """The number of the next attempt, as in ` 2 of 10`; empty if attempts are not counted."""
    attempt = "" if body.attempt is None else f" {body.attempt}"
    return attempt + (f" of {body.limit}" if body.limit else "")
