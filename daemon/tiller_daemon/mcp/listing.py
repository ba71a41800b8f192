"""Lists the tools and prompts of a server that can be offered. Imports the MCP package."""

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import mcp_types as types
import msgspec
import structlog
import trio
from mcp.client import Client

from tiller_daemon.mcp.base import ListedPrompt, ListedTool, PromptParameter
from tiller_daemon.mcp.prompts import is_usable
from tiller_daemon.turn.output_schema import schema_problem

log = structlog.get_logger()

TOOLS_MAX: Final = 256
"""Maximum number of tools offered per server; even fewer confuse models."""

PROMPTS_MAX: Final = 256
"""Maximum number of prompts listed per server."""

PAGES_MAX: Final = 64
"""Maximum number of pages read per list, so that an endless list does not block a server."""

DESCRIPTION_CHARS_MAX: Final = 4_000
"""Longest description of a tool; it is part of every request."""

SCHEMAS_BYTES_MAX: Final = 512 * 1024
"""Maximum total size of a server's schemas, as JSON. Schemas are part of every request, too, and
this size fills the largest context windows."""


async def list_tools(server: str, client: Client) -> tuple[ListedTool, ...]:
    """Return the tools that can be offered, among the first `TOOLS_MAX` that the server lists."""
    tools: list[types.Tool] = []
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            # With a schema, the package would validate results in the event loop, however slowly.
            (tool.output_schema or {}).clear()
        tools += page.tools
        cursor = page.next_cursor
        if not cursor or len(tools) > TOOLS_MAX:
            break
    if cursor or len(tools) > TOOLS_MAX:
        log.warning("mcp_tools_left_out", server=server, offered=TOOLS_MAX)
    # Checking a schema takes milliseconds, or far longer for a malicious one.
    check = partial(_offered_tools, server, tools[:TOOLS_MAX])
    return await trio.to_thread.run_sync(check, abandon_on_cancel=True)


async def list_prompts(client: Client) -> tuple[ListedPrompt, ...]:
    """Return the server's usable prompts, at most `PROMPTS_MAX`; none if it has no prompts."""
    if client.server_capabilities.prompts is None:
        return ()
    prompts: list[ListedPrompt] = []
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = await client.list_prompts(cursor=cursor)
        prompts += filter(is_usable, map(_prompt, page.prompts))
        cursor = page.next_cursor
        if not cursor or len(prompts) >= PROMPTS_MAX:
            break
    return tuple(prompts[:PROMPTS_MAX])


def _prompt(prompt: types.Prompt) -> ListedPrompt:
    parameters = tuple(
        PromptParameter(one.name, bool(one.required)) for one in prompt.arguments or ()
    )
    return ListedPrompt(prompt.name, prompt.description or prompt.title or "", parameters)


def _offered_tools(server: str, tools: Iterable[types.Tool]) -> tuple[ListedTool, ...]:
    left = SCHEMAS_BYTES_MAX
    offered: list[ListedTool] = []
    for tool in tools:
        left -= len(msgspec.json.encode(tool.input_schema))
        if left < 0:
            log.warning("mcp_schemas_left_out", server=server, offered=len(offered))
            break
        if one := _offered_tool(server, tool):
            offered.append(one)
    return tuple(offered)


def _offered_tool(server: str, tool: types.Tool) -> ListedTool | None:
    """Return a tool to offer; `None` if it requires task execution or has an invalid schema."""
    if tool.execution and tool.execution.task_support == "required":
        return None
    # Servers may omit `properties` if a tool has no arguments; not all providers accept that.
    schema: dict[str, Any] = {"properties": {}, **tool.input_schema, "type": "object"}
    if problem := schema_problem(schema):
        log.warning("mcp_tool_left_out", server=server, tool=tool.name, reason=problem)
        return None
    hints = tool.annotations
    about = tool.description or tool.title or (hints and hints.title) or tool.name
    if len(about) > DESCRIPTION_CHARS_MAX:
        about = f"{about[: DESCRIPTION_CHARS_MAX - 1]}…"
    return ListedTool(tool.name, about, schema, bool(hints and hints.read_only_hint))
