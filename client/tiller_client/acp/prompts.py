"""Converts a client's prompt to input for the daemon. Pure.

The user's words come first, so that they may begin with a command. An editor's attachments follow
as code blocks, in which nothing is read as a command or as the name of a sub-agent.
"""

import base64
import binascii
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from tiller_client.acp.calls import fenced
from tiller_client.acp.rpc import INVALID_PARAMS, RpcFailure
from tiller_client.acp.schema import (
    AudioBlock,
    ContentBlock,
    ImageBlock,
    ResourceBlock,
    ResourceContents,
    ResourceLink,
    TextBlock,
)
from tiller_protocol.items import PDF, Image


class PromptInput(Struct, frozen=True):
    """The parts of a `user_input`."""

    text: str
    images: tuple[Image, ...]
    files: tuple[str, ...]


def read_prompt(blocks: Sequence[ContentBlock], workspace: str) -> PromptInput:
    """Convert the blocks of a prompt; raises `RpcFailure` if a block can't be used."""
    words: list[str] = []
    attached: list[str] = []
    images: list[Image] = []
    files: list[str] = []
    for block in blocks:
        match block:
            case TextBlock():
                words.append(block.text)
            case ImageBlock():
                images.append(Image(block.mime_type, _bytes_of(block.data)))
            case AudioBlock():
                raise RpcFailure(
                    INVALID_PARAMS, "audio can't be used: no model here accepts it; send text"
                )
            case ResourceLink():
                path = path_of(block.uri)
                named = _named(block.uri, workspace) or f"{block.name} ({block.uri})"
                words.append(named)
                files += [path] if path else []
            case ResourceBlock():
                words.append(_named(block.resource.uri, workspace) or block.resource.uri)
                _attach(block.resource, attached, images)
    text = "\n\n".join([_joined(words), *attached])
    return PromptInput(text, tuple(images), tuple(dict.fromkeys(files)))


def path_of(uri: str) -> str | None:
    """The path in a `file:` address; `None` for any other address."""
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" and parts.path else None


def _named(uri: str, workspace: str) -> str:
    """The path and lines that the text mentions; empty if the address is not that of a file.

    The path is relative to the workspace if the file is inside.
    """
    path, lines = path_of(uri), urlsplit(uri).fragment
    if not path:
        return ""
    if Path(path).is_relative_to(workspace):
        path = str(Path(path).relative_to(workspace))
    return f"{path}#{unquote(lines)}" if lines else path


def _joined(words: Sequence[str]) -> str:
    """The words of all blocks; a space separates blocks that have none there."""
    parts: list[str] = []
    for one in filter(None, words):
        if parts and not (parts[-1][-1].isspace() or one[0].isspace()):
            parts.append(" ")
        parts.append(one)
    return "".join(parts)


def _attach(resource: ResourceContents, attached: list[str], images: list[Image]) -> None:
    if resource.text is not None:
        attached.append(f"{resource.uri} as it is in the editor:\n{fenced(resource.text)}")
    elif resource.blob is not None and _is_shown(media_type := resource.mime_type or ""):
        images.append(Image(media_type, _bytes_of(resource.blob)))
    else:
        raise RpcFailure(
            INVALID_PARAMS,
            f"{resource.uri} can't be attached: only texts, images and PDF documents can; "
            "link to it instead",
        )


def _is_shown(media_type: str) -> bool:
    """Whether models can see files of this type."""
    return media_type == PDF or media_type.startswith("image/")


def _bytes_of(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise RpcFailure(INVALID_PARAMS, "an attachment is not valid base64") from None
