"""The tool `glob`: files whose paths match a pattern, the newest first.

The tool shows the names of protected files too, because rules about reading protect only content.
"""

from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta, Struct

from tiller_daemon.files.pinned_directory import pinned_directory
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
from tiller_daemon.tools.search.path_pattern import PathPattern
from tiller_daemon.tools.search.recheck import find_files
from tiller_daemon.tools.search.ripgrep import SEARCH_S_MAX, Extent

FILES_SHOWN_MAX: Final = 200
FILES_FOUND_MAX: Final = 10_000
"""How many files are sorted by age, in some 50 ms."""

TIMEOUT_S: Final = SEARCH_S_MAX + 10.0


class GlobArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `glob`."""

    pattern: Annotated[str, Meta(description="Such as `*.py` or `src/**/*.{ts,tsx}`")]
    path: Annotated[str, Meta(description="The directory; by default the workspace")] = "."


def _requirements(arguments: GlobArguments, workspace: Path) -> tuple[Requirement, ...]:
    location = resolve_path(workspace, arguments.path)
    return directory_requirements(location, title=f"Find {arguments.pattern} in {location.text}")


async def _run(arguments: GlobArguments, environment: ToolEnvironment) -> ToolResult:
    location = resolve_approved_path(environment, arguments.path)
    if not location.path.is_dir():
        raise ToolFailure(f"{location.text} is not a directory; name a directory to search.")
    pattern = PathPattern(arguments.pattern)
    with pinned_directory(location) as beneath:
        files, extent = await find_files(
            beneath, environment, pattern.ignore_lines, pattern.matches, FILES_FOUND_MAX
        )
    newest = sorted(files, key=lambda file: (-file.changed, file.path))
    within = "" if location.text == "." else f"{location.text.rstrip('/')}/"
    lines = [f"{within}{file.path.decode(errors='replace')}" for file in newest[:FILES_SHOWN_MAX]]
    note = _note(len(newest), extent)
    return ToolResult("\n".join([*lines, note] if note else lines), title=arguments.pattern)


GLOB: Final = Tool(
    name="glob",
    description=(
        "Find files whose paths match a pattern, newest first. `*` matches within a name, "
        "`**` matches any number of directories, `{a,b}` matches either. A pattern without a slash "
        "matches names at any depth. Files that git ignores are left out."
    ),
    arguments=GlobArguments,
    effect="read",
    timeout_s=TIMEOUT_S,
    requirements=_requirements,
    permission=ToolPermission("read"),
    run=_run,
    repeatable=always,
)


def _note(count: int, extent: Extent) -> str:
    if extent == "timeout":
        return f"(The search was stopped after {SEARCH_S_MAX:.0f} s; there may be more.)"
    if count == 0:
        return "No file matches. Files that git ignores are left out."
    if count > FILES_SHOWN_MAX:
        more = "at least " if extent == "enough" else ""
        return f"({FILES_SHOWN_MAX} of {more}{count} files. Narrow the pattern.)"
    return ""
