"""The frames of a Chat Completions stream, and the meaning of their values. Pure.

Every field is optional, because compatible servers omit some of OpenAI's fields and add their own.
Format: https://platform.openai.com/docs/api-reference/chat-streaming
"""

from collections.abc import Iterator
from typing import Any, cast

import msgspec
from msgspec import Struct

from tiller_daemon.models.base import ModelErrorKind
from tiller_daemon.models.dialects.counts import token_count
from tiller_daemon.models.dialects.hosted_output import passage
from tiller_protocol.events import FinishReason
from tiller_protocol.items import Citation, Usage

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
"""Finish reasons in lower case, from OpenAI, Mistral (`model_length`), Gemini and z.ai."""

FAILED_REASONS: dict[str, ModelErrorKind] = {
    "error": "server",
    "abort": "server",
    "network_error": "server",
    "malformed_function_call": "server",
    "insufficient_system_resource": "overloaded",
}
"""Finish reasons of a failed response, from OpenRouter, vLLM, z.ai, Gemini and DeepSeek."""


class Function(Struct, gc=False):
    """A function's name and a piece of its arguments. Some servers send arguments as an object."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class CallDelta(Struct):
    """A piece of a call. `extra_content` is data that Gemini wants back with the call."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None
    extra_content: Any = None


class Delta(Struct):
    """A piece of the message."""

    content: str | list[Any] | None = None
    """Text, or a list of parts, since Mistral sends thinking as a part."""

    refusal: str | None = None
    """Text in place of `content`, if the model refuses to answer."""

    reasoning_content: str | None = None
    """Thinking, under the name that DeepSeek, Moonshot and others use."""

    reasoning: str | None = None
    """Thinking, under the name that OpenRouter, Groq and others use."""

    reasoning_details: list[dict[str, Any]] | None = None
    """OpenRouter's form of thinking, which must be sent back."""

    extra_content: Any = None
    """Data that Gemini wants back with the message."""

    tool_calls: list[CallDelta] | None = None
    """Pieces of calls."""

    annotations: Any = None
    """Sources that a hosted search has found."""


class Choice(Struct):
    """One of several alternative answers. Only one is requested."""

    index: int | None = None
    """The number of the answer, from 0."""

    delta: Delta | None = None
    """The next piece of the message."""

    finish_reason: str | None = None
    """Present when the answer has ended."""

    usage: Any = None
    """Token counts, in the place where Moonshot sends them."""

    error: Any = None
    """An error in this answer, sent by gateways."""


class Frame(Struct):
    """One event of the stream."""

    choices: list[Choice] | None = None
    """The next pieces of the answers."""

    usage: Any = None
    """Token counts."""

    error: Any = None
    """An error of the whole response."""

    object: Any = None
    """Has the value `error` in the errors of older versions of vLLM, which have no choices."""


decode_frame = msgspec.json.Decoder(Frame).decode


def usage_of(usage: object) -> Usage:
    """Convert token counts. Output includes thinking; DeepSeek names cached input differently."""
    cached = token_count(usage, "prompt_tokens_details", "cached_tokens")
    return Usage(
        token_count(usage, "prompt_tokens") or 0,
        cached or token_count(usage, "prompt_cache_hit_tokens") or 0,
        token_count(usage, "completion_tokens") or 0,
        token_count(usage, "completion_tokens_details", "reasoning_tokens") or 0,
    )


def parts_of(content: list[Any]) -> tuple[str, str]:
    """Return the text and the thinking in a piece of content that has parts."""
    text, thought = "", ""
    for part in cast("list[object]", content):
        match part:
            case {"type": "text"}:
                text += _text_of(part)
            case {"type": "thinking", "thinking": str(thinking)}:
                thought += thinking
            case {"type": "thinking", "thinking": list()}:
                inner = cast("dict[str, list[object]]", part)["thinking"]
                thought += "".join(map(_text_of, inner))
            case _:
                pass
    return text, thought


def citations_of(annotations: object) -> Iterator[Citation]:
    """Yield the sources that annotations name."""
    for annotation in cast("list[object]", annotations) if isinstance(annotations, list) else ():
        match annotation:
            case {"url_citation": {"url": str(url)}}:
                found = cast("dict[str, dict[str, object]]", annotation)["url_citation"]
                yield Citation(url, passage(found.get("title")), passage(found.get("content")))
            case _:
                pass


def _text_of(part: object) -> str:
    match part:
        case {"text": str(text)}:
            return text
        case _:
            return ""
