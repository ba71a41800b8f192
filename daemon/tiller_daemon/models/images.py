"""Replaces images and PDF documents by text for models that don't accept them.

Images are replaced by a note, documents by their text. Providers' model listings don't say which
input a model accepts, so the configuration does.
"""

import operator
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

import structlog
from msgspec import Struct, structs

from tiller_daemon.models.base import ModelClient, ModelError, ModelEvent, ModelRequest
from tiller_protocol.items import Image, Item, ToolCall, UserMessage

log = structlog.get_logger()


class AcceptedInput(Struct, frozen=True):
    """What a model accepts besides text."""

    images: bool = True
    documents: bool = True
    """PDF files."""
    tools_max: int | None = None
    """How many tools a request may have; None for no limit."""


refuses_images = re.compile(
    r"image input is not supported|not a multimodal model|unknown variant `?image_url"
    r"|(does|do) not support (image|vision|multimodal)|that support image input"
    r"|(images?|vision) (is|are) not (supported|enabled)|image_url is only supported"
    r"|content must be a string|expected a string",
    re.IGNORECASE,
).search
"""Whether an error says that the model accepts no images: llama.cpp, vLLM, DeepSeek, OpenRouter …
Some servers only say that they want text in place of the list with the image."""


class LimitedModel:
    """A `ModelClient` that removes input that `inner` does not accept from requests to `inner`.

    If the server then says that the model accepts no images, they are removed, too.
    """

    def __init__(self, inner: ModelClient, accepts: AcceptedInput) -> None:
        self._inner = inner
        self._accepts = accepts

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream the response to the reduced `request`; see `ModelClient.stream`."""
        request = _reduced(request, self._accepts)
        has_begun = False
        try:
            async with aclosing(self._inner.stream(request)) as events:
                async for event in events:
                    has_begun = True
                    yield event
            return
        except ModelError as error:
            without = _reduced(request, structs.replace(self._accepts, images=False))
            if has_begun or without is request or not refuses_images(error.message):
                raise
            log.info("images_refused", model=request.model, reason=error.message)
        async with aclosing(self._inner.stream(without)) as events:
            async for event in events:
                yield event


def _reduced(request: ModelRequest, accepts: AcceptedInput) -> ModelRequest:
    """Return the request without input that is not accepted; itself if there is none."""
    items = tuple(_limited(item, accepts) for item in request.items)
    is_same = all(map(operator.is_, items, request.items))
    return request if is_same else structs.replace(request, items=items)


def _attached(item: Item) -> tuple[Image, ...]:
    return item.images if isinstance(item, UserMessage | ToolCall) else ()


def _limited(item: Item, accepts: AcceptedInput) -> Item:
    left_out = [image for image in _attached(item) if not _is_accepted(image, accepts)]
    if not left_out:
        return item
    kept = tuple(image for image in _attached(item) if _is_accepted(image, accepts))
    notes = "\n\n".join(_notes(left_out))
    match item:
        case UserMessage():
            return structs.replace(item, text=f"{item.text}\n\n{notes}".lstrip("\n"), images=kept)
        case ToolCall():
            return structs.replace(item, output=f"{item.output}\n{notes}", images=kept)
        case _:
            return item


def _is_accepted(image: Image, accepts: AcceptedInput) -> bool:
    return accepts.documents if image.is_document else accepts.images


def _notes(left_out: list[Image]) -> list[str]:
    notes = [_document_note(image) for image in left_out if image.is_document]
    number = len(left_out) - len(notes)
    if number:
        some = "An image is" if number == 1 else f"{number} images are"
        notes.append(f"[{some} left out here: you can't view images.]")
    return notes


def _document_note(document: Image) -> str:
    pages = "1 page" if document.pages == 1 else f"{document.pages} pages"
    if not document.text:
        return f"[A PDF document of {pages} is left out here: it has no text and may be a scan.]"
    return f"[A PDF document of {pages}. You get only its text:]\n\n{document.text}"
