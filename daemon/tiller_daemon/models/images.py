"""Replaces images by a note for models that accept text only.

The configuration names these models, because providers' model listings do not tell.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec import structs

from tiller_daemon.models.base import ModelClient, ModelEvent, ModelRequest
from tiller_protocol.items import Item, ToolCall, UserMessage


class TextOnlyModel:
    """A `ModelClient` that removes images from requests to `inner`."""

    def __init__(self, inner: ModelClient) -> None:
        self._inner = inner

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream the response to `request` without its images; see `ModelClient.stream`."""
        items = tuple(_without_images(item) for item in request.items)
        text_only = structs.replace(request, items=items)
        async with aclosing(self._inner.stream(text_only)) as events:
            async for event in events:
                yield event


def _without_images(item: Item) -> Item:
    number = _image_count(item)
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


def _image_count(item: Item) -> int:
    return len(item.images) if isinstance(item, UserMessage | ToolCall) else 0
