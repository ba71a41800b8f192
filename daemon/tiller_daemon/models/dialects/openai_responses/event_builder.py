"""Builds the events of one response. Pure.

The turn joins consecutive text to one item, and consecutive thinking to another. Some of the
provider's items can't be restored from these: two messages in a row, a message with a phase, a call
of a hosted tool. The data for sending them back unchanged is stored in the `opaque` of a reasoning
item.
"""

import msgspec

from tiller_daemon.models.base import HostedCall, ReasoningDelta, ToolCallStarted
from tiller_daemon.models.dialects.opaque import Origin
from tiller_daemon.models.dialects.openai_responses.request import OpaqueItem, seal_items
from tiller_daemon.models.dialects.stream_decoder import TEXT, THINKING, DeltaBuffer

_NOTHING = -3
"""The value of the turn's current item if there is none or if it is a hosted call. Otherwise the
value is `TEXT`, `THINKING` or the number of a call."""


class EventBuilder(DeltaBuffer):
    """Collects the events of one response."""

    def __init__(self, origin: Origin) -> None:
        super().__init__()
        self._origin = origin
        self._item = _NOTHING
        self._message: object = None
        self._paragraph: object = None
        self._opaque_items: list[bytes] = []
        """The items to store in the current reasoning item."""

    def add_message_text(self, message: object, phase: str, piece: str) -> None:
        """Append a piece of the message that the object `message` identifies."""
        if message is not self._message:
            if phase or self._item == TEXT:
                self.add_opaque(msgspec.json.encode(OpaqueItem(type="message", phase=phase)))
            self._message = message
        if self._item != TEXT:
            self._begin(TEXT)
        self.add_text(TEXT, piece)

    def add_thinking(self, part: object, piece: str) -> None:
        """Append a piece of thinking to the paragraph that `part` identifies."""
        if self._item != THINKING:
            self._begin(THINKING)
        elif part != self._paragraph and self._paragraph is not None:
            piece = f"\n\n{piece}"
        self._paragraph = part
        self.add_text(THINKING, piece)

    def add_opaque(self, item: bytes) -> None:
        """Store an item, as JSON, that the provider wants back unchanged in this position."""
        if self._item != THINKING:
            self._begin(THINKING)
        self._opaque_items.append(item)
        self.add_event(ReasoningDelta("", seal_items(self._origin, self._opaque_items)))

    def add_hosted_call(self, call: HostedCall) -> None:
        """Append the state of a hosted call. The start of a call ends the current item."""
        if call.state == "running":
            self._begin(_NOTHING)
        self.add_event(call)

    def start_call(self, number: int, call_id: str, name: str) -> None:
        """Append the start of a call."""
        self._begin(number)
        self.add_event(ToolCallStarted(number, call_id, name))

    def _begin(self, item: int) -> None:
        self._item = item
        self._paragraph = None
        self._opaque_items = []
