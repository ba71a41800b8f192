"""The current activity of a session, for the bottom of a terminal; pure.

An `Activity` follows the events and keeps only open things: running calls with the end of their
output, reasoning, a retry, and a model that is silent.
"""

from msgspec import structs

from tiller_client.rendering.calls import COMMAND_LINES_SHOWN, call_line, output_lines
from tiller_client.rendering.facts import Durations, Facts
from tiller_client.rendering.items import item_lines
from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import cut, seconds
from tiller_protocol.events import (
    AnyBody,
    Event,
    ItemCompleted,
    ItemDelta,
    ItemStarted,
    StatusChanged,
    StepEnded,
    StepStarted,
    ToolCallUpdated,
    TurnEnded,
)
from tiller_protocol.items import Reasoning, ToolCall

MODEL_WAIT_SHOWN_AFTER_S = 1.0
"""Silence of the model after which the user is told that tiller waits for the model."""

OUTPUT_CHARS_MAX = 20_000
"""Characters to keep of the output of a running call; its last lines are shown."""


class Activity:
    """The running calls, the reasoning, the retry and the silent model of one session."""

    def __init__(self) -> None:
        self.durations = Durations()
        self._open: dict[str, ToolCall | Reasoning] = {}
        self._retry: tuple[str, float] | None = None
        self._model_since: float | None = None

    def note(self, event: Event) -> None:
        """Note the next event."""
        body, time = event.body, event.time
        self.durations.note(event)
        self._note_model(body, time)
        match body:
            case ItemStarted(item=ToolCall() | Reasoning() as item):
                self._open[item.id] = item
            case ItemDelta():
                self._extend(body)
            case ToolCallUpdated():
                self._update(body, time)
            case ItemCompleted():
                self._open.pop(body.item.id, None)
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
        self._open.clear()
        self._retry = self._model_since = None

    def moving_line(self, now: float, width: int) -> str:
        """One line about the activity at `now` (Unix seconds), without colours; often empty."""
        if self._retry:
            text, until = self._retry
            return cut(f"{text}{seconds(max(0.0, until - now))}", width - 1)
        facts = Facts(now=now, durations=self.durations)
        running = self._running()
        if call := self._shown():
            more = f" and {len(running) - 1} more" if running[1:] else ""
            return call_line(call, facts, width - 1 - len(more), Theme()) + more
        for item in self._open.values():
            if isinstance(item, Reasoning) and item.text:
                return item_lines(item, facts, width - 1, Theme())[0]
        since = now if self._model_since is None else self._model_since
        return cut(model_wait(now - since), width - 1)

    def live_output(self, width: int) -> list[str]:
        """The last output rows of the call in the moving line, without colours."""
        call = None if self._retry else self._shown()
        return output_lines(call, width - 1, Theme())[-COMMAND_LINES_SHOWN:] if call else []

    def _running(self) -> list[ToolCall]:
        calls = (item for item in self._open.values() if isinstance(item, ToolCall))
        return [call for call in calls if call.started_at is not None]

    def _shown(self) -> ToolCall | None:
        """The first running call that has written something, or else the first running call."""
        running = self._running()
        return next((call for call in running if call.output), running[0] if running else None)

    def _extend(self, body: ItemDelta) -> None:
        match self._open.get(body.item_id), body.channel:
            case ToolCall() as call, "output":
                output = (call.output + body.delta)[-OUTPUT_CHARS_MAX:]
                self._open[call.id] = structs.replace(call, output=output)
            case ToolCall() as call, "arguments":
                arguments = call.arguments + body.delta
                self._open[call.id] = structs.replace(call, arguments=arguments)
            case Reasoning() as item, "text":
                self._open[item.id] = structs.replace(item, text=item.text + body.delta)
            case _:
                pass

    def _update(self, body: ToolCallUpdated, time: float) -> None:
        call = self._open.get(body.item_id)
        if isinstance(call, ToolCall):
            began = time if body.state == "running" else None
            self._open[call.id] = structs.replace(
                call,
                state=body.state,
                title=body.title or call.title,
                started_at=began if call.started_at is None else call.started_at,
            )

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
