"""Walks through a history for an adapter that converts it to a provider's format. Pure.

What is a user message for the model, and which items are left out, is the same for every format.
"""

from abc import ABC, abstractmethod
from typing import assert_never

from tiller_protocol.items import (
    AssistantMessage,
    Compaction,
    Image,
    Item,
    Notice,
    Patch,
    Reasoning,
    ToolCall,
    UserMessage,
)

ModelItem = AssistantMessage | Reasoning | ToolCall


class HistoryBuilder(ABC):
    """Converts a history to a provider's format, item by item."""

    def add(self, item: Item) -> None:
        """Append the next item of the history."""
        match item:
            case UserMessage():
                self._add_user_message(_user_text(item), item.images)
            case Notice():
                self._add_user_message(f'<notice code="{item.code}">\n{item.text}\n</notice>')
            case Compaction():
                self._add_user_message(f"<summary>\n{item.summary}\n</summary>")
            case AssistantMessage() | Reasoning():
                if item.state != "discarded":
                    self._add_model_item(item)
            case ToolCall():
                if not item.discarded:
                    self._add_model_item(item)
            case Patch():
                pass
            case _:
                assert_never(item)

    @abstractmethod
    def _add_user_message(self, text: str, images: tuple[Image, ...] = ()) -> None:
        """Append a message from the user or the daemon; its text may be empty."""

    @abstractmethod
    def _add_model_item(self, item: ModelItem) -> None:
        """Append an item of the model, which is not discarded."""


def _user_text(item: UserMessage) -> str:
    """Return the text of a user message, and the names of its files."""
    if not item.files:
        return item.text
    names = "\n".join(f"- {name}" for name in item.files)
    return f"{item.text}\n\nFiles to look at:\n{names}"
