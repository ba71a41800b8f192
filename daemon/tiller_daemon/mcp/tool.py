"""Turns a tool that a server lists into one of our tools: schema, permission, execution."""

import math
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from tiller_daemon.mcp.base import ListedTool
from tiller_daemon.mcp.managed_server import ManagedServer
from tiller_daemon.mcp.schemas import with_own_names
from tiller_daemon.policy.globs import escape
from tiller_daemon.tools.base import (
    Requirement,
    Tool,
    ToolEnvironment,
    ToolPermission,
    ToolResult,
    always,
    never,
)

PERMISSION: Final = "mcp"


def make_tool(server: ManagedServer, listed: ListedTool, name: str) -> Tool:
    """Return the tool `listed` by `server`, offered to models as `name`."""
    subject = f"{server.name}/{listed.name}"
    return Tool(
        name=name,
        description=listed.description,
        arguments=listed.schema,
        effect="read" if listed.read_only else "write",
        # A call enforces its own limit, which is suspended while a question to the user is open.
        timeout_s=math.inf,
        requirements=partial(_requirements, subject),
        run=partial(_call, server, listed),
        repeatable=always if listed.read_only else never,
        permission=ToolPermission(PERMISSION, subject),
        server=server.name,
    )


async def _call(
    server: ManagedServer, listed: ListedTool, arguments: dict[str, Any], use: ToolEnvironment
) -> ToolResult:
    own = with_own_names(arguments, listed.property_names) if listed.property_names else arguments
    return await server.call(listed.name, own, use)


def _requirements(
    subject: str,
    arguments: dict[str, Any],
    workspace: Path,  # noqa: ARG001
) -> tuple[Requirement, ...]:
    shown = msgspec.json.format(msgspec.json.encode(arguments), indent=2).decode()
    title, detail = f"Call {subject}", shown if arguments else ""
    return (Requirement(PERMISSION, (subject,), (escape(subject),), title=title, detail=detail),)
