"""Converts the calls, results and citations of server tools for display. Pure.

`opaque_blocks` stores the blocks themselves, because the API wants them back unchanged.
Format: https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool
"""

from collections.abc import Mapping
from typing import Any, cast

from msgspec import structs

from tiller_daemon.models.base import HostedCall
from tiller_daemon.models.dialects.anthropic_messages.opaque_blocks import Block, is_server_use
from tiller_daemon.models.dialects.hosted_output import (
    arguments_text,
    bounded,
    listed,
    passage,
)
from tiller_protocol.items import Citation

RESULT_SUFFIX = "_tool_result"


def started_call(block: Block) -> HostedCall | None:
    """Return the call that a block starts; None if the block starts no call."""
    if not is_server_use(block) or not _text(block, "id"):
        return None
    name = _text(block, "name") or str(block["type"])
    return HostedCall(
        _text(block, "id"), name, "running", arguments_text(_table(block.get("input")))
    )


def finished_call(block: Block, calls: Mapping[str, HostedCall]) -> HostedCall | None:
    """Return the call whose result is in a block; None if the block holds no result.

    If the API had paused, the block that started the call is in an earlier response.
    """
    call_id = _text(block, "tool_use_id")
    if not call_id:
        return None
    name = _text(block, "type").removesuffix(RESULT_SUFFIX)
    call = calls.get(call_id) or HostedCall(call_id, name, "running")
    content: Any = block.get("content")
    if error := _text(_table(content), "error_code"):
        return structs.replace(call, state="failed", output=f"error: {error}")
    return structs.replace(call, state="completed", output=_output(content))


def cited(citation: object) -> Citation:
    """Convert a citation to the protocol's form."""
    table = _table(citation)
    return Citation(
        _text(table, "url") or _text(table, "source"),
        passage(table.get("title") or table.get("document_title")),
        passage(table.get("cited_text")),
    )


def sendable_citation(citation: object) -> object:
    """Return a citation without `file_id`, a field that the API sends but does not accept."""
    table = _table(citation)
    return {k: v for k, v in table.items() if k != "file_id"} if table else citation


def _output(content: Any) -> str:  # noqa: ANN401 - each tool has its own form
    match content:
        case list():
            entries = cast("list[object]", content)
            tables = [cast("Block", one) for one in entries if isinstance(one, dict)]
            return listed((one.get("title"), one.get("url")) for one in tables)
        case {"url": url, "content": dict()}:
            document = cast("dict[str, Block]", content)["content"]
            return listed([(document.get("title"), cast("object", url))])
        case dict():
            table = cast("Block", content)
            return bounded("\n".join(filter(None, (_text(table, k) for k in ("stdout", "stderr")))))
        case _:
            return ""


def _table(value: object) -> Block:
    return cast("Block", value) if isinstance(value, dict) else {}


def _text(table: Mapping[str, Any], name: str) -> str:
    value = table.get(name)
    return value if isinstance(value, str) else ""
