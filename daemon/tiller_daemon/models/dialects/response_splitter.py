"""What models said in a row, taken apart into their responses. Shared by the adapters.

Of the items of a response only calls say which one they are of: text and thinking before a call are
of its response, as is what stands between two of its calls; what comes behind its last call is of
the next one.
"""

from tiller_protocol.items import AssistantMessage, Reasoning, ToolCall

ModelItem = AssistantMessage | Reasoning | ToolCall


class ResponseSplitter:
    """Items that were spoken since the user's last words and are not of a response yet."""

    def __init__(self, items: list[ModelItem] | None = None) -> None:
        self._items = items or []

    def copy(self) -> "ResponseSplitter":
        """A row that goes on from here by itself."""
        return ResponseSplitter(self._items.copy())

    def add(self, item: ModelItem) -> list[ModelItem]:
        """Take the next item; returns the response that ended with it, or nothing."""
        ended: list[ModelItem] = []
        last = self._last_call
        if isinstance(item, ToolCall) and last is not None and last[1].ordinal != item.ordinal:
            ended, self._items = self._items[: last[0] + 1], self._items[last[0] + 1 :]
        self._items.append(item)
        return ended

    def end(self) -> list[list[ModelItem]]:
        """The responses that are left, as the user speaks or the row is at its end."""
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
