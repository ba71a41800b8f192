"""A call of a tool that changes files, as the runtime makes it, outside of any session."""

from pathlib import Path
from typing import Any

import trio

from tiller_daemon.policy.readable import Readable
from tiller_daemon.tools.base import FileVersions, Tool, ToolEnvironment, ToolResult


def call(tool: Tool, given: dict[str, str], workspace: Path, seen: FileVersions) -> ToolResult:
    """Call a tool; its journals are beside the workspace."""
    arguments = tool.arguments(**given)
    nothing: Any = None
    environment = ToolEnvironment(
        workspace=workspace, spill_directory=workspace, session_id="s", call_id="c", files=seen,
        variables={}, output=nothing, show_plan=nothing, ask=nothing, delegate=nothing,
        background=nothing, diagnostics=nothing,
        requirements=tool.requirements(arguments, workspace),
        journals=workspace.with_name("journals"), readable=Readable(()),
    )  # fmt: skip
    return trio.run(tool.run, arguments, environment)
