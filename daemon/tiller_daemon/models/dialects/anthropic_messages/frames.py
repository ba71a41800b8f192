"""The frames of a Messages stream. Pure.

Only the fields that are used are defined.
Format: https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from typing import Any

import msgspec
from msgspec import Struct


class UsageFrame(Struct, gc=False):
    """Token counts of the response so far. None means unchanged."""

    input_tokens: int | None = None
    """Input tokens, without those of the next two fields."""

    cache_creation_input_tokens: int | None = None
    """Input tokens written to the cache."""

    cache_read_input_tokens: int | None = None
    """Input tokens read from the cache."""

    output_tokens: int | None = None
    """Output tokens, including thinking."""

    output_tokens_details: dict[str, Any] | None = None
    """Has `thinking_tokens`."""


class Message(Struct):
    """The beginning of the response."""

    usage: UsageFrame | None = None


class Delta(Struct):
    """A piece of a block, or the end of the message."""

    type: str | None = None
    """Says which of the other fields there is; absent in a `message_delta`."""

    text: str | None = None
    """In a `text_delta`."""

    thinking: str | None = None
    """In a `thinking_delta`."""

    signature: str | None = None
    """In a `signature_delta`; complete."""

    partial_json: str | None = None
    """In an `input_json_delta`."""

    citation: Any = None
    """In a `citations_delta`."""

    stop_reason: str | None = None
    """In a `message_delta`."""


class Frame(Struct):
    """One event of the stream."""

    type: str | None = None
    """Says which of the other fields there are."""

    index: int = 0
    """The block to which the frame belongs."""

    message: Message | None = None
    """In `message_start`."""

    content_block: dict[str, Any] | None = None
    """In `content_block_start`."""

    delta: Delta | None = None
    """In `content_block_delta` and `message_delta`."""

    usage: UsageFrame | None = None
    """In `message_delta`."""

    error: Any = None
    """In `error`; some servers send it without a type."""


decode_frame = msgspec.json.Decoder(Frame).decode
decode_object = msgspec.json.Decoder(dict[str, Any]).decode
