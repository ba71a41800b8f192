"""The tool `write`: writes a whole file, a new one or one that the model has read."""

from functools import partial
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta

from tiller_daemon.files.changes import Change
from tiller_daemon.files.paths import Location
from tiller_daemon.tools.base import FileVersions, Requirement, Tool, ToolPermission
from tiller_daemon.tools.editing.file_change import (
    FileArguments,
    check_change,
    encoding_failures,
    make_change,
    read_for_preview,
    read_unchanged,
    show_change,
)
from tiller_daemon.tools.encoding import describe_format, encode_like
from tiller_daemon.tools.path_access import file_requirements, resolve_path

TIMEOUT_S: Final = 30.0


class WriteArguments(FileArguments, frozen=True):
    """The arguments of `write`."""

    content: Annotated[str, Meta(description="The complete content of the file")]


def _requirements(arguments: WriteArguments, workspace: Path) -> tuple[Requirement, ...]:
    location = resolve_path(workspace, arguments.path)
    before = read_for_preview(location)
    with encoding_failures(location):
        after = encode_like(before, arguments.content)
    detail = show_change(location, before, after)
    return file_requirements("write", location, title=f"Write {location.text}", detail=detail)


def _change(
    arguments: WriteArguments, location: Location, files: FileVersions
) -> tuple[Change, str]:
    """Return the change, and a message for the model. Raises `ToolFailure`, `PathProblem`."""
    before = read_unchanged(files, location)
    with encoding_failures(location):
        after = encode_like(before, arguments.content)
    done = "Created" if before is None else "Replaced"
    output = f"{done} {location.text}: {len(after)} bytes{describe_format(after)}."
    return Change(location, before, after), output


WRITE: Final = Tool(
    name="write",
    description=(
        "Write a whole file; missing directories are created. A file that exists must have been "
        "read and must not have changed since. It keeps its encoding and line endings. Do not "
        "use this tool to change only a part of a file."
    ),
    arguments=WriteArguments,
    effect="write",
    timeout_s=TIMEOUT_S,
    requirements=_requirements,
    permission=ToolPermission("write"),
    check=partial(check_change, _change),
    run=partial(make_change, _change),
)
