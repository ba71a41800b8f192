"""Converts the calls, results and citations of hosted tools for display. Pure.

The items themselves are stored in `opaque`, because they are sent back unchanged.
Format: https://platform.openai.com/docs/api-reference/responses/object
"""

import base64
from typing import Any, Literal, cast

import msgspec
from msgspec import Raw, Struct, structs

from tiller_daemon.models.base import HostedCall
from tiller_daemon.models.decoding import DECODING_FAILS
from tiller_daemon.models.dialects.hosted_output import (
    arguments_text,
    bounded,
    listed,
    passage,
)
from tiller_protocol.items import Citation, Image

Table = dict[str, Any]

KINDS = frozenset(
    {
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
    }
)
"""The types of items that are calls of hosted tools."""

IMAGE_BASE64_CHARS_MAX = 5 * 1024 * 1024
"""The largest image that is shown. Images stay in the history, so they must not be too large."""


class _Item(Struct):
    """The fields of a hosted call that are shown. They may be of any type."""

    status: Any = None
    """`failed` or `incomplete` if the call did not succeed."""
    action: Any = None
    """The action of a web search: its query or address, and its sources."""
    queries: Any = None
    """The queries of a file search."""
    results: Any = None
    """The results of a file search, if the request asked for them."""
    code: Any = None
    """The code that the code interpreter ran."""
    outputs: Any = None
    """The output of that code, if the request asked for it."""
    revised_prompt: Any = None
    """The prompt of an image generation, as the model revised it."""
    result: Any = None
    """The image of an image generation."""
    arguments: Any = None
    """The arguments of an MCP call, as JSON."""
    output: Any = None
    """The output of an MCP call."""
    error: Any = None
    """The error of an MCP call."""


_decode = msgspec.json.Decoder(_Item).decode


def finished_call(kind: str, call: HostedCall, raw: Raw) -> HostedCall:
    """Return a call with the arguments, result and images from its item, of type `kind`."""
    try:
        item = _decode(raw)
    except DECODING_FAILS:
        item = _Item()
    state: Literal["completed", "failed"] = (
        "failed" if item.status in ("failed", "incomplete") or item.error else "completed"
    )
    return structs.replace(
        call,
        state=state,
        arguments=_arguments(kind, item),
        output=_output(kind, item),
        images=_images(item),
    )


def citation_of(annotation: object) -> Citation | None:
    """Convert an annotation to the protocol's form; return None if it names no source."""
    table = _table(annotation)
    url, title = table.get("url"), table.get("title") or table.get("filename")
    if not url and not title:
        return None
    return Citation(url if isinstance(url, str) else "", passage(title))


def _arguments(kind: str, item: _Item) -> str:
    match kind:
        case "web_search_call":
            action = _table(item.action)
            return arguments_text(
                {k: action.get(k) for k in ("query", "queries", "url", "pattern")}
            )
        case "file_search_call":
            queries = [one for one in _list(item.queries) if isinstance(one, str)]
            return arguments_text({"query": " | ".join(queries)})
        case "code_interpreter_call":
            return arguments_text({"code": item.code})
        case "image_generation_call":
            return arguments_text({"prompt": item.revised_prompt})
        case _:
            return item.arguments if isinstance(item.arguments, str) else ""


def _output(kind: str, item: _Item) -> str:
    match kind:
        case "web_search_call":
            sources = map(_table, _list(_table(item.action).get("sources")))
            return listed((one.get("title"), one.get("url") or one.get("name")) for one in sources)
        case "file_search_call":
            results = map(_table, _list(item.results))
            return listed((one.get("filename"), one.get("text")) for one in results)
        case "code_interpreter_call":
            outputs = map(_table, _list(item.outputs))
            logs = (one.get("logs") or one.get("url") for one in outputs)
            return bounded("\n".join(one for one in logs if isinstance(one, str)))
        case "mcp_call":
            told = item.output or item.error
            return bounded(told if isinstance(told, str) else "")
        case _:
            return ""


def _images(item: _Item) -> tuple[Image, ...]:
    if not isinstance(item.result, str) or len(item.result) > IMAGE_BASE64_CHARS_MAX:
        return ()
    try:
        data = base64.b64decode(item.result, validate=True)
    except ValueError:
        return ()
    return (Image("image/png", data),) if data else ()


def _table(value: object) -> Table:
    return cast("Table", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
