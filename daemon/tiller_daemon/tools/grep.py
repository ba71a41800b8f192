"""The tool `grep`: lines that match a regular expression."""

import stat
from itertools import groupby
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta, Struct

from tiller_daemon.tools.base import Need, Tool, ToolEnvironment, ToolFailure, ToolResult, always
from tiller_daemon.tools.encoding import shown_line
from tiller_daemon.tools.output import cut_text
from tiller_daemon.tools.path_pattern import PathPattern
from tiller_daemon.tools.reach import directory_needs, reach, reach_as_judged, told
from tiller_daemon.tools.search import SEARCH_S_MAX, Extent, Query, run_search
from tiller_daemon.workspace.paths import Location, explain, must_be_regular

MATCHES_SHOWN_MAX: Final = 200
MATCHES_FOUND_MAX: Final = 2000
"""Where a search stops. Up to here the first ones by path are shown, the same each time."""

TIMEOUT_S: Final = SEARCH_S_MAX + 10.0


class GrepArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """What the model says."""

    pattern: Annotated[str, Meta(description="A regular expression, as ripgrep takes it")]
    path: Annotated[str, Meta(description="Where to look: a directory or one file")] = "."
    include: Annotated[str, Meta(description="Only files like this, such as `*.{ts,tsx}`")] = ""


def _needs(arguments: GrepArguments, workspace: Path) -> tuple[Need, ...]:
    location = reach(workspace, arguments.path)
    title = f"Search {arguments.pattern} in {location.text}"
    return directory_needs("read", location, title=title)


async def _run(arguments: GrepArguments, environment: ToolEnvironment) -> ToolResult:
    location = reach_as_judged(environment, arguments.path)
    directory, target = _target(location)
    include = PathPattern(arguments.include) if arguments.include else None
    found: list[tuple[str, int, str]] = []

    def take(record: bytes) -> bool:
        path, number, line = _parse(record)
        if include is None or include.matches(path):
            found.append((path, number, line))
        return len(found) < MATCHES_FOUND_MAX

    extent = await run_search(
        Query(target, arguments.pattern, include),
        directory=directory,
        variables=environment.variables,
        take=take,
    )
    shown = _by_file(sorted(found)[:MATCHES_SHOWN_MAX], _text_of(directory, location))
    output = cut_text("\n".join([*shown, _note(len(found), extent)]).strip("\n"))
    return ToolResult(output, title=arguments.pattern)


GREP: Final = Tool(
    name="grep",
    description=(
        "Search file contents with a regular expression (Rust syntax; `\\b`, `|`, `(?i)`; escape "
        "`(`, `[`, `{`, `.` to mean themselves). Shows the matching lines with their numbers, by "
        "file. Files that git ignores and binary files are left out."
    ),
    arguments=GrepArguments,
    effect="read",
    timeout_s=TIMEOUT_S,
    needs=_needs,
    run=_run,
    repeatable=always,
)


def _target(location: Location) -> tuple[Path, str]:
    """Return the directory to search in, and what to search there."""
    try:
        state = location.path.stat()
    except OSError as error:
        raise ToolFailure(str(explain(error, location))) from error
    if stat.S_ISDIR(state.st_mode):
        return location.path, "./"
    with told():
        must_be_regular(state, location)
    return location.path.parent, f"./{location.path.name}"


def _parse(record: bytes) -> tuple[str, int, str]:
    path, _, rest = record.partition(b"\0")
    number, _, line = rest.partition(b":")
    text = shown_line(line.rstrip(b"\r"))
    return path.removeprefix(b"./").decode(errors="replace"), int(number), text


def _text_of(directory: Path, location: Location) -> str:
    """Return what goes before the paths of the result, so that `read` takes them as they are."""
    if location.path == directory:
        return "" if location.text == "." else f"{location.text.rstrip('/')}/"
    before, slash, _ = location.text.rpartition("/")
    return before + slash


def _by_file(matches: list[tuple[str, int, str]], within: str) -> list[str]:
    shown: list[str] = []
    for path, ones in groupby(matches, key=lambda match: match[0]):
        shown.append(f"{within}{path}")
        shown.extend(f"{number:>6}\t{line}" for _, number, line in ones)
    return shown


def _note(found: int, extent: Extent) -> str:
    if extent == "late":
        return f"(The search was ended after {SEARCH_S_MAX:.0f} s; there may be more.)"
    if found == 0:
        return "No line matches. Files that git ignores and binary files are left out."
    if found > MATCHES_SHOWN_MAX:
        more = "at least " if extent == "enough" else ""
        return f"({MATCHES_SHOWN_MAX} of {more}{found} lines. Narrow the pattern, or give a path.)"
    return ""
