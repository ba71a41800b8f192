"""Renders events as text, as they happen; pure.

A `Renderer` processes events in order and returns pieces of text: `answer` is the model's own text,
`needed` is for messages that the user must see, `progress` for everything else. `console` writes
the pieces. `items` renders single items, `lines` other events, `activity` the current activity.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, assert_never

from msgspec import structs

from tiller_client.program_name import program
from tiller_client.rendering.activity import Activity
from tiller_client.rendering.facts import Facts
from tiller_client.rendering.items import answer_notes, verb_lines
from tiller_client.rendering.labels import is_shown, waiting_line
from tiller_client.rendering.lines import Reporter, queue_lines, turn_end_line
from tiller_client.rendering.requests import request_block
from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import UNCUT, local_time, one_line, sanitized
from tiller_client.rendering.wrap import Wrap, hanging, sentence
from tiller_protocol.events import (
    AnyBody,
    BackgroundChanged,
    ErrorRaised,
    Event,
    HistoryCompacted,
    HistoryReverted,
    ItemCompleted,
    ItemDelta,
    ItemStarted,
    PlanUpdated,
    QueueChanged,
    RequestOpened,
    RequestResolved,
    SessionArchived,
    SessionConfigured,
    SessionCreated,
    SessionSeen,
    SessionTitled,
    StatusChanged,
    StepEnded,
    StepStarted,
    ToolCallUpdated,
    TurnEnded,
    TurnStarted,
    WarningRaised,
)
from tiller_protocol.items import (
    AssistantMessage,
    Item,
    QueuedInput,
    Reasoning,
    Request,
    ToolCall,
    UserMessage,
)
from tiller_protocol.settings import Settings

FIELDS = Settings.__struct_fields__

Kind = Literal["answer", "needed", "progress"]


class Piece(NamedTuple):
    """A text to write next, with its colours."""

    kind: Kind
    text: str


@dataclass
class _Message:
    """A streaming message, and the number of its characters written so far."""

    shown: int = 0
    wrap: Wrap = field(default_factory=Wrap)


class Renderer:
    """Renders one session; keeps state only about open items."""

    def __init__(
        self,
        theme: Theme,
        width: int,
        *,
        prompts: bool = True,
        wraps: bool = False,
        whole: bool = False,
        goes_on: str = "",
    ) -> None:
        """With `prompts`, show the input that starts a turn, too: the user has not just typed it.

        Hints name `goes_on`, or else a verb, as the command that continues the session. `width`, in
        columns, may be set at any time; with `wraps`, longer lines are broken between words. With
        `whole`, all output of calls is shown, not only the last lines of commands.
        """
        self._theme = theme
        self.width = width
        self._prompts = prompts
        self._wraps = wraps
        self._whole = whole
        self._goes_on = goes_on
        self._activity = Activity()
        self._reporter = Reporter()
        self._settings: Settings | None = None
        self._messages: dict[str, _Message] = {}
        self._stream: _Message | None = None
        self._details_shown: set[str] = set()
        self._printed: set[str] = set()
        """The ids of this turn's printed items: reasoning is printed before it is completed."""
        self._queued: tuple[QueuedInput, ...] = ()

    def feed(self, event: Event) -> list[Piece]:
        """Render the next event; the result is often empty."""
        return list(self._body(event.body, event))

    def ask(self, request: Request) -> list[Piece]:
        """Render a request that the user is to answer now."""
        return list(self._line(request_block(request, self._theme, self.width), "needed"))

    def cut_off(self) -> list[Piece]:
        """End the activity of a turn whose last events are missing."""
        self._activity.end()
        return self.end_line()

    def end_line(self) -> list[Piece]:
        """End an unfinished line, so that the next piece begins a new one."""
        return list(self._end_stream())

    @property
    def at_line_start(self) -> bool:
        """Whether the text so far ends with a newline."""
        return self._stream is None or self._stream.wrap.at_line_start

    def moving_line(self, now: float) -> str:
        """One line about the activity at `now` (Unix seconds), without colours; often empty."""
        return self._activity.moving_line(now, self.width)

    def live_output(self) -> list[str]:
        """The last rows that a running call has written, without colours."""
        return self._activity.live_output(self.width)

    def _body(self, body: AnyBody, event: Event) -> Iterator[Piece]:
        reasoning = self._activity.reasoning
        self._activity.note(event)
        if reasoning and isinstance(body, ItemStarted):
            yield from self._item_ended(structs.replace(reasoning, state="completed"))
        match body:
            case ItemDelta():
                yield from self._delta(body)
            case ItemStarted():
                yield from self._item_started(body.item)
            case ItemCompleted():
                yield from self._item_completed(body.item)
            case TurnStarted():
                context = body.context
                place = f"{context.model} as {context.agent} in {context.workspace}"
                began = f"{one_line(place)} · {local_time(event.time)}"
                yield from self._line(self._theme.dim(hanging(began, self._columns)))
            case TurnEnded():
                yield from self._turn_ended(body, event.session_id)
            case StepEnded():
                yield from self._end_stream()
            case RequestOpened():
                self._details_shown.add(body.request.detail)
                yield from self._reported(body)
                yield from self.ask(body.request)
            case QueueChanged():
                known, self._queued = self._queued, body.queue
                for line in queue_lines(body, known, self._theme):
                    yield from self._line(line)
            case ErrorRaised():
                yield from self._failure(body)
            case SessionCreated():
                self._settings = body.settings
            case SessionConfigured():
                yield from self._configured(body)
            case SessionTitled():
                if self._prompts:  # otherwise it was just typed
                    yield from self._line(self._theme.dim(f"title: {one_line(body.title)}"))
            case RequestResolved(resolution="reject"):
                yield from self._reported(body, "needed")
            case (
                StatusChanged()
                | RequestResolved()
                | BackgroundChanged()
                | HistoryCompacted()
                | HistoryReverted()
                | PlanUpdated()
                | WarningRaised()
            ):
                yield from self._reported(body)
            case SessionArchived() | SessionSeen() | StepStarted() | ToolCallUpdated():
                pass
            case _:
                assert_never(body)

    def _reported(self, body: AnyBody, kind: Kind = "progress") -> Iterator[Piece]:
        for line in self._reporter.lines(body, self._theme, self._columns):
            yield from self._line(line, kind)

    def _configured(self, body: SessionConfigured) -> Iterator[Piece]:
        """Render the changed settings, except grants by `always`: the answer has shown those."""
        if body.workspace:
            yield from self._line(self._theme.dim(f"new workspace: {one_line(body.workspace)}"))
        settings = body.settings
        old, self._settings = self._settings, settings
        names = [name for name in FIELDS if getattr(old, name, None) != getattr(settings, name)]
        if names != ["permissions"] and not (body.workspace and not names):
            changed = ", ".join(name.replace("_", " ") for name in names)
            yield from self._line(self._theme.dim(f"new settings from the next turn on: {changed}"))

    def _item_started(self, item: Item) -> Iterator[Piece]:
        if isinstance(item, AssistantMessage):
            yield from self._text(self._message(item), item.text)

    def _delta(self, body: ItemDelta) -> Iterator[Piece]:
        if body.channel == "text" and (message := self._messages.get(body.item_id)):
            yield from self._text(message, body.delta)

    def _message(self, item: AssistantMessage) -> _Message:
        return self._messages.setdefault(item.id, _Message())

    def _item_completed(self, item: Item) -> Iterator[Piece]:
        match item:
            case AssistantMessage():
                yield from self._message_completed(item)
                return
            case UserMessage(delivery="start") if not self._prompts:
                return
            case Reasoning():
                if item.state == "discarded" or item.id in self._printed:
                    return
            case ToolCall():
                item = self._reporter.call(item)
                if item.diff in self._details_shown:
                    item = structs.replace(item, diff="")
            case _:
                pass
        yield from self._item_ended(item)

    def _item_ended(self, item: Item) -> Iterator[Piece]:
        if not is_shown(item):
            return
        self._printed.add(item.id)
        facts = Facts(durations=self._activity.durations)
        width, columns = self.width, self._columns
        lines = verb_lines(item, facts, width, columns, self._theme, whole=self._whole)
        yield from self._line("\n".join(lines))

    def _message_completed(self, item: AssistantMessage) -> Iterator[Piece]:
        """Render the rest of a message: the log drops the deltas of old messages."""
        message = self._message(item)
        del self._messages[item.id]
        if item.state != "discarded":
            yield from self._text(message, item.text[message.shown :])
        yield from self._end_stream()
        if item.state != "discarded":
            for line in answer_notes(item, self.width - 1, self._theme):
                yield from self._line(line)
        elif message.shown:
            yield from self._line(self._theme.dim("(discarded: ignore the text above)"))

    def _turn_ended(self, body: TurnEnded, session_id: str) -> Iterator[Piece]:
        self._messages.clear()
        self._details_shown.clear()
        self._printed.clear()
        yield from self._failure(body)
        kind: Kind = "progress" if body.outcome == "completed" else "needed"
        yield from self._line(turn_end_line(body, self._theme, columns=self._columns), kind)
        if body.queued:
            goes_on = self._goes_on or f"{program()} resume {session_id}"
            waiting = sentence("! ", waiting_line(body.queued, goes_on), self._columns)
            yield from self._line(self._theme.asking(waiting), "needed")

    def _failure(self, body: ErrorRaised | TurnEnded) -> Iterator[Piece]:
        if message := self._reporter.error(body):
            failure = sentence("✗ ", message, self._columns)
            yield from self._line(self._theme.bad(failure), "needed")

    def _text(self, message: _Message, text: str) -> Iterator[Piece]:
        """Render the next piece of a message."""
        if not text:
            return
        if self._stream is not message:
            yield from self._end_stream()
            self._stream = message
        message.shown += len(text)
        yield from _answer(message.wrap.feed(sanitized(text), self._columns))

    @property
    def _columns(self) -> int:
        """The columns available for text; unlimited if lines are not to be broken."""
        return self.width - 1 if self._wraps else UNCUT

    def _line(self, text: str, kind: Kind = "progress") -> Iterator[Piece]:
        yield from self._end_stream()
        yield Piece(kind, text + "\n")

    def _end_stream(self) -> Iterator[Piece]:
        """End the unfinished line of a message with a newline, which belongs to the message."""
        message, self._stream = self._stream, None
        if message:
            yield from _answer(message.wrap.rest(self._columns))
            if not message.wrap.at_line_start:
                yield from _answer("\n")
                message.wrap.start_line()


def _answer(text: str) -> Iterator[Piece]:
    if text:
        yield Piece("answer", text)
