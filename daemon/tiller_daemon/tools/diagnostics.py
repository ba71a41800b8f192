"""The tool `diagnostics`: what language servers find wrong in files."""

from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta, Struct

from tiller_daemon.tools.base import Requirement, Tool, ToolEnvironment, ToolResult, always
from tiller_daemon.tools.path_access import (
    directory_requirements,
    file_requirements,
    resolve_approved_path,
    resolve_path,
)
from tiller_daemon.tools.truncation import truncate

TIMEOUT_S: Final = 30.0


class DiagnosticsArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """What the model says."""

    path: Annotated[
        str | None,
        Meta(description="The file; if left out, every file that was changed or looked at so far"),
    ] = None


def _requirements(arguments: DiagnosticsArguments, workspace: Path) -> tuple[Requirement, ...]:
    if arguments.path is None:
        return directory_requirements("read", resolve_path(workspace, "."), title="Look for errors")
    location = resolve_path(workspace, arguments.path)
    return file_requirements("read", location, title=f"Look for errors in {location.text}")


async def _run(arguments: DiagnosticsArguments, environment: ToolEnvironment) -> ToolResult:
    workspace = resolve_path(environment.workspace, ".").path
    path = (
        None if arguments.path is None else resolve_approved_path(environment, arguments.path).path
    )
    found = await environment.diagnostics.all_of(workspace, path)
    return ToolResult(truncate(found), title=arguments.path or "")


DIAGNOSTICS: Final = Tool(
    name="diagnostics",
    description=(
        "Errors and warnings that a language server finds in a file, without running anything. "
        "New errors are told after each change of a file anyway; use this to see the old ones too, "
        "or those that a change has caused elsewhere."
    ),
    arguments=DiagnosticsArguments,
    effect="read",
    timeout_s=TIMEOUT_S,
    requirements=_requirements,
    run=_run,
    repeatable=always,
)
