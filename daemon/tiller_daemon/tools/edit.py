"""The tool `edit`: one exact replacement in a file that the model has read."""

from pathlib import Path
from typing import Annotated, Final

import trio
from msgspec import Meta, Struct

from tiller_daemon.tools.base import Need, Tool, ToolEnvironment, ToolFailure, ToolResult
from tiller_daemon.tools.changing import read_for_preview, require_seen, show_change, store
from tiller_daemon.tools.diff import unified_diff
from tiller_daemon.tools.reach import file_needs, reach, reach_as_judged, told
from tiller_daemon.tools.substitute import (
    PLACES_SHOWN_MAX,
    MissingText,
    Substituted,
    explain_missing,
    substitute,
)
from tiller_daemon.workspace.files import read_whole
from tiller_daemon.workspace.paths import Location

TIMEOUT_S: Final = 30.0


class EditArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """What the model says."""

    path: Annotated[str, Meta(description="The file, relative to the workspace or absolute")]
    old: Annotated[str, Meta(description="The text to replace, exactly as it is in the file")]
    new: Annotated[str, Meta(description="What takes its place")]
    all: Annotated[bool, Meta(description="Replace each place where `old` is")] = False


def _needs(arguments: EditArguments, workspace: Path) -> tuple[Need, ...]:
    location = reach(workspace, arguments.path)
    detail = _preview(location, arguments)
    return file_needs("write", location, title=f"Edit {location.text}", detail=detail)


async def _run(arguments: EditArguments, environment: ToolEnvironment) -> ToolResult:
    location = reach_as_judged(environment, arguments.path)

    def edit() -> tuple[Substituted, str]:
        before = read_whole(location)
        require_seen(environment.files, location, before)
        after = _substitute(before, arguments)
        store(environment.files, location, after.data)
        return after, show_change(location, before, after.data)

    with told():
        after, diff = await trio.to_thread.run_sync(edit)
    return ToolResult(_done(location, after), title=location.text, diff=diff)


EDIT: Final = Tool(
    name="edit",
    description=(
        "Replace a piece of text in a file that was read before. `old` must match exactly, white "
        "space included, without line numbers, and must be there once: give some lines around it, "
        "or set `all`. Line ends and encoding of the file are kept."
    ),
    arguments=EditArguments,
    effect="write",
    timeout_s=TIMEOUT_S,
    needs=_needs,
    run=_run,
)


def _substitute(before: bytes, arguments: EditArguments) -> Substituted:
    try:
        return substitute(before, arguments.old, arguments.new, every=arguments.all)
    except MissingText as failure:
        raise ToolFailure(explain_missing(before, arguments.old)) from failure


def _preview(location: Location, arguments: EditArguments) -> str:
    """Return the change as it would be; where that can't be said, the two texts themselves."""
    before = read_for_preview(location)
    if before is not None:
        try:
            after = substitute(before, arguments.old, arguments.new, every=arguments.all)
            return show_change(location, before, after.data)
        except ToolFailure:
            # An earlier call of the same response may put the text there yet.
            pass
    return unified_diff(arguments.old, arguments.new, location.text)


def _done(location: Location, after: Substituted) -> str:
    places = ", ".join(map(str, after.lines[:PLACES_SHOWN_MAX]))
    more = ", ..." if len(after.lines) > PLACES_SHOWN_MAX else ""
    what = "line" if len(after.lines) == 1 else f"{len(after.lines)} places, lines"
    return f"Edited {location.text} at {what} {places}{more}."
