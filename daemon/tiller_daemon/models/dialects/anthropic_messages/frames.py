"""The frames of a Messages stream. Pure.

Only the fields that we use are defined.
Format: https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from typing import Any

import msgspec
from msgspec import Struct


class Message(Struct):
    """The beginning of the response."""

    usage: Any = None
    """Token counts of the response so far."""


class Delta(Struct):
    """A piece of a block, or the end of the message."""

    type: str | None = None
    """Determines which other field is present; absent in a `message_delta`."""

    text: str | None = None
    """The text in a `text_delta`."""

    thinking: str | None = None
    """The thinking in a `thinking_delta`."""

    signature: str | None = None
    """The complete signature in a `signature_delta`."""

    partial_json: str | None = None
    """A piece of a call's arguments in an `input_json_delta`."""

    citation: Any = None
    """The citation in a `citations_delta`."""

    stop_reason: str | None = None
    """The reason for the end of the message, in a `message_delta`."""


class Frame(Struct):
    """One event of the stream."""

    type: str | None = None
    """Determines which other fields are present."""

    index: int = 0
    """The number of the block to which the frame belongs."""

    message: Message | None = None
    """Present in a `message_start`."""

    content_block: dict[str, Any] | None = None
    """The new block in a `content_block_start`."""

    delta: Delta | None = None
    """Present in a `content_block_delta` and a `message_delta`."""

    usage: Any = None
    """Token counts of the response so far; present in a `message_delta`."""

    error: Any = None
    """Present in an `error`; some servers send an error without a `type`."""


decode_frame = msgspec.json.Decoder(Frame).decode
decode_object = msgspec.json.Decoder(dict[str, Any]).decode
