"""Frames of a Chat Completions stream as they are sent: what of them is read, and what they mean.

Pure. Everything may be missing: compatible servers leave out what OpenAI sends, and add their own.
Format: https://platform.openai.com/docs/api-reference/chat-streaming
"""

from typing import Any, cast

import msgspec
from msgspec import Struct

from tiller_daemon.models.base import ModelErrorKind
from tiller_protocol.events import FinishReason
from tiller_protocol.items import Usage

REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_calls": "tool_calls",
    "tool_call": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "refusal": "content_filter",
    "safety": "content_filter",
    "recitation": "content_filter",
    "blocklist": "content_filter",
    "prohibited_content": "content_filter",
    "sensitive": "content_filter",
}
"""Finish reasons in lower case: OpenAI's, Mistral's (`model_length`), Gemini's, z.ai's."""

FAILED_REASONS: dict[str, ModelErrorKind] = {
    "error": "server",
    "abort": "server",
    "network_error": "server",
    "malformed_function_call": "server",
    "insufficient_system_resource": "overloaded",
}
"""Finish reasons of an answer that is none: OpenRouter's, vLLM's, z.ai's, Gemini's, DeepSeek's."""


class Function(Struct, gc=False):
    """What is called, and a piece of its arguments or, of some servers, all of them."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class CallDelta(Struct):
    """A piece of a call; `extra_content` holds what Gemini wants back of it."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None
    extra_content: Any = None


class Delta(Struct):
    """A piece of the message. Mistral sends thinking as a part of `content`."""

    content: str | list[Any] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    extra_content: Any = None
    tool_calls: list[CallDelta] | None = None


class _InputDetails(Struct, gc=False):
    cached_tokens: int | None = None


class _OutputDetails(Struct, gc=False):
    reasoning_tokens: int | None = None


class UsageFrame(Struct):
    """The tokens of this response."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_cache_hit_tokens: int | None = None
    prompt_tokens_details: _InputDetails | None = None
    completion_tokens_details: _OutputDetails | None = None


class Choice(Struct):
    """One answer of several; only the first is asked for. Moonshot counts tokens in it."""

    index: int | None = None
    delta: Delta | None = None
    finish_reason: str | None = None
    usage: UsageFrame | None = None
    error: Any = None


class Frame(Struct):
    """One event of the stream."""

    choices: list[Choice] | None = None
    usage: UsageFrame | None = None
    error: Any = None


class _Name(Struct):
    object: str | None = None


decode_frame = msgspec.json.Decoder(Frame).decode
_decode_name = msgspec.json.Decoder(_Name).decode


def is_named_error(data: bytes) -> bool:
    """Whether a frame without choices is an error that says so by its name, as vLLM's were."""
    try:
        return _decode_name(data).object == "error"
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False


def usage_of(frame: UsageFrame) -> Usage:
    """The tokens that a frame counts; DeepSeek says in its own way what came from its cache."""
    cached = frame.prompt_tokens_details
    reasoning = frame.completion_tokens_details
    return Usage(
        frame.prompt_tokens or 0,
        (cached.cached_tokens if cached else None) or frame.prompt_cache_hit_tokens or 0,
        frame.completion_tokens or 0,
        (reasoning.reasoning_tokens if reasoning else 0) or 0,
    )


def parts_of(content: list[Any]) -> tuple[str, str]:
    """What a piece of content in parts says and what it thinks."""
    said, thought = "", ""
    for part in cast("list[object]", content):
        match part:
            case {"type": "text"}:
                said += _text_of(part)
            case {"type": "thinking", "thinking": str(text)}:
                thought += text
            case {"type": "thinking", "thinking": list()}:
                inner = cast("dict[str, list[object]]", part)["thinking"]
                thought += "".join(map(_text_of, inner))
            case _:
                pass
    return said, thought


def _text_of(part: object) -> str:
    match part:
        case {"text": str(text)}:
            return text
        case _:
            return ""
