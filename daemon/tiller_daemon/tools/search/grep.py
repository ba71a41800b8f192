"""The tool `grep`: lines that match a regular expression."""

import stat
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import trio
from msgspec import Meta, Struct

from tiller_daemon.files.beneath import Beneath, opened_around, opened_beneath
from tiller_daemon.files.paths import Location, explain, must_be_regular
from tiller_daemon.files.whole_files import state_of
from tiller_daemon.tools.base import (
    Readable,
    Requirement,
    Tool,
    ToolEnvironment,
    ToolResult,
    always,
)
from tiller_daemon.tools.encoding import printable_line
from tiller_daemon.tools.path_access import (
    directory_requirements,
    resolve_approved_path,
    resolve_path,
    tool_failures,
)
from tiller_daemon.tools.search.path_pattern import PathPattern, ignore_lines_without
from tiller_daemon.tools.search.recheck import Line, confirmed_lines, existing_files
from tiller_daemon.tools.search.ripgrep import SEARCH_S_MAX, Extent, Query, run_search
from tiller_daemon.tools.truncation import truncate

MATCHES_SHOWN_MAX: Final = 200
MATCHES_FOUND_MAX: Final = 2000
"""Where a search stops. Up to here the first ones by path are shown, the same each time."""

PROTECTED_COUNTED_MAX: Final = 1000
"""How many of the files are counted that a search leaves out."""

TIMEOUT_S: Final = 2 * SEARCH_S_MAX + 10.0
"""Files are listed to count the protected ones, and then searched."""


class GrepArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `grep`."""

    pattern: Annotated[str, Meta(description="A regular expression, as ripgrep takes it")]
    path: Annotated[str, Meta(description="Where to look: a directory or one file")] = "."
    include: Annotated[str, Meta(description="Only files like this, such as `*.{ts,tsx}`")] = ""


def _requirements(arguments: GrepArguments, workspace: Path) -> tuple[Requirement, ...]:
    location = resolve_path(workspace, arguments.path)
    title = f"Search {arguments.pattern} in {location.text}"
    return directory_requirements("read", location, title=title)


async def _run(arguments: GrepArguments, environment: ToolEnvironment) -> ToolResult:
    location = resolve_approved_path(environment, arguments.path)
    include = PathPattern(arguments.include) if arguments.include else None
    with tool_failures():
        if _is_directory(location):
            with opened_beneath(location) as beneath:
                within = "" if location.text == "." else f"{location.text.rstrip('/')}/"
                place = _Place(beneath, within, "./", environment.readable)
                return await _search(arguments, include, place, environment)
        with opened_around(location) as beneath:
            # The file was named, and reading it was judged for this call.
            within, name = location.text.removesuffix(location.path.name), location.path.name
            place = _Place(beneath, within, f"./{name}", None)
            return await _search(arguments, include, place, environment)


GREP: Final = Tool(
    name="grep",
    description=(
        "Search file contents with a regular expression (Rust syntax; `\\b`, `|`, `(?i)`; escape "
        "`(`, `[`, `{`, `.` to mean themselves). Shows the matching lines with their numbers, by "
        "file. Files that git ignores, binary files and files whose reading needs an approval are "
        "left out."
    ),
    arguments=GrepArguments,
    effect="read",
    timeout_s=TIMEOUT_S,
    requirements=_requirements,
    run=_run,
    repeatable=always,
)


class _Place(NamedTuple):
    """Where to search: `target` is what is given to the program, `within` goes before paths.

    So `read` takes the paths of the result as they are. Without a check the call may show whatever
    it finds: it was judged for that very file.
    """

    beneath: Beneath
    within: str
    target: str
    check: Readable | None

    def is_open(self, path: bytes) -> bool:
        """Whether the content of this file may be shown."""
        return self.check is None or self.check(self.within + _text(path))


async def _search(
    arguments: GrepArguments,
    include: PathPattern | None,
    place: _Place,
    environment: ToolEnvironment,
) -> ToolResult:
    found: list[Line] = []

    @cache
    def is_shown(path: bytes) -> bool:
        return _is_wanted(path, include) and place.is_open(path)

    def take(record: bytes) -> bool:
        line = _parse(record)
        if is_shown(line.path):
            found.append(line)
        return len(found) < MATCHES_FOUND_MAX

    protected = await _count_protected(include, place, environment)
    extent = await run_search(
        Query(place.target, arguments.pattern, include.ignore_lines if include else ()),
        directory=place.beneath.directory,
        variables=environment.variables,
        take=take,
    )
    seen = await trio.to_thread.run_sync(confirmed_lines, place.beneath, found)
    shown = _by_file(seen.lines[:MATCHES_SHOWN_MAX], place.within)
    notes = [_note(len(seen.lines), extent), _note_of_protected(protected)]
    if not seen.whole:
        notes.append("(Not all was looked at: the files are too large. Give a path.)")
    output = truncate("\n".join([*shown, *filter(None, notes)]))
    return ToolResult(output, title=arguments.pattern)


async def _count_protected(
    include: PathPattern | None, place: _Place, environment: ToolEnvironment
) -> int:
    """How many of the files are left out as they may not be read.

    They are counted by their names alone: whether something in them fits must not be told.
    """
    if place.check is None:
        return 0
    found: list[bytes] = []

    def take(record: bytes) -> bool:
        path = record.removeprefix(b"./")
        if _is_wanted(path, include) and not place.is_open(path):
            found.append(path)
        return len(found) < PROTECTED_COUNTED_MAX

    fragments = place.check.path_fragments
    in_all = any(fragment in place.within for fragment in fragments)
    await run_search(
        Query("./", ignore_lines=() if in_all else ignore_lines_without(fragments)),
        directory=place.beneath.directory,
        variables=environment.variables,
        take=take,
    )
    return len(await trio.to_thread.run_sync(existing_files, place.beneath, found))


def _is_directory(location: Location) -> bool:
    """Whether it is one and no file; raises `PathProblem` for what is neither."""
    state = state_of(location)
    if state is None:
        raise explain(FileNotFoundError(), location)
    if stat.S_ISDIR(state.st_mode):
        return True
    must_be_regular(state, location)
    return False


def _is_wanted(path: bytes, include: PathPattern | None) -> bool:
    return include is None or include.matches(_text(path))


def _parse(record: bytes) -> Line:
    path, _, rest = record.partition(b"\0")
    number, _, text = rest.partition(b":")
    return Line(path.removeprefix(b"./"), int(number), text)


def _text(path: bytes) -> str:
    return path.decode(errors="replace")


def _by_file(lines: list[Line], within: str) -> list[str]:
    shown: list[str] = []
    for path, ones in groupby(lines, key=lambda line: line.path):
        shown.append(f"{within}{_text(path)}")
        for one in ones:
            text = printable_line(one.text.rstrip(b"\r"))
            shown.append(f"{one.number:>6}\t{text}")
    return shown


def _note(found: int, extent: Extent) -> str:
    if extent == "timeout":
        return f"(The search was ended after {SEARCH_S_MAX:.0f} s; there may be more.)"
    if found == 0:
        return "No line matches. Files that git ignores and binary files are left out."
    if found > MATCHES_SHOWN_MAX:
        more = "at least " if extent == "enough" else ""
        return f"({MATCHES_SHOWN_MAX} of {more}{found} lines. Narrow the pattern, or give a path.)"
    return ""


def _note_of_protected(count: int) -> str:
    if count == 0:
        return ""
    many = "at least " if count == PROTECTED_COUNTED_MAX else ""
    were = "1 protected file was" if count == 1 else f"{many}{count} protected files were"
    return f"({were} not searched: reading one needs an approval. Give its path to ask for it.)"
