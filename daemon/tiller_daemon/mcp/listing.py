"""Lists the tools and prompts of a server that can be offered. Imports the MCP package."""

from collections.abc import Iterable
from functools import partial
from itertools import accumulate
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

DESCRIPTION_CHARS_MAX: Final = 2_000
"""Longest description of a tool or prompt. A tool's is part of every request."""

DEFINITIONS_BYTES_MAX: Final = 256 * 1024
"""Maximum total size of the names, descriptions and schemas of a server's tools, as JSON. They are
part of every request. These are about 64,000 tokens, half of a usual context window."""


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
    check = partial(offered_tools, server, tools[:TOOLS_MAX])
    return await trio.to_thread.run_sync(check, abandon_on_cancel=True)


async def list_prompts(client: Client) -> tuple[ListedPrompt, ...]:
    """Return the server's first usable prompts, at most `PROMPTS_MAX` that are not too large."""
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
    sizes = accumulate(len(msgspec.json.encode(prompt)) for prompt in prompts[:PROMPTS_MAX])
    return tuple(
        one for one, size in zip(prompts, sizes, strict=False) if size <= DEFINITIONS_BYTES_MAX
    )


def offered_tools(server: str, tools: Iterable[types.Tool]) -> tuple[ListedTool, ...]:
    """Return the first usable tools whose definitions fit into `DEFINITIONS_BYTES_MAX`."""
    left = DEFINITIONS_BYTES_MAX
    offered: list[ListedTool] = []
    for tool in tools:
        # Checking a large schema takes long, so its size comes first.
        left -= len(msgspec.json.encode(tool.input_schema))
        one = _offered_tool(server, tool) if left >= 0 else None
        left -= len(msgspec.json.encode((one.name, one.description))) if one else 0
        if left < 0:
            log.warning("mcp_tools_left_out", server=server, offered=len(offered))
            break
        if one:
            offered.append(one)
    return tuple(offered)


def _prompt(prompt: types.Prompt) -> ListedPrompt:
    parameters = tuple(
        PromptParameter(one.name, bool(one.required)) for one in prompt.arguments or ()
    )
    about = _shortened(prompt.description or prompt.title or "")
    return ListedPrompt(prompt.name, about, parameters)


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
    read_only = bool(hints and hints.read_only_hint)
    return ListedTool(tool.name, _shortened(about), schema, read_only)


def _shortened(about: str) -> str:
    if len(about) <= DESCRIPTION_CHARS_MAX:
        return about
    return f"{about[: DESCRIPTION_CHARS_MAX - 1]}…"
