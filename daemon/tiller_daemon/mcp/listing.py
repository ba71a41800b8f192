"""Lists the tools and prompts of a server that can be offered. Imports the MCP package."""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Final

import mcp_types as types
import msgspec
import structlog
import trio
from mcp.client import Client
from msgspec import structs

from tiller_daemon.mcp.base import ListedPrompt, ListedTool, PromptParameter, ToolList
from tiller_daemon.mcp.prompts import is_usable
from tiller_daemon.mcp.schemas import SchemaProblem, sendable
from tiller_daemon.mcp.tool_names import NAME_CHARS_MAX

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


async def list_tools(server: str, client: Client) -> ToolList:
    """Return the tools that can be offered, among the first `TOOLS_MAX` that the server lists."""
    tools: list[types.Tool] = []
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if not cursor or len(tools) > TOOLS_MAX:
            break
    # Checking a schema takes milliseconds, or far longer for a malicious one.
    check = partial(usable_tools, tools[:TOOLS_MAX])
    listed = await trio.to_thread.run_sync(check, abandon_on_cancel=True)
    if cursor or len(tools) > TOOLS_MAX:
        rest = f"all after the first {TOOLS_MAX}"
        listed = structs.replace(listed, left_out=(*listed.left_out, rest))
    for reason in listed.left_out:
        log.warning("mcp_tool_left_out", server=server, reason=reason)
    return listed


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


def usable_tools(tools: Sequence[types.Tool]) -> ToolList:
    """Return the first usable tools whose definitions fit into `DEFINITIONS_BYTES_MAX`."""
    left = DEFINITIONS_BYTES_MAX
    offered: list[ListedTool] = []
    left_out: list[str] = []
    for tool in tools:
        try:
            # Checking a large schema takes long, so its size comes first.
            one = (
                _offered_tool(tool) if len(msgspec.json.encode(tool.input_schema)) <= left else None
            )
        except SchemaProblem as problem:
            left_out.append(f"{tool.name}: {problem}")
            continue
        left -= len(msgspec.json.encode((one.name, one.description, one.schema))) if one else 0
        if one is None or left < 0:
            last = tool.name[:NAME_CHARS_MAX]
            left_out.append(f"all from {last} on: the definitions of all tools are too long")
            break
        offered.append(one)
    return ToolList(tuple(offered), tuple(left_out))


def _prompt(prompt: types.Prompt) -> ListedPrompt:
    parameters = tuple(
        PromptParameter(one.name, bool(one.required)) for one in prompt.arguments or ()
    )
    about = _shortened(prompt.description or prompt.title or "")
    return ListedPrompt(prompt.name, about, parameters)


def _offered_tool(tool: types.Tool) -> ListedTool:
    """Return a tool to offer. Raises `SchemaProblem` if no provider or no client can use it."""
    if tool.execution and tool.execution.task_support == "required":
        raise SchemaProblem("it can only run as a task, which is not supported")
    sent = sendable(tool.input_schema)
    hints = tool.annotations
    about = tool.description or tool.title or (hints and hints.title) or tool.name
    read_only = bool(hints and hints.read_only_hint)
    return ListedTool(tool.name, _shortened(about), sent.schema, read_only, sent.names)


def _shortened(about: str) -> str:
    if len(about) <= DESCRIPTION_CHARS_MAX:
        return about
    return f"{about[: DESCRIPTION_CHARS_MAX - 1]}…"
