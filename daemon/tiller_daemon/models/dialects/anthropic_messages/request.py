"""Builds the body of a Messages request from a `ModelRequest`. Pure.

`history` builds the messages; everything else in the body is here.
Format: https://platform.claude.com/docs/en/api/messages
"""

from itertools import islice
from typing import Any, NamedTuple, cast

import msgspec

from tiller_daemon.config.hosted_tools import HOSTED_TOOLS
from tiller_daemon.config.request_options import RESERVED, Options, merge_options
from tiller_daemon.models.base import ModelRequest, ToolSpec
from tiller_daemon.models.dialects.anthropic_messages.history import EncodedMessage, MessageHistory
from tiller_daemon.models.dialects.anthropic_messages.opaque_blocks import (
    API,
    THINKING,
    Block,
    origin_of,
)
from tiller_daemon.models.dialects.anthropic_messages.schema import structured_output
from tiller_daemon.models.dialects.anthropic_messages.thinking import (
    EFFORTS,
    NO_THINKING,
    Thinking,
    ThinkingStyle,
    accepts_earlier_thinking,
    thinking_field,
    thinking_style,
)
from tiller_daemon.models.dialects.rendering import usable_name
from tiller_daemon.models.history_cache import HistoryCache
from tiller_protocol.items import ToolCall

MAX_TOKENS: dict[ThinkingStyle, int] = {"adaptive": 64_000, "budget": 32_000, "foreign": 32_000}
"""`max_tokens` if no limit is configured, because the API requires a limit. Every Claude of the
style supports this number (https://platform.claude.com/docs/en/about-claude/models/overview)."""

CACHE_POINT = {"type": "ephemeral"}
CACHED_ENDS = 2
"""How many user messages end with a cache point: the last message, and the last message of the
previous request, because the API looks back only a few blocks. The tools and the system prompt have
one cache point each; the API refuses more than four."""

TYPES = HOSTED_TOOLS["anthropic_messages"]

NOT_OFFERED = "This tool can't be called any more."
"""The description of tools that are no longer offered. The API requires definitions for all calls
in the history."""


class BuiltRequest(NamedTuple):
    """A body, and the digest of its content, which is stored with the thinking in the response."""

    body: bytes
    prefix: str


def build_body(request: ModelRequest, base_url: str = "") -> BuiltRequest:
    """Return the body that requests a streamed response from the server at `base_url`."""
    style = thinking_style(request.model)
    options = {name: value for name, value in request.options.items() if name not in RESERVED}
    max_tokens = options.get("max_tokens") or request.max_output_tokens or MAX_TOKENS[style]
    thinking = _thinking(request, options, style, max_tokens)
    tools = _tools(request)
    system = [{"type": "text", "text": request.system}] if request.system.strip() else []
    fixed = msgspec.json.encode([tools, system])
    cache = request.history_cache or HistoryCache()
    history = _build_history(request, cache, base_url, fixed, thinking, style)
    # Whether the model may think depends on the messages, which depend on whether it does.
    if style == "budget" and thinking is not None and not _may_think(history.messages):
        thinking = None
        history = _build_history(request, cache, base_url, fixed, thinking, style)
    messages = history.messages
    # Other requests are not continued, so writing to the cache would only cost money.
    if request.purpose == "turn":
        _set_cache_points(tools, system, messages)
    fields: dict[str, Any] = {
        "model": request.model,
        "max_tokens": max_tokens,
        "stream": True,
        "tools": tools,
        "tool_choice": {"type": "none"} if tools and not _may_call(request) else None,
        "system": system,
        "messages": cache.encode(API, messages, lambda message: message.encoded),
        "thinking": thinking,
        "output_config": _output_config(request, options, style),
    }
    options.pop("thinking", None)
    body = options | {name: value for name, value in fields.items() if value}
    return BuiltRequest(msgspec.json.encode(body), history.prefix)


def _build_history(
    request: ModelRequest,
    cache: HistoryCache,
    base_url: str,
    fixed: bytes,
    thinking: Thinking | None,
    style: ThinkingStyle,
) -> MessageHistory:
    """Return the messages of the request; `fixed` is the content before the messages."""
    includes_thinking = accepts_earlier_thinking(thinking, style)

    def create() -> MessageHistory:
        origin = origin_of(base_url, request.model)
        return MessageHistory(
            fixed, origin, includes_thinking=includes_thinking, is_prefix_bound=style == "adaptive"
        )

    key = (API, fixed, base_url, request.model, includes_thinking)
    return cache.builder(key, request.items, create).finish()


def _tools(request: ModelRequest) -> list[Block]:
    hosted: list[Block] = [
        {"type": TYPES.get(name), "name": name} | fields
        for name, fields in request.hosted_tools.items()
    ]
    if request.tools:
        return [*hosted, *(_tool(spec) for spec in request.tools)]
    return [*hosted, *(_tool(ToolSpec(name, NOT_OFFERED, {})) for name in _called(request))]


def _called(request: ModelRequest) -> list[str]:
    """Return the tools with calls in the history."""
    called = {usable_name(item.name) for item in request.items if isinstance(item, ToolCall)}
    return sorted(called)


def _may_call(request: ModelRequest) -> bool:
    """Whether tools are offered, rather than only defined for the calls in the history."""
    if request.tools:
        return True
    return request.purpose == "turn" and bool(request.hosted_tools) and not _called(request)


def _tool(spec: ToolSpec) -> Block:
    return {
        "name": spec.name,
        "description": spec.description,
        "input_schema": spec.parameters | {"type": "object"},
    }


def _thinking(
    request: ModelRequest, options: Options, style: ThinkingStyle, max_tokens: object
) -> Any:  # noqa: ANN401 - an option may be anything
    """Return the field `thinking`: by the variant, else from the options, else a default."""
    limit = max_tokens if isinstance(max_tokens, int) else MAX_TOKENS[style]
    if request.variant in EFFORTS or request.variant == NO_THINKING:
        return thinking_field(request.variant, style, limit)
    if "thinking" in options or request.purpose != "turn":
        return options.get("thinking")
    return thinking_field("", style, limit)


def _output_config(request: ModelRequest, options: Options, style: ThinkingStyle) -> Options:
    config: Options = {}
    if style == "adaptive" and request.purpose == "title":
        config["effort"] = "low"
    if request.output_schema is not None:
        form = structured_output(request.output_schema)
        config |= {"format": {"type": "json_schema", "schema": form}} if form else {}
    own = options.get("output_config")
    config = merge_options(config, cast("Options", own)) if isinstance(own, dict) else config
    if style == "adaptive" and request.variant in EFFORTS:
        config["effort"] = EFFORTS[request.variant]
    return config


def _may_think(messages: list[EncodedMessage]) -> bool:
    """Whether a Claude with a budget may think.

    If the current series of calls began without thinking, the API refuses thinking within it.
    """
    first: EncodedMessage | None = None
    for message in reversed(messages):
        if message.role == "assistant":
            first = message
        elif message.blocks[0]["type"] != "tool_result":
            break
    return first is None or first.blocks[0]["type"] in THINKING


def _set_cache_points(
    tools: list[Block], system: list[Block], messages: list[EncodedMessage]
) -> None:
    for blocks in (tools, system):
        if blocks:
            blocks[-1]["cache_control"] = CACHE_POINT
    # Search from the end, because a long history has many user messages.
    ends = (n for n in range(len(messages) - 1, -1, -1) if messages[n].role == "user")
    for number in islice(ends, CACHED_ENDS):
        messages[number] = messages[number].with_fields(cache_control=CACHE_POINT)
