"""The tool `diagnostics`: errors that language servers find in files."""

from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta, Struct

from tiller_daemon.tools.base import (
    Requirement,
    Tool,
    ToolEnvironment,
    ToolPermission,
    ToolResult,
    always,
)
from tiller_daemon.tools.path_access import (
    directory_requirements,
    file_requirements,
    resolve_approved_path,
    resolve_path,
)
from tiller_daemon.tools.truncation import truncate

TIMEOUT_S: Final = 30.0


class DiagnosticsArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `diagnostics`."""

    path: Annotated[
        str | None,
        Meta(description="The file; by default, every file changed or checked so far"),
    ] = None


def _requirements(arguments: DiagnosticsArguments, workspace: Path) -> tuple[Requirement, ...]:
    if arguments.path is None:
        return directory_requirements(resolve_path(workspace, "."), title="Look for errors")
    location = resolve_path(workspace, arguments.path)
    return file_requirements("read", location, title=f"Look for errors in {location.text}")


async def _run(arguments: DiagnosticsArguments, environment: ToolEnvironment) -> ToolResult:
    workspace = resolve_path(environment.workspace, ".").path
    path = (
        None if arguments.path is None else resolve_approved_path(environment, arguments.path).path
    )
    report = await environment.files.diagnostics.report(workspace, path)
    return ToolResult(truncate(report), title=arguments.path or "")


DIAGNOSTICS: Final = Tool(
    name="diagnostics",
    description=(
        "Show the errors and warnings that a language server finds in a file; nothing is run. "
        "New errors are reported after each change to a file anyway. Use this to see older errors "
        "too, or errors that a change caused in other files."
    ),
    arguments=DiagnosticsArguments,
    effect="read",
    timeout_s=TIMEOUT_S,
    requirements=_requirements,
    permission=ToolPermission("read"),
    run=_run,
    repeatable=always,
)
