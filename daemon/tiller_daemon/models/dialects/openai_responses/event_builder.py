"""The events of one answer: pieces joined, messages told apart, thinking kept together. Pure.

The turn makes an item of text that comes in a row, and one of thinking. Where the provider's own
items do not show in that (two messages in a row, a message with a phase, a call of a hosted tool),
a reasoning item without text holds what is needed to send them back as they were.
"""

import msgspec

from tiller_daemon.models.base import ModelEvent, ReasoningDelta, ToolCallDone, ToolCallStarted
from tiller_daemon.models.dialects.delta_buffer import TEXT, THINKING, DeltaBuffer
from tiller_daemon.models.dialects.opaque import Origin
from tiller_daemon.models.dialects.openai_responses.request import OpaqueItem, seal_items

_NOTHING = -3
"""What the turn's last item is before there is one; else text, thinking or the number of a call."""


class EventBuilder:
    """Takes what the model does and gives it as events; `taken` gives those since the last time."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._pieces = DeltaBuffer()
        self._item = _NOTHING
        self._message: object = None
        self._thought: object = None
        self._stretch: list[bytes] = []

    def taken(self) -> list[ModelEvent]:
        """The events since the last time."""
        return self._pieces.taken()

    def put(self, event: ModelEvent) -> None:
        """An event as it is."""
        self._pieces.put(event)

    def say(self, message: object, phase: str, piece: str) -> None:
        """The next piece of a message; `message` tells one from another."""
        if message is not self._message:
            if phase or self._item == TEXT:
                self.keep(msgspec.json.encode(OpaqueItem(type="message", phase=phase)))
            self._message = message
        if self._item != TEXT:
            self._begin(TEXT)
        self._pieces.add(TEXT, piece)

    def think(self, part: object, piece: str) -> None:
        """The next piece of thinking; `part` tells one paragraph from another."""
        if self._item != THINKING:
            self._begin(THINKING)
        elif part != self._thought and self._thought is not None:
            piece = f"\n\n{piece}"
        self._thought = part
        self._pieces.add(THINKING, piece)

    def keep(self, item: bytes) -> None:
        """An item, as JSON text, that the provider wants back as it is, at this place."""
        if self._item != THINKING:
            self._begin(THINKING)
        self._stretch.append(item)
        self.put(ReasoningDelta("", seal_items(self._origin, self._stretch)))

    def start_call(self, number: int, call_id: str, name: str) -> None:
        """A call begins."""
        self._begin(number)
        self.put(ToolCallStarted(number, call_id, name))

    def argue(self, number: int, piece: str) -> None:
        """The next piece of a call's arguments."""
        self._pieces.add(number, piece)

    def complete_call(self, number: int) -> None:
        """A call's arguments are whole."""
        self.put(ToolCallDone(number))

    def _begin(self, item: int) -> None:
        self._item = item
        self._thought = None
        self._stretch = []
