"""Splits a sequence of model items into responses. Pure.

Only calls record to which response they belong. Text and thinking belong to the response of the
next call. So items after the last call of a response belong to the next response.
"""

from tiller_daemon.models.history_builder import ModelItem
from tiller_protocol.items import ToolCall


class ResponseSplitter:
    """Collects the model's items since the last user message, until their response is complete."""

    def __init__(self) -> None:
        self._ordinal = -1
        """The ordinal of the last call."""
        self._response: list[ModelItem] = []
        """The current response up to its last call so far."""
        self._after: list[ModelItem] = []
        """The items after that call."""

    def copy(self) -> "ResponseSplitter":
        """Return an independent copy."""
        other = ResponseSplitter()
        other._ordinal = self._ordinal
        other._response, other._after = self._response.copy(), self._after.copy()
        return other

    def add(self, item: ModelItem) -> list[ModelItem]:
        """Append an item; return the previous response if the item completes it, else nothing."""
        self._after.append(item)
        if not isinstance(item, ToolCall):
            return []
        ended: list[ModelItem] = []
        if self._ordinal != item.ordinal:
            ended, self._response, self._ordinal = self._response, [], item.ordinal
        self._response += self._after
        self._after = []
        return ended

    def end(self) -> list[list[ModelItem]]:
        """Return the remaining responses, at a user message or at the end of the history."""
        rest = [self._response, self._after]
        self._response, self._after = [], []
        return [response for response in rest if response]
