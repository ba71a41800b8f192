"""Limits on the size of one response, whatever a server sends. Pure.

They keep a response small enough for the log and for a message to a frontend, and keep a daemon
that handles it responsive. No model writes as much on purpose.
"""

from typing import Final

import msgspec

from tiller_daemon.models.base import (
    Cited,
    Finished,
    HostedCall,
    ModelError,
    ModelEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallDone,
    ToolCallStarted,
    UsageReported,
)

RESPONSE_CALLS_MAX: Final = 128
"""The most tool calls in a response. Models make about twenty at most. The daemon takes about a
millisecond for each call."""

RESPONSE_ITEMS_MAX: Final = 1_000
"""The most texts, pieces of thinking between them, and calls in a response. A response with a
hundred web searches has about 300."""

RESPONSE_TEXT_BYTES_MAX: Final = 4 * 1024 * 1024
"""The most bytes of text, thinking and arguments in a response, as JSON. In English, these are a
million tokens; the longest responses of today's models have 128,000. An answer that continues
twice (`unfinished.CONTINUATIONS_MAX`) still fits into a message as a whole."""

RESPONSE_BYTES_MAX: Final = 14 * 1024 * 1024
"""The most bytes in a response, as JSON, including images and data that only the provider reads.
Each item of a response must fit into a message (`codec.MESSAGE_BYTES_MAX`) in both encodings, of
which JSON is the longer one."""

_to_json = msgspec.json.Encoder().encode


class ResponseLimits:
    """Counts what one attempt at a response contains. Call `count` with each event."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._calls = self._items = self._text_bytes = self._bytes = 0
        self._current: object = None
        self._opaque_bytes = 0
        """The size of the current reasoning's `opaque`, which the next `opaque` replaces."""

    def count(self, event: ModelEvent) -> None:
        """Count an event. Raises `ModelError` if the response is too long with it."""
        match event:
            case TextDelta(text) | ReasoningDelta(text):
                self._extend(type(event))
                self._add_text(text)
                if isinstance(event, ReasoningDelta) and event.opaque:
                    self._bytes -= self._opaque_bytes
                    self._opaque_bytes = len(_to_json(event.opaque))
                    self._bytes += self._opaque_bytes
            case ToolCallDelta(_, arguments):
                self._add_text(arguments)
            case ToolCallStarted():
                self._calls += 1
                self._extend(event)
                self._add_text(event.call_id + event.name)
            case HostedCall():
                self._extend(event.call_id)
                self._bytes += len(_to_json(event))
            case Cited():
                self._extend(TextDelta)
                self._bytes += len(_to_json(event))
            case ToolCallDone() | UsageReported() | Finished():
                pass  # adds nothing to an item
        self._check()

    def _extend(self, item: object) -> None:
        """Count an item, unless it is the one that the last event belonged to."""
        if item != self._current:
            self._current = item
            self._items += 1
            self._opaque_bytes = 0

    def _add_text(self, text: str) -> None:
        # A text that is too long anyway is not encoded, as this could take long.
        is_short = len(text) <= RESPONSE_TEXT_BYTES_MAX
        size = len(_to_json(text)) if is_short else len(text)
        self._text_bytes += size
        self._bytes += size

    def _check(self) -> None:
        for count, limit, what in (
            (self._calls, RESPONSE_CALLS_MAX, "tool calls"),
            (self._items, RESPONSE_ITEMS_MAX, "separate texts and calls"),
            (self._text_bytes, RESPONSE_TEXT_BYTES_MAX, "bytes of text"),
            (self._bytes, RESPONSE_BYTES_MAX, "bytes"),
        ):
            if count > limit:
                message = (
                    f"A response of the model {self._model} has more than {limit:,} {what}, so it "
                    "was stopped and discarded. Ask for less at a time, or choose another model."
                )
                raise ModelError("response_too_long", message)
