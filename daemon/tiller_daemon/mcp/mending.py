"""Mends odd answers of servers before the MCP package validates them, as it refuses them whole.

Only what we read is kept of a tool. Nothing here fails: what can't be mended is left as it is, or
left out with a line in the log.
"""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, cast

import mcp_types as types
import structlog
from mcp.shared.message import SessionMessage
from pydantic import TypeAdapter, ValidationError

log = structlog.get_logger()

_UNREAD: Final = ("_meta", "annotations", "icons")
"""Fields of content that we do not read."""

_block: Final = TypeAdapter[types.ContentBlock](types.ContentBlock)


class MendedStreams:
    """Streams of a transport, whose answers are mended as they are read."""

    def __init__(self, server: str, streams: Any) -> None:  # noqa: ANN401 - the package's type
        self._server = server
        self._streams = streams
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> tuple[Any, Any]:
        reads, writes = await self._stack.enter_async_context(self._streams)
        return _MendedReads(self._server, reads), writes

    async def __aexit__(self, *exc: Any) -> bool | None:  # noqa: ANN401 - as in the base class
        return await self._stack.__aexit__(*exc)


class _MendedReads:
    """A stream of messages; see the package's `ReadStream`."""

    def __init__(self, server: str, reads: Any) -> None:  # noqa: ANN401 - the package's type
        self._server = server
        self._reads = reads

    @property
    def last_context(self) -> Any:  # noqa: ANN401 - the package's type
        """The context of the sender of the last message, if the transport knows it."""
        return getattr(self._reads, "last_context", None)

    async def receive(self) -> Any:  # noqa: ANN401 - the package's type
        """Return the next message."""
        return self._mended(await self._reads.receive())

    async def aclose(self) -> None:
        """Close the stream."""
        await self._reads.aclose()

    def __aiter__(self) -> "_MendedReads":
        return self

    async def __anext__(self) -> Any:  # noqa: ANN401 - the package's type
        return self._mended(await anext(self._reads))

    async def __aenter__(self) -> "_MendedReads":
        await self._reads.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> Any:  # noqa: ANN401 - as in the base class
        return await self._reads.__aexit__(*exc)

    def _mended(self, item: object) -> object:
        if isinstance(item, SessionMessage) and isinstance(item.message, types.JSONRPCResponse):
            mend_result(self._server, item.message.result)
        return item


def mend_result(server: str, result: dict[str, Any]) -> None:
    """Mend the list of tools, or the content of a call's result, in place."""
    if isinstance(tools := result.get("tools"), list):
        mended = [_mended_tool(tool) for tool in cast("list[object]", tools)]
        result["tools"] = [tool for tool in mended if tool]
        if len(result["tools"]) < len(mended):
            log.warning("mcp_tool_left_out", server=server, reason="it has no name")
    if isinstance(content := result.get("content"), list):
        result["content"] = [_mended_block(block) for block in cast("list[object]", content)]
    structured = result.get("structuredContent")
    if structured is not None and not isinstance(structured, dict):
        result["structuredContent"] = {"result": structured}


def _mended_tool(listed: object) -> dict[str, Any] | None:
    """Return the fields of a tool that we read, as far as they are valid; None without a name."""
    tool = _object(listed)
    if not isinstance(tool.get("name"), str):
        return None
    mended = {key: tool[key] for key in ("name", "title", "description") if _is_text(tool.get(key))}
    hints, execution = _object(tool.get("annotations")), _object(tool.get("execution"))
    mended["annotations"] = {
        key: hints[key]
        for key, kind in (("title", str), ("readOnlyHint", bool))
        if isinstance(hints.get(key), kind)
    }
    # With the tool's `outputSchema`, the package would validate results, however slowly.
    if execution.get("taskSupport") == "required":
        mended["execution"] = {"taskSupport": "required"}
    return {**mended, "inputSchema": _mended_schema(_object(tool.get("inputSchema")))}


def _mended_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema as the MCP package requires it: of the type `object`."""
    kind, required = schema.get("type", "object"), schema.get("required")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        # No object matches this, which `schemas` reports.
        return {"type": "object", "allOf": [schema]}
    properties = _object(schema.get("properties"))
    mended: dict[str, Any] = {
        **schema,
        "type": "object",
        # Servers may omit `properties` if a tool has no arguments; not all providers accept that.
        "properties": {k: v for k, v in properties.items() if isinstance(v, dict | bool)},
    }
    if not (isinstance(required, list) and all(map(_is_text, cast("list[object]", required)))):
        mended.pop("required", None)
    if not _is_text(schema.get("$schema")):
        mended.pop("$schema", None)
    return mended


def _mended_block(block: object) -> object:
    """Return a block of content, or a text that names it if it can't be read."""
    fields = {key: value for key, value in _object(block).items() if key not in _UNREAD}
    try:
        _block.validate_python(fields, by_name=False)
    except ValidationError:
        kind = str(fields.get("type"))
        return {"type": "text", "text": f"[content of the type {kind!r} that can't be shown]"}
    return fields


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _is_text(value: object) -> bool:
    return isinstance(value, str)
