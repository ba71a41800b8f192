"""What models say, without keys: the one door between all adapters and the rest of the daemon.

G13. A provider knows its key, and may repeat it anywhere: in text and thinking, in the name, id and
arguments of a call, in what it wants back, in an error. Nothing of that is in an event of a model
that comes out here, also when a key comes in pieces.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from msgspec import structs

from tiller_daemon.models.base import (
    Finished,
    ModelClient,
    ModelError,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallDone,
    ToolCallStarted,
    UsageReported,
)
from tiller_daemon.redaction.text import SecretMatcher, TextRedactor, matcher_for

KEY_CHARS_MIN: Final = 12
"""A shorter key is the placeholder of a local server, such as `lm-studio`: a word that may well
stand in what a model writes. To take it out would damage files."""


class RedactedModel:
    """A `ModelClient` that says what `inner` says, without what `secrets` gives."""

    def __init__(self, inner: ModelClient, secrets: Callable[[], tuple[str, ...]]) -> None:
        self._inner = inner
        self._secrets = secrets

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream the response of `inner`; see `ModelClient.stream`."""
        redaction: _Redaction | None = None
        try:
            async with aclosing(self._inner.stream(request)) as events:
                async for event in events:
                    # Not before: a key may be fetched for this request, or renewed.
                    redaction = redaction or _Redaction(self._current_matcher())
                    if redaction.passes(event):
                        yield event
                        continue
                    for shown in redaction.take(event):
                        yield shown
        except ModelError as error:
            if redaction:
                for shown in redaction.end():
                    yield shown
            raise _without(self._current_matcher(), error) from None

    def _current_matcher(self) -> SecretMatcher:
        return matcher_for(tuple(one for one in self._secrets() if len(one) >= KEY_CHARS_MIN))


class _Redaction:
    """One response. A text waits while it may go on as a key: until something else ends it."""

    def __init__(self, spellings: SecretMatcher) -> None:
        self._matcher = spellings
        self._is_nothing_secret = not spellings
        self._spoken = TextRedactor(spellings)
        self._kind: type[TextDelta] | type[ReasoningDelta] = TextDelta
        """Of what was spoken last."""
        self._arguments: dict[int, TextRedactor] = {}

    def passes(self, event: ModelEvent) -> bool:
        """Take an event that can be said as it is, and say so; else do nothing. For speed."""
        if self._is_nothing_secret:
            return True
        if isinstance(event, TextDelta):
            return self._kind is TextDelta and self._spoken.passes(event.text)
        return False

    def take(self, event: ModelEvent) -> tuple[ModelEvent, ...]:
        """What can be said by now, in order."""
        match event:
            case TextDelta() | ReasoningDelta():
                return self._take_spoken(event)
            case ToolCallStarted():
                redact = self._matcher.redact
                named = structs.replace(
                    event, call_id=redact(event.call_id), name=redact(event.name)
                )
                return (*self._end_spoken(), named)
            case ToolCallDelta():
                so_far = self._arguments.get(event.index)
                if so_far is None:
                    so_far = self._arguments[event.index] = TextRedactor(self._matcher)
                text = so_far.take(event.arguments)
                return () if event.arguments and not text else (ToolCallDelta(event.index, text),)
            case ToolCallDone():
                return (*self._end_call(event.index), event)
            case UsageReported():
                return (event,)
            case Finished():
                return (*self.end(), event)

    def end(self) -> tuple[ModelEvent, ...]:
        """What still waits, when nothing more comes."""
        calls = (self._end_call(index) for index in self._arguments)
        return (*self._end_spoken(), *(event for ended in calls for event in ended))

    def _take_spoken(self, event: TextDelta | ReasoningDelta) -> tuple[ModelEvent, ...]:
        before = () if type(event) is self._kind else self._end_spoken()
        self._kind = type(event)
        text = self._spoken.take(event.text)
        shown: TextDelta | ReasoningDelta = event
        if text != event.text:
            shown = structs.replace(event, text=text)
        if isinstance(shown, ReasoningDelta) and shown.opaque:
            shown = structs.replace(shown, opaque=self._matcher.redact(shown.opaque))
        elif event.text and not text:
            return before
        return (*before, shown) if before else (shown,)

    def _end_spoken(self) -> tuple[ModelEvent, ...]:
        text = self._spoken.end()
        return (self._kind(text),) if text else ()

    def _end_call(self, index: int) -> tuple[ModelEvent, ...]:
        so_far = self._arguments.get(index)
        text = so_far.end() if so_far else ""
        return (ToolCallDelta(index, text),) if text else ()


def _without(spellings: SecretMatcher, error: ModelError) -> ModelError:
    return ModelError(
        error.kind,
        spellings.redact(error.message),
        status=error.status,
        retry_after_s=error.retry_after_s,
        final=error.final,
    )
