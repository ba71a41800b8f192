"""Redacts keys from everything that models send, before any other part of the daemon sees it.

A provider knows its key and may repeat the key anywhere: in text and thinking, in the name, id and
arguments of a call, in opaque data, in an error. No event that leaves this module contains a key,
even if the key arrived in several pieces.
"""

from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final, TypeVar

from msgspec import structs

from tiller_daemon.models.base import (
    Cited,
    Finished,
    HostedCall,
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
from tiller_protocol.items import Citation

KEY_CHARS_MIN: Final = 12
"""Shorter keys are placeholders for local servers, such as `lm-studio`. Models may write such words
in files, which redaction would damage."""


class RedactedModel:
    """A `ModelClient` that redacts the current `secrets` from the responses of `inner`."""

    def __init__(self, inner: ModelClient, secrets: Callable[[], tuple[str, ...]]) -> None:
        self._inner = inner
        self._secrets = secrets

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream the response from `inner`; see `ModelClient.stream`."""
        redaction: _Redaction | None = None
        try:
            async with aclosing(self._inner.stream(request)) as events:
                async for event in events:
                    # Made only now, because this request may have fetched or refreshed a key.
                    redaction = redaction or _Redaction(self._current_matcher())
                    if redaction.feed_if_clean(event):
                        yield event
                        continue
                    for shown in redaction.feed(event):
                        yield shown
        except ModelError as error:
            if redaction:
                for shown in redaction.end():
                    yield shown
            raise error.with_message(self._current_matcher().redact(error.message)) from None

    def _current_matcher(self) -> SecretMatcher:
        return matcher_for(tuple(one for one in self._secrets() if len(one) >= KEY_CHARS_MIN))


class _Redaction:
    """Redacts one response. Text that may begin a key is delayed until more text decides."""

    def __init__(self, matcher: SecretMatcher) -> None:
        self._matcher = matcher
        self._has_no_secrets = not matcher
        self._text = TextRedactor(matcher)
        self._kind: type[TextDelta] | type[ReasoningDelta] = TextDelta
        """The type of the event that held the last text."""
        self._arguments = defaultdict[int, TextRedactor](lambda: TextRedactor(matcher))

    def feed_if_clean(self, event: ModelEvent) -> bool:
        """Accept `event` and return True if it can be passed on unchanged; else return False.

        This is a fast path for nearly all events.
        """
        if self._has_no_secrets:
            return True
        if isinstance(event, TextDelta):
            return self._kind is TextDelta and self._text.feed_if_clean(event.text)
        return False

    def feed(self, event: ModelEvent) -> tuple[ModelEvent, ...]:
        """Accept `event` and return the events that can be passed on now, in order."""
        match event:
            case TextDelta() | ReasoningDelta():
                return self._take_text(event)
            case ToolCallStarted():
                redact = self._matcher.redact
                named = structs.replace(
                    event, call_id=redact(event.call_id), name=redact(event.name)
                )
                return (*self._end_text(), named)
            case ToolCallDelta():
                text = self._arguments[event.index].feed(event.arguments)
                return () if event.arguments and not text else (ToolCallDelta(event.index, text),)
            case ToolCallDone():
                return (*self._end_call(event.index), event)
            case HostedCall():
                return (*self._end_text(), _redacted(self._matcher, event))
            case Cited():
                # Earlier text may stay delayed, so that no key in it is missed.
                return (Cited(_redacted(self._matcher, event.citation)),)
            case UsageReported():
                return (event,)
            case Finished():
                return (*self.end(), event)

    def end(self) -> tuple[ModelEvent, ...]:
        """Return the events that are still delayed, at the end of the response."""
        calls = (self._end_call(index) for index in self._arguments)
        return (*self._end_text(), *(event for ended in calls for event in ended))

    def _take_text(self, event: TextDelta | ReasoningDelta) -> tuple[ModelEvent, ...]:
        # Text and thinking are separate: a secret can't start in one and end in the other.
        before = () if type(event) is self._kind else self._end_text()
        self._kind = type(event)
        text = self._text.feed(event.text)
        shown: TextDelta | ReasoningDelta = event
        if text != event.text:
            shown = structs.replace(event, text=text)
        if isinstance(shown, ReasoningDelta) and shown.opaque:
            shown = structs.replace(shown, opaque=self._matcher.redact(shown.opaque))
        elif event.text and not text:
            return before
        return (*before, shown) if before else (shown,)

    def _end_text(self) -> tuple[ModelEvent, ...]:
        text = self._text.end()
        return (self._kind(text),) if text else ()

    def _end_call(self, index: int) -> tuple[ModelEvent, ...]:
        text = self._arguments[index].end()
        return (ToolCallDelta(index, text),) if text else ()


_Redacted = TypeVar("_Redacted", HostedCall, Citation)


def _redacted(matcher: SecretMatcher, struct: _Redacted) -> _Redacted:
    """Return a struct with all its texts redacted."""
    fields = structs.asdict(struct).items()
    texts = {name: matcher.redact(text) for name, text in fields if isinstance(text, str)}
    return structs.replace(struct, **texts)
