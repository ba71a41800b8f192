"""What a server lists: the tools and prompts that can be offered. Imports the package."""

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
"""Maximum number of tools offered of one server; models lose track with fewer."""

PROMPTS_MAX: Final = 256
"""Maximum number of prompts listed of one server."""

PAGES_MAX: Final = 64
"""Maximum number of pages read of a list, so that an endless one does not block a server."""

DESCRIPTION_CHARS_MAX: Final = 4_000
"""Longest description of a tool; it is part of every request."""

SCHEMAS_BYTES_MAX: Final = 512 * 1024
"""Size of all schemas of one server, as JSON: they are part of every request, too, and fill the
largest context windows."""


async def list_tools(server: str, client: Client) -> tuple[ListedTool, ...]:
    """The server's tools that can be offered, of the first `TOOLS_MAX` that it lists."""
    tools: list[types.Tool] = []
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            # The package would validate results by it in the event loop, whatever that takes.
            (tool.output_schema or {}).clear()
        tools += page.tools
        cursor = page.next_cursor
        if not cursor or len(tools) > TOOLS_MAX:
            break
    if cursor or len(tools) > TOOLS_MAX:
        log.warning("mcp_tools_left_out", server=server, offered=TOOLS_MAX)
    # A schema takes milliseconds, and a server can have thought of one that takes far more.
    check = partial(_offered_tools, server, tools[:TOOLS_MAX])
    return await trio.to_thread.run_sync(check, abandon_on_cancel=True)


async def list_prompts(client: Client) -> tuple[ListedPrompt, ...]:
    """The server's usable prompts, up to `PROMPTS_MAX`; none if it does not support prompts."""
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
    """The tool to offer, or `None` if it requires task execution or has an invalid schema."""
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
