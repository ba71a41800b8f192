"""Models that take no images: they are told that there were some.

Which models these are says the configuration; a provider's list of models does not tell.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec import structs

from tiller_daemon.models.base import ModelClient, ModelEvent, ModelRequest
from tiller_protocol.items import Item, ToolCall, UserMessage


class TextOnlyModel:
    """A `ModelClient` that sends no image to `inner`."""

    def __init__(self, inner: ModelClient) -> None:
        self._inner = inner

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream the response to `request` without its images; see `ModelClient.stream`."""
        told = structs.replace(request, items=tuple(_told(item) for item in request.items))
        async with aclosing(self._inner.stream(told)) as events:
            async for event in events:
                yield event


def _told(item: Item) -> Item:
    number = _images_of(item)
    if not number:
        return item
    some = "An image is" if number == 1 else f"{number} images are"
    note = f"[{some} left out here: you can't be shown any.]"
    match item:
        case UserMessage():
            return structs.replace(item, text=f"{item.text}\n\n{note}".lstrip("\n"), images=())
        case ToolCall():
            return structs.replace(item, output=f"{item.output}\n{note}", images=())
        case _:
            return item


def _images_of(item: Item) -> int:
    return len(item.images) if isinstance(item, UserMessage | ToolCall) else 0
