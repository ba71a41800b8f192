"""The tool `ls`: the entries of one directory."""

import os
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import trio
from msgspec import Meta, Struct

from tiller_daemon.files.paths import Location, PathProblem, opened_directory, printable
from tiller_daemon.tools.base import (
    Requirement,
    Tool,
    ToolEnvironment,
    ToolFailure,
    ToolPermission,
    ToolResult,
    always,
)
from tiller_daemon.tools.path_access import (
    directory_requirements,
    resolve_approved_path,
    resolve_path,
)

ENTRIES_MAX: Final = 1000
ENTRIES_READ_MAX: Final = 100_000
"""How many entries of a directory are read and sorted, in some 0.2 s."""

TIMEOUT_S: Final = 30.0


class LsArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `ls`."""

    path: Annotated[str, Meta(description="The directory; by default the workspace")] = "."


def _requirements(arguments: LsArguments, workspace: Path) -> tuple[Requirement, ...]:
    location = resolve_path(workspace, arguments.path)
    return directory_requirements(location, title=f"List {location.text}")


async def _run(arguments: LsArguments, environment: ToolEnvironment) -> ToolResult:
    location = resolve_approved_path(environment, arguments.path)
    entries, omitted = await trio.to_thread.run_sync(_list, location, abandon_on_cancel=True)
    if not entries:
        return ToolResult("(The directory is empty.)", title=location.text)
    note = f"\n(At least {omitted} more; use `glob` to find files by name.)" if omitted else ""
    return ToolResult("\n".join(entries) + note, title=location.text)


LS: Final = Tool(
    name="ls",
    description=(
        "List one directory, including hidden entries. `/` marks a directory, and `->` the target "
        "of a link. To find files by name at any depth, use `glob`."
    ),
    arguments=LsArguments,
    effect="read",
    timeout_s=TIMEOUT_S,
    requirements=_requirements,
    permission=ToolPermission("read"),
    run=_run,
    repeatable=always,
)


def _list(location: Location) -> tuple[list[str], int]:
    """Return the first entries by name, and a lower bound for the number of the others."""
    try:
        with opened_directory(location, listed=True) as directory:
            with os.scandir(directory) as found:
                entries = sorted(islice(found, ENTRIES_READ_MAX), key=lambda entry: entry.name)
            shown = [_shown(entry, directory) for entry in entries[:ENTRIES_MAX]]
    except PathProblem as problem:
        if isinstance(problem.__cause__, NotADirectoryError):
            message = f"{location.text} is not a directory; use `read` for a file."
            raise ToolFailure(message) from problem
        raise
    return shown, max(len(entries) - ENTRIES_MAX, 0)


def _shown(entry: os.DirEntry[str], directory: int) -> str:
    name = printable(entry.name)
    if entry.is_symlink():
        return f"{name} -> {printable(os.readlink(entry.name, dir_fd=directory))}"
    return f"{name}/" if entry.is_dir() else name
