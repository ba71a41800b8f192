"""Splits a sequence of model items into responses. Pure.

Only calls record to which response they belong. Text and thinking belong to the response of the
next call. So items after the last call of a response belong to the next response.
"""

from tiller_daemon.models.history_builder import ModelItem
from tiller_protocol.items import ToolCall


class ResponseSplitter:
    """Collects the model's items since the last user message, until their response is complete."""

    def __init__(self, items: list[ModelItem] | None = None) -> None:
        self._items = items or []

    def copy(self) -> "ResponseSplitter":
        """Return an independent copy."""
        return ResponseSplitter(self._items.copy())

    def add(self, item: ModelItem) -> list[ModelItem]:
        """Append an item; return the previous response if the item completes it, else nothing."""
        ended: list[ModelItem] = []
        last = self._last_call
        if isinstance(item, ToolCall) and last is not None and last[1].ordinal != item.ordinal:
            ended, self._items = self._items[: last[0] + 1], self._items[last[0] + 1 :]
        self._items.append(item)
        return ended

    def end(self) -> list[list[ModelItem]]:
        """Return the remaining responses, at a user message or at the end of the history."""
        last = self._last_call
        split = len(self._items) if last is None else last[0] + 1
        rest = [self._items[:split], self._items[split:]]
        self._items = []
        return [response for response in rest if response]

    @property
    def _last_call(self) -> tuple[int, ToolCall] | None:
        for number in range(len(self._items) - 1, -1, -1):
            item = self._items[number]
            if isinstance(item, ToolCall):
                return number, item
        return None
