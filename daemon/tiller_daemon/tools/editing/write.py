"""The tool `write`: writes a whole file, a new one or one that the model has read."""

from pathlib import Path
from typing import Annotated, Final

import trio
from msgspec import Meta, Struct

from tiller_daemon.files.changes import Change
from tiller_daemon.files.paths import Location
from tiller_daemon.tools.base import (
    FileVersions,
    Requirement,
    Tool,
    ToolEnvironment,
    ToolPermission,
    ToolResult,
)
from tiller_daemon.tools.editing.file_change import (
    encoding_failures,
    read_for_preview,
    read_unchanged,
    show_change,
    store,
)
from tiller_daemon.tools.encoding import describe_format, encode_like
from tiller_daemon.tools.path_access import (
    file_requirements,
    resolve_approved_path,
    resolve_path,
    tool_failures,
)

TIMEOUT_S: Final = 30.0


class WriteArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `write`."""

    path: Annotated[str, Meta(description="The file, relative to the workspace or absolute")]
    content: Annotated[str, Meta(description="The complete content of the file")]


def _requirements(arguments: WriteArguments, workspace: Path) -> tuple[Requirement, ...]:
    location = resolve_path(workspace, arguments.path)
    before = read_for_preview(location)
    with encoding_failures(location):
        after = encode_like(before, arguments.content)
    detail = show_change(location, before, after)
    return file_requirements("write", location, title=f"Write {location.text}", detail=detail)


def _check(arguments: WriteArguments, workspace: Path, files: FileVersions) -> None:
    with tool_failures():
        _change(arguments, resolve_path(workspace, arguments.path), files)


async def _run(arguments: WriteArguments, environment: ToolEnvironment) -> ToolResult:
    location = resolve_approved_path(environment, arguments.path)

    def write() -> tuple[str, str]:
        before, after = _change(arguments, location, environment.files.versions)
        store(environment, [Change(location, before, after)])
        done = "Created" if before is None else "Replaced"
        output = f"{done} {location.text}: {len(after)} bytes{describe_format(after)}."
        return output, show_change(location, before, after)

    with tool_failures():
        output, diff = await trio.to_thread.run_sync(write)
    return ToolResult(output, title=location.text, diff=diff)


WRITE: Final = Tool(
    name="write",
    description=(
        "Write a whole file; missing directories are created. A file that exists must have been "
        "read and must not have changed since. It keeps its encoding and line endings. Do not "
        "use it to change a part of a file."
    ),
    arguments=WriteArguments,
    effect="write",
    timeout_s=TIMEOUT_S,
    requirements=_requirements,
    permission=ToolPermission("write"),
    check=_check,
    run=_run,
)


def _change(
    arguments: WriteArguments, location: Location, files: FileVersions
) -> tuple[bytes | None, bytes]:
    """Return the bytes before and after. Raises `ToolFailure`, `PathProblem`."""
    before = read_unchanged(files, location)
    with encoding_failures(location):
        return before, encode_like(before, arguments.content)
