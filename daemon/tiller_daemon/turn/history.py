"""History as the turn sees it: items in order, and what of them goes into a model request."""

from collections.abc import Iterable

from msgspec import structs

from tiller_protocol.items import (
    AssistantMessage,
    Compaction,
    Item,
    Patch,
    Reasoning,
    ToolCall,
)

ABORTED_OUTPUT = "The call was aborted before it had a result."


class History:
    """Items in the order in which they started; a tool call is replaced when it completes."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = list(items)

    @property
    def items(self) -> tuple[Item, ...]:
        """All items, oldest first."""
        return tuple(self._items)

    def add(self, *items: Item) -> None:
        """Append items."""
        self._items.extend(items)

    def replace(self, item: Item) -> None:
        """Put `item` where the one with the same id is."""
        for index in range(len(self._items) - 1, -1, -1):
            if self._items[index].id == item.id:
                self._items[index] = item
                return
        raise KeyError(f"no item {item.id} in history")


def for_request(items: Iterable[Item]) -> tuple[Item, ...]:
    """What a model may be sent: nothing discarded or replaced, and a result for every call."""
    kept: list[Item] = []
    for item in items:
        match item:
            case AssistantMessage() | Reasoning():
                if item.state != "discarded" and (item.text or isinstance(item, Reasoning)):
                    kept.append(item)
            case ToolCall():
                if not item.discarded:
                    kept.append(_with_result(item))
            case Compaction():
                kept = [item]
            case Patch():
                pass
            case _:
                kept.append(item)
    return tuple(kept)


def _with_result(call: ToolCall) -> ToolCall:
    if call.state in ("completed", "error"):
        return call
    return structs.replace(
        call, state="error", error_kind="aborted", output=call.output or ABORTED_OUTPUT
    )
