"""Renders events as text, as they happen; pure.

A `Renderer` processes events in order and returns pieces of text: `answer` is the model's own text,
`progress` everything else. `console` writes them. `render_item` renders single items.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, assert_never

from msgspec import structs

from tiller_client.render_item import (
    UNCUT,
    background_line,
    call_label,
    call_lines,
    citation_lines,
    input_line,
    item_block,
    waiting_line,
)
from tiller_client.render_request import request_block
from tiller_client.text import Paint, count, cut, dollars, one_line, sanitized, seconds
from tiller_client.wrap import Wrap
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
    Reasoning,
    Request,
    ToolCall,
    Usage,
    UserMessage,
)
from tiller_protocol.settings import Settings

FIELDS = Settings.__struct_fields__
QUEUED_COLUMNS = 60

MODEL_PATIENCE_S = 1.0
"""Silence of the model after which the bottom line says that it is waiting for the model."""

_WAITING = (("steer", "before the next step"), ("queue", "queued"), ("start", "queued"))
"""Labels of queued input, by its delivery."""

_WAITS = (("queue", "waits, as no turn runs"),)
"""The same if no turn will take it: then there is no steering."""

Kind = Literal["answer", "progress"]


class Piece(NamedTuple):
    """Text to write next, with its colours."""

    kind: Kind
    text: str


@dataclass
class _Message:
    """A streaming message: its kind, and the number of its characters that were written."""

    kind: Kind
    shown: int = 0
    wrap: Wrap = field(default_factory=Wrap)


class Renderer:
    """Renders one session; keeps state only of what is open."""

    def __init__(
        self, paint: Paint, width: int, *, prompts: bool = True, wraps: bool = False
    ) -> None:
        """`prompts`: show input that starts a turn, unless the user has just typed it.

        `width`, in columns, may be set at any time. `wraps`: break longer lines between words.
        """
        self._paint = paint
        self.width = width
        self._prompts = prompts
        self._wraps = wraps
        self._background_states: dict[str, str] = {}
        self._settings: Settings | None = None
        self._calls: dict[str, tuple[ToolCall, float | None]] = {}
        self._messages: dict[str, _Message] = {}
        self._stream: _Message | None = None
        self._retry: tuple[str, float] | None = None
        self._model_since: float | None = None
        self._details_shown: set[str] = set()
        self._error = ""

    def feed(self, event: Event) -> list[Piece]:
        """Render the next event; often nothing."""
        return list(self._body(event.body, event))

    def ask(self, request: Request) -> list[Piece]:
        """Render a request that is to be answered now."""
        return list(self._line(request_block(request, self._paint, self.width)))

    def end_line(self) -> list[Piece]:
        """End an unfinished line, so that the next piece begins a new one."""
        return list(self._end_stream())

    @property
    def at_line_start(self) -> bool:
        """Whether what was written so far ends with a newline."""
        return self._stream is None or self._stream.wrap.at_line_start

    def moving_line(self, now: float) -> str:
        """One line about what is going on at `now` (Unix seconds), without colours; often empty."""
        if self._retry:
            text, until = self._retry
            return cut(f"{text}{seconds(max(0.0, until - now))}", self.width - 1)
        running = [(call, since) for call, since in self._calls.values() if since is not None]
        if not running:
            waited_s = 0.0 if self._model_since is None else now - self._model_since
            if waited_s < MODEL_PATIENCE_S:
                return ""
            return cut(f"○ waiting for the model {seconds(waited_s)}", self.width - 1)
        call, since = running[0]
        others = f" and {len(running) - 1} more" if len(running) > 1 else ""
        tail = f" {seconds(max(0.0, now - since))}{others}"
        return cut(f"○ {call_label(call)}", self.width - 1 - len(tail)) + tail

    def _body(self, body: AnyBody, event: Event) -> Iterator[Piece]:
        self._note_model(body, event.time)
        match body:
            case ItemDelta():
                yield from self._delta(body)
            case ItemStarted():
                yield from self._item_started(body.item)
            case ItemCompleted():
                yield from self._item_completed(body.item)
            case ToolCallUpdated():
                self._call_updated(body, event.time)
            case StatusChanged():
                yield from self._status(body, event.time)
            case TurnStarted():
                context = body.context
                place = f"{context.model} as {context.agent} in {context.workspace}"
                yield from self._line(self._paint.dim(one_line(place)))
            case TurnEnded():
                yield from self._turn_ended(body, event.session_id)
            case RequestOpened():
                self._details_shown.add(body.request.detail)
                yield from self.ask(body.request)
            case RequestResolved():
                yield from self._resolved(body)
            case PlanUpdated():
                marks = {"pending": "☐", "in_progress": "◐", "completed": "☑"}
                for entry in body.plan:
                    yield from self._line(f"  {marks[entry.state]} {one_line(entry.text)}")
            case BackgroundChanged():
                yield from self._background(body)
            case WarningRaised():
                yield from self._line(self._paint.asking(f"! {one_line(body.message)}"))
            case ErrorRaised():
                self._error = body.message
                yield from self._line(self._paint.bad(f"✗ {one_line(body.message)}"))
            case _:
                yield from self._session(body)

    def _session(
        self,
        body: SessionCreated
        | SessionConfigured
        | SessionTitled
        | SessionArchived
        | QueueChanged
        | StepStarted
        | StepEnded
        | HistoryCompacted
        | HistoryReverted,
    ) -> Iterator[Piece]:
        match body:
            case SessionTitled():
                if self._prompts:  # else it would repeat what was just typed
                    yield from self._line(self._paint.dim(f"title: {one_line(body.title)}"))
            case SessionConfigured():
                yield from self._configured(body.settings)
            case QueueChanged():
                for delivery, label in _WAITS if body.waits else _WAITING:
                    lines = [input_line(q) for q in body.queue if q.delivery == delivery]
                    if lines:
                        waiting = ", ".join(cut(line, QUEUED_COLUMNS) for line in lines)
                        yield from self._line(self._paint.dim(f"{label}: {waiting}"))
            case HistoryReverted():
                done = "the revert was undone" if body.undone else "history was reverted"
                conflicts = f"; files left as they are: {', '.join(body.conflicts)}"
                yield from self._line(f"⟲ {done}{one_line(conflicts) if body.conflicts else ''}")
            case SessionCreated():
                self._settings = body.settings
            case HistoryCompacted():
                before, after = count(body.tokens_before), count(body.tokens_after)
                done = "summarised" if body.item_id else "old tool output left out"
                yield from self._line(self._paint.dim(f"≡ {done}: {before} → {after} tokens"))
            case SessionArchived() | StepStarted():
                pass
            case StepEnded():
                yield from self._end_stream()
            case _:
                assert_never(body)

    def _configured(self, settings: Settings) -> Iterator[Piece]:
        """Render which settings changed; grants by `always` were shown with the answer."""
        old, self._settings = self._settings, settings
        names = [name for name in FIELDS if getattr(old, name, None) != getattr(settings, name)]
        if names != ["permissions"]:
            changed = ", ".join(name.replace("_", " ") for name in names)
            yield from self._line(self._paint.dim(f"new settings from the next turn on: {changed}"))

    def _background(self, body: BackgroundChanged) -> Iterator[Piece]:
        """Render what changed in the list of background commands."""
        for one in body.background:
            if self._background_states.get(one.id) != one.state:
                self._background_states[one.id] = one.state
                yield from self._line(self._paint.dim(background_line(one)))

    def _item_started(self, item: Item) -> Iterator[Piece]:
        match item:
            case ToolCall():
                self._calls[item.id] = (item, None)
            case AssistantMessage() | Reasoning():
                yield from self._text(self._message(item), item.text)
            case _:
                pass

    def _delta(self, body: ItemDelta) -> Iterator[Piece]:
        if body.channel == "text" and (message := self._messages.get(body.item_id)):
            yield from self._text(message, body.delta)
        elif body.channel == "arguments" and body.item_id in self._calls:
            call, since = self._calls[body.item_id]
            longer = structs.replace(call, arguments=call.arguments + body.delta)
            self._calls[body.item_id] = (longer, since)

    def _message(self, item: AssistantMessage | Reasoning) -> _Message:
        kind: Kind = "progress" if isinstance(item, Reasoning) else "answer"
        return self._messages.setdefault(item.id, _Message(kind))

    def _item_completed(self, item: Item) -> Iterator[Piece]:
        match item:
            case ToolCall():
                self._calls.pop(item.id, None)
                if item.diff in self._details_shown:
                    item = structs.replace(item, diff="")
                if not item.discarded:
                    yield from self._line(call_lines(item, self._paint, self.width))
            case AssistantMessage() | Reasoning():
                yield from self._message_completed(item)
            case UserMessage(delivery="start") if not self._prompts:
                pass
            case _:
                yield from self._line(item_block(item, self._paint, self.width))

    def _message_completed(self, item: AssistantMessage | Reasoning) -> Iterator[Piece]:
        """Render text that came without deltas, which the log drops for old items."""
        message = self._message(item)
        del self._messages[item.id]
        if item.state != "discarded":
            yield from self._text(message, item.text[message.shown :])
        yield from self._end_stream()
        if isinstance(item, AssistantMessage) and item.state != "discarded":
            for line in citation_lines(item.citations, self._paint, self.width):
                yield from self._line(line)
        if item.state == "discarded" and message.shown:
            yield from self._line(self._paint.dim("(discarded: ignore the text above)"))
        elif item.state == "interrupted" and (item.text or isinstance(item, AssistantMessage)):
            yield from self._line(self._paint.dim("(interrupted)"))

    def _call_updated(self, body: ToolCallUpdated, time: float) -> None:
        if body.item_id in self._calls:
            call, since = self._calls[body.item_id]
            titled = structs.replace(call, title=body.title or call.title)
            self._calls[body.item_id] = (titled, time if body.state == "running" else since)

    def _note_model(self, body: AnyBody, time: float) -> None:
        """Track since when a model request has been silent."""
        match body:
            case StepStarted() | StatusChanged(status="busy"):
                self._model_since = time
            case ItemDelta() | StepEnded() | TurnEnded() | ToolCallUpdated():
                self._model_since = None
            case _:
                pass

    def _status(self, body: StatusChanged, time: float) -> Iterator[Piece]:
        self._retry = None
        if body.status == "retry":
            attempt = "" if body.attempt is None else f" {body.attempt}"
            attempt += f" of {body.limit}" if body.limit else ""
            delay = "" if body.delay_s is None else f" in {seconds(body.delay_s)}"
            cause = f": {one_line(body.cause)}" if body.cause else ""
            yield from self._line(self._paint.asking(f"↻ retry{attempt}{delay}{cause}"))
            if body.delay_s is not None:
                self._retry = (f"↻ retry{attempt} in ", time + body.delay_s)

    def _resolved(self, body: RequestResolved) -> Iterator[Piece]:
        by = f" by {one_line(body.by)}" if body.by else " by a rule"
        text = f": {one_line(body.text)}" if body.text else ""
        match body.resolution:
            case "once" | "always" | "always_here":
                how = body.resolution.replace("_", " ")
                line = self._paint.good(f"  ✓ allowed {how}{by}")
            case "answer":
                line = self._paint.good(f"  ✓ answered{by}{text}")
            case "reject":
                line = self._paint.bad(f"  ✗ rejected{by}{text}")
            case "cancelled":
                line = self._paint.dim("  · no longer asked")
        yield from self._line(line)

    def _turn_ended(self, body: TurnEnded, session_id: str) -> Iterator[Piece]:
        self._calls.clear()
        self._messages.clear()
        self._details_shown.clear()
        self._retry = None
        # Most errors come as an event of their own, just before.
        if body.error and body.error.message != self._error:
            yield from self._line(self._paint.bad(f"✗ {one_line(body.error.message)}"))
        self._error = ""
        steps = f"{body.steps} step{'' if body.steps == 1 else 's'}"
        usage = body.usage
        counted = f" · {count(usage.input_tokens)} in, {count(usage.output_tokens)} out"
        tokens = "" if usage == Usage() else counted  # not all providers count
        cost = "" if body.cost is None else f" · {dollars(body.cost)}"
        outcome = body.outcome.replace("_", " ")
        painted = self._paint.good if body.outcome == "completed" else self._paint.bad
        files = _files(body)
        rest = f" · {steps}{tokens}{cost}{files} · {seconds(body.duration_s)}"
        yield from self._line(painted(f"■ {outcome}") + self._paint.dim(rest))
        if body.queued:
            yield from self._line(self._paint.asking(f"! {waiting_line(body.queued, session_id)}"))

    def _text(self, message: _Message, text: str) -> Iterator[Piece]:
        """Render the next piece of a message; a mark distinguishes reasoning from the answer."""
        if not text:
            return
        mark = ""
        if self._stream is not message:
            yield from self._end_stream()
            self._stream = message
            mark = "∴ " if message.kind == "progress" else ""
        message.shown += len(text)
        yield from self._written(message, message.wrap.feed(mark + sanitized(text), self._columns))

    def _written(self, message: _Message, text: str) -> Iterator[Piece]:
        if text:
            yield Piece(message.kind, text if message.kind == "answer" else self._paint.dim(text))

    @property
    def _columns(self) -> int:
        """How wide text may be; only a terminal breaks lines, and then behind its last column."""
        return self.width - 1 if self._wraps else UNCUT

    def _line(self, text: str) -> Iterator[Piece]:
        yield from self._end_stream()
        yield Piece("progress", text + "\n")

    def _end_stream(self) -> Iterator[Piece]:
        """End the line that a message left unfinished; the newline is part of the message."""
        message, self._stream = self._stream, None
        if message:
            yield from self._written(message, message.wrap.rest(self._columns))
            if not message.wrap.at_line_start:
                yield Piece(message.kind, "\n")
                message.wrap.start_line()


def _files(body: TurnEnded) -> str:
    """How many files a turn changed."""
    if not body.files:
        return ""
    least = "at least " if body.more_files else ""
    return f" · {least}{len(body.files)} file{'' if len(body.files) == 1 else 's'} changed"
