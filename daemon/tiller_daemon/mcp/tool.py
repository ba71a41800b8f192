"""A tool of a server as one of the table: what models are offered, what it needs, how it runs."""

import math
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from tiller_daemon.mcp.base import ListedTool
from tiller_daemon.policy.globs import escape
from tiller_daemon.tools.base import Requirement, Tool, ToolEnvironment, ToolResult, always, never

PERMISSION: Final = "mcp"


class ToolServer(Protocol):
    """The server that the tool is of."""

    name: str

    async def call(
        self, tool: str, arguments: dict[str, Any], environment: ToolEnvironment
    ) -> ToolResult:
        """Make a call; raises `ToolFailure`."""
        ...


def make_tool(server: ToolServer, listed: ListedTool, name: str) -> Tool:
    """Return the tool `listed` by `server`, offered to models as `name`.

    It sees to its time limit itself, as it stands still while the user is asked something.
    """
    subject = f"{server.name}/{listed.name}"
    return Tool(
        name=name,
        description=listed.description,
        arguments=dict[str, Any],
        effect="read" if listed.read_only else "write",
        timeout_s=math.inf,
        requirements=partial(_requirements, subject),
        run=partial(_run, server, listed.name),
        repeatable=always if listed.read_only else never,
        schema=listed.schema,
        server=server.name,
    )


def _requirements(
    subject: str,
    arguments: dict[str, Any],
    workspace: Path,  # noqa: ARG001
) -> tuple[Requirement, ...]:
    shown = msgspec.json.format(msgspec.json.encode(arguments), indent=2).decode()
    title, detail = f"Call {subject}", shown if arguments else ""
    return (Requirement(PERMISSION, (subject,), (escape(subject),), title=title, detail=detail),)


async def _run(
    server: ToolServer, tool: str, arguments: dict[str, Any], environment: ToolEnvironment
) -> ToolResult:
    return await server.call(tool, arguments, environment)
