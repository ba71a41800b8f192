"""The tool `grep`: lines that match a regular expression."""

import stat
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import trio
from msgspec import Meta, Struct

from tiller_daemon.files.paths import Location, explain, require_regular
from tiller_daemon.files.pinned_directory import PinnedDirectory, pinned_directory, pinned_parent
from tiller_daemon.files.whole_files import state_of
from tiller_daemon.tools.base import (
    Readable,
    Requirement,
    Tool,
    ToolEnvironment,
    ToolPermission,
    ToolResult,
    always,
)
from tiller_daemon.tools.encoding import printable_line
from tiller_daemon.tools.path_access import (
    directory_requirements,
    resolve_approved_path,
    resolve_path,
)
from tiller_daemon.tools.search.path_pattern import PathPattern, ignore_lines_without
from tiller_daemon.tools.search.recheck import Line, confirmed_lines, find_files
from tiller_daemon.tools.search.ripgrep import SEARCH_S_MAX, Extent, Query, run_search
from tiller_daemon.tools.truncation import truncate

MATCHES_SHOWN_MAX: Final = 200
MATCHES_FOUND_MAX: Final = 2000
"""Where a search stops. With fewer matches, the ones shown are always the first by path."""

PROTECTED_COUNTED_MAX: Final = 1000
"""The protected files that a search leaves out are counted up to this number."""

TIMEOUT_S: Final = 2 * SEARCH_S_MAX + 10.0
"""Time for two searches: files are first listed, to count the protected ones."""


class GrepArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `grep`."""

    pattern: Annotated[str, Meta(description="A regular expression in the syntax of ripgrep")]
    path: Annotated[str, Meta(description="Where to search: a directory or one file")] = "."
    include: Annotated[
        str, Meta(description="Search only files that match this, such as `*.{ts,tsx}`")
    ] = ""


def _requirements(arguments: GrepArguments, workspace: Path) -> tuple[Requirement, ...]:
    location = resolve_path(workspace, arguments.path)
    title = f"Search {arguments.pattern} in {location.text}"
    return directory_requirements(location, title=title)


async def _run(arguments: GrepArguments, environment: ToolEnvironment) -> ToolResult:
    location = resolve_approved_path(environment, arguments.path)
    include = PathPattern(arguments.include) if arguments.include else None
    if _is_directory(location):
        with pinned_directory(location) as beneath:
            within = "" if location.text == "." else f"{location.text.rstrip('/')}/"
            scope = _Scope(beneath, within, "./", include, environment.files.readable)
            return await _search(arguments.pattern, scope, environment)
    with pinned_parent(location) as beneath:
        # The model named the file, so reading it was judged for this call.
        within, name = location.text.removesuffix(location.path.name), location.path.name
        scope = _Scope(beneath, within, f"./{name}", include, None)
        return await _search(arguments.pattern, scope, environment)


GREP: Final = Tool(
    name="grep",
    description=(
        "Search file contents with a regular expression (Rust syntax: `\\b`, `|`, `(?i)`; escape "
        "`(`, `[`, `{` and `.` to match them literally). Shows matching lines with their numbers, "
        "grouped by file. Leaves out binary files, files that git ignores, and files that "
        "can't be read without approval."
    ),
    arguments=GrepArguments,
    effect="read",
    timeout_s=TIMEOUT_S,
    requirements=_requirements,
    permission=ToolPermission("read"),
    run=_run,
    repeatable=always,
)


class _Scope(NamedTuple):
    """Where to search, and what may be shown."""

    beneath: PinnedDirectory
    """The directory, held open."""

    within: str
    """A prefix that makes the paths of the result valid for `read`."""

    target: str
    """What ripgrep searches."""

    include: PathPattern | None
    """Which files are searched; None for all."""

    check: Readable | None
    """Tells which files may be shown; None for the one file that the call was judged for."""

    def includes(self, path: str) -> bool:
        """Whether this file is to be searched."""
        return self.include is None or self.include.matches(path)

    def may_show(self, path: str) -> bool:
        """Whether the content of this file may be shown."""
        return self.check is None or self.check(self.within + path)


async def _search(pattern: str, scope: _Scope, environment: ToolEnvironment) -> ToolResult:
    lines: list[Line] = []

    @cache
    def is_shown(path: bytes) -> bool:
        text = _text(path)
        return scope.includes(text) and scope.may_show(text)

    def take(record: bytes) -> bool:
        line = _parse(record)
        if is_shown(line.path):
            lines.append(line)
        return len(lines) < MATCHES_FOUND_MAX

    protected = await _count_protected(scope, environment)
    ignore_lines = scope.include.ignore_lines if scope.include else ()
    query = Query(scope.target, pattern, ignore_lines)
    extent = await run_search(query, scope.beneath, environment, take)
    confirmed = await trio.to_thread.run_sync(confirmed_lines, scope.beneath, lines)
    shown = _by_file(confirmed.lines[:MATCHES_SHOWN_MAX], scope.within)
    notes = [_note(len(confirmed.lines), extent), _note_on_protected(protected)]
    if not confirmed.complete:
        notes.append(
            "(Some matches are missing: the matching files are too large in total. Give a path.)"
        )
    output = truncate("\n".join([*shown, *filter(None, notes)]))
    return ToolResult(output, title=pattern)


async def _count_protected(scope: _Scope, environment: ToolEnvironment) -> int:
    """Return how many files are left out because they may not be read.

    They are counted by name only, because whether they contain a match must not leak.
    """
    if scope.check is None:
        return 0

    def is_protected(path: str) -> bool:
        return scope.includes(path) and not scope.may_show(path)

    fragments = scope.check.path_fragments
    # If the directory itself contains a fragment, every file in it may be protected.
    in_all = any(fragment in scope.within for fragment in fragments)
    ignore_lines = () if in_all else ignore_lines_without(fragments)
    protected, _ = await find_files(
        scope.beneath, environment, ignore_lines, is_protected, PROTECTED_COUNTED_MAX
    )
    return len(protected)


def _is_directory(location: Location) -> bool:
    """Return True for a directory, False for a regular file. Raises `PathProblem` for others."""
    state = state_of(location)
    if state is None:
        raise explain(FileNotFoundError(), location)
    if stat.S_ISDIR(state.st_mode):
        return True
    require_regular(state, location)
    return False


def _parse(record: bytes) -> Line:
    path, _, rest = record.partition(b"\0")
    number, _, text = rest.partition(b":")
    return Line(path.removeprefix(b"./"), int(number), text)


def _text(path: bytes) -> str:
    return path.decode(errors="replace")


def _by_file(lines: list[Line], within: str) -> list[str]:
    shown: list[str] = []
    for path, matches in groupby(lines, key=lambda line: line.path):
        shown.append(f"{within}{_text(path)}")
        for line in matches:
            text = printable_line(line.text.rstrip(b"\r"))
            shown.append(f"{line.number:>6}\t{text}")
    return shown


def _note(count: int, extent: Extent) -> str:
    if extent == "timeout":
        return f"(The search was stopped after {SEARCH_S_MAX:.0f} s; there may be more.)"
    if count == 0:
        return "No line matches. Binary files and files that git ignores are left out."
    if count > MATCHES_SHOWN_MAX:
        more = "at least " if extent == "enough" else ""
        return f"({MATCHES_SHOWN_MAX} of {more}{count} lines. Narrow the pattern, or give a path.)"
    return ""


def _note_on_protected(count: int) -> str:
    if count == 0:
        return ""
    at_least = "at least " if count == PROTECTED_COUNTED_MAX else ""
    were = "1 protected file was" if count == 1 else f"{at_least}{count} protected files were"
    reason = "because reading such files needs approval"
    return f"({were} not searched, {reason}. To search one, give its path.)"
