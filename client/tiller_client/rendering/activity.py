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
        self.reasoning: Reasoning | None = None
        """The reasoning that goes on; it has ended when another item starts."""
        self._calls: dict[str, ToolCall] = {}
        self._retry: tuple[str, float] | None = None
        self._model_since: float | None = None

    def note(self, event: Event) -> None:
        """Note the next event."""
        body, time = event.body, event.time
        self.durations.note(event)
        self._note_model(body, time)
        match body:
            case ItemStarted(item):
                self.reasoning = item if isinstance(item, Reasoning) else None
                if isinstance(item, ToolCall):
                    self._calls[item.id] = item
            case ItemDelta():
                self._extend(body)
            case ToolCallUpdated():
                self._update(body, time)
            case ItemCompleted():
                self._calls.pop(body.item.id, None)
                if self.reasoning and self.reasoning.id == body.item.id:
                    self.reasoning = None
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
        self.reasoning = self._retry = self._model_since = None

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
        if self.reasoning and self.reasoning.text:
            return item_lines(self.reasoning, facts, width - 1, Theme())[0]
        since = now if self._model_since is None else self._model_since
        return cut(model_wait(now - since), width - 1)

    def live_output(self, width: int) -> list[str]:
        """The last output rows of the call in the moving line, without colours."""
        call = None if self._retry else self._shown()
        return output_lines(call, width - 1, Theme())[-COMMAND_LINES_SHOWN:] if call else []

    def _running(self) -> list[ToolCall]:
        return [call for call in self._calls.values() if call.started_at is not None]

    def _shown(self) -> ToolCall | None:
        """The first running call that has written something, or else the first running call."""
        running = self._running()
        return next((call for call in running if call.output), running[0] if running else None)

    def _extend(self, body: ItemDelta) -> None:
        reasoning, call = self.reasoning, self._calls.get(body.item_id)
        if reasoning and reasoning.id == body.item_id:
            self.reasoning = structs.replace(reasoning, text=reasoning.text + body.delta)
        elif call and body.channel == "output":
            output = (call.output + body.delta)[-OUTPUT_CHARS_MAX:]
            self._calls[call.id] = structs.replace(call, output=output)
        elif call and body.channel == "arguments":
            self._calls[call.id] = structs.replace(call, arguments=call.arguments + body.delta)

    def _update(self, body: ToolCallUpdated, time: float) -> None:
        if call := self._calls.get(body.item_id):
            began = time if body.state == "running" else None
            self._calls[call.id] = structs.replace(
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
