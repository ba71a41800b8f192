"""Turns a server's answer to a call into a tool result: text, images, notes about the rest."""

import base64
import binascii
from collections.abc import Sequence
from typing import cast

import mcp_types as types
import msgspec

from tiller_daemon.files.images import ImageProblem, fit_image
from tiller_daemon.tools.base import ToolEnvironment, ToolResult
from tiller_daemon.tools.spilling import truncate_to_fit
from tiller_protocol.codec import INPUT_BYTES_MAX
from tiller_protocol.items import Image

IMAGES_MAX = 20
"""Maximum number of images per result; beyond it, Anthropic accepts only smaller images."""

IMAGES_BYTES_MAX = INPUT_BYTES_MAX
"""Maximum size of all images in a result. The call with its result must fit into a message."""


async def make_result(answer: types.CallToolResult, environment: ToolEnvironment) -> ToolResult:
    """Return the result of a call. A text too long for a model is stored whole in a file."""
    texts, images = await _read_blocks(answer.content)
    parts = [text for text in texts if text]
    data = answer.structured_content
    if data is not None and not _says(parts, data):
        parts.append(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())
    output, spill_path = await truncate_to_fit("\n".join(parts), environment)
    return ToolResult(
        output or ("(An image.)" if images else "(No output.)"),
        failed=answer.is_error,
        images=tuple(images),
        spill_path=spill_path,
    )


def _says(texts: Sequence[str], data: object) -> bool:
    """Whether the texts repeat the data, as servers should do for older clients.

    Servers put a value that is no object under a name, and each element of a list in a text.
    """
    forms = [data]
    if isinstance(data, dict) and len(known := cast("dict[str, object]", data)) == 1:
        forms += known.values()
    each, whole = [_value_of(text) for text in texts], "\n".join(texts)
    return any(form in (*each, each, whole, _value_of(whole)) for form in forms)


def _value_of(text: str) -> object:
    """Return the JSON value in a text, or the text itself."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


async def make_content(blocks: Sequence[types.ContentBlock]) -> ToolResult:
    """Return content that a user requested from a server: the text of a prompt, or a resource."""
    texts, images = await _read_blocks(blocks)
    return ToolResult("\n\n".join(filter(None, texts)), images=tuple(images))


async def _read_blocks(blocks: Sequence[types.ContentBlock]) -> tuple[list[str], list[Image]]:
    texts: list[str] = []
    images: list[Image] = []
    for block in blocks:
        match block:
            case types.TextContent():
                texts.append(block.text)
            case types.ImageContent():
                texts.append(await _take_image(block.data, images))
            case types.EmbeddedResource():
                texts.append(await _take_resource(block.resource, images))
            case types.ResourceLink():
                texts.append(_link(block))
            case types.AudioContent():
                texts.append(f"[audio ({block.mime_type}) that can't be shown]")
    return texts, images


async def _take_image(data: str, images: list[Image]) -> str:
    """Add an image to `images`, or return a note for the model if the image can't be shown."""
    if len(images) >= IMAGES_MAX:
        return f"[One more image is not shown: the limit is {IMAGES_MAX}.]"
    try:
        fitted = await fit_image(base64.b64decode(data, validate=True))
    except binascii.Error:
        return "[An image can't be shown. It is not valid base64.]"
    except ImageProblem as problem:
        return f"[An image can't be shown. {problem}]"
    if sum(len(one.data) for one in (*images, fitted.image)) > IMAGES_BYTES_MAX:
        return f"[One more image is not shown: all images may have {IMAGES_BYTES_MAX:,} bytes.]"
    images.append(fitted.image)
    return ""


async def _take_resource(
    resource: types.TextResourceContents | types.BlobResourceContents, images: list[Image]
) -> str:
    if isinstance(resource, types.TextResourceContents):
        return f"{resource.uri}:\n{resource.text}"
    kind = resource.mime_type or "unknown"
    if kind.startswith("image/"):
        return f"{resource.uri}: {await _take_image(resource.blob, images) or 'an image'}"
    size_bytes = len(resource.blob) * 3 // 4
    return f"[{resource.uri}: {size_bytes} bytes of type {kind} that can't be shown]"


def _link(link: types.ResourceLink) -> str:
    about = ", ".join(filter(None, (link.title or link.name, link.mime_type, link.description)))
    return f"{link.uri} ({about})" if about else str(link.uri)
