"""Calls a tool that changes files as the runtime does, but outside of any session."""

from pathlib import Path
from typing import Any

import trio

from support.no_editors import NoEditors
from tiller_daemon.policy.readable import Readable
from tiller_daemon.tools.base import FileAccess, FileVersions, Tool, ToolEnvironment, ToolResult
from tiller_daemon.tools.path_access import tool_failures


def call(tool: Tool, given: dict[str, str], workspace: Path, seen: FileVersions) -> ToolResult:
    """Call a tool; its journals are beside the workspace."""
    assert isinstance(tool.arguments, type)
    arguments = tool.arguments(**given)
    nothing: Any = None
    environment = ToolEnvironment(
        workspace=workspace,
        session_id="s",
        call_id="c",
        files=FileAccess(
            seen,
            Readable(()),
            nothing,
            workspace,
            workspace.with_name("journals"),
            NoEditors(),
        ),
        commands=nothing,
        user=nothing,
        delegate=nothing,
        requirements=tool.requirements(arguments, workspace),
    )
    with tool_failures():
        return trio.run(tool.run, arguments, environment)
