"""The tool `edit`: a replacement in a file that the model has read.

The tool looks for the exact text first, then for whole lines that differ only in white space, in
one place. If it finds neither, the model gets the most similar lines.
"""

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta

from tiller_daemon.files.changes import Change
from tiller_daemon.files.paths import Location
from tiller_daemon.tools.base import FileVersions, Requirement, Tool, ToolFailure, ToolPermission
from tiller_daemon.tools.editing.diff import unified_diff
from tiller_daemon.tools.editing.file_change import (
    FileArguments,
    check_change,
    encoding_failures,
    make_change,
    read_for_preview,
    read_unchanged,
    show_change,
)
from tiller_daemon.tools.editing.lines import listed_numbers
from tiller_daemon.tools.editing.substitute import (
    MissingText,
    Substituted,
    explain_missing,
    substitute,
)
from tiller_daemon.tools.editing.substitute_lines import substitute_lines
from tiller_daemon.tools.encoding import printable_text
from tiller_daemon.tools.path_access import file_requirements, resolve_path
from tiller_daemon.tools.suggestions import did_you_mean_path, show_lines

TIMEOUT_S: Final = 30.0


class EditArguments(FileArguments, frozen=True):
    """The arguments of `edit`."""

    old: Annotated[str, Meta(description="The text to replace, exactly as it is in the file")]
    new: Annotated[str, Meta(description="The new text, which takes the place of `old`")]
    all: Annotated[bool, Meta(description="Replace every occurrence of `old`")] = False


def _requirements(arguments: EditArguments, workspace: Path) -> tuple[Requirement, ...]:
    location = resolve_path(workspace, arguments.path)
    detail = _preview(location, arguments)
    return file_requirements("write", location, title=f"Edit {location.text}", detail=detail)


def _change(
    arguments: EditArguments, location: Location, files: FileVersions
) -> tuple[Change, str]:
    """Return the change, and a message for the model. Raises `ToolFailure`, `PathProblem`."""
    before = read_unchanged(files, location)
    if before is None:
        raise ToolFailure(f"{location.text} does not exist.{did_you_mean_path(location)}")
    try:
        with encoding_failures(location):
            after, done = _edit(before, arguments, location)
    except MissingText as missing:
        raise ToolFailure(explain_missing(before, arguments.old)) from missing
    return Change(location, before, after), done


EDIT: Final = Tool(
    name="edit",
    description=(
        "Replace a piece of text in a file that you have read. Give `old` exactly as it is in the "
        "file, including white space, without line numbers. If it occurs more than once, add lines "
        "around it, or set `all`. The file keeps its line endings and encoding."
    ),
    arguments=EditArguments,
    effect="write",
    timeout_s=TIMEOUT_S,
    requirements=_requirements,
    permission=ToolPermission("write"),
    check=partial(check_change, _change),
    run=partial(make_change, _change),
)


def _edit(before: bytes, arguments: EditArguments, location: Location) -> tuple[bytes, str]:
    """Return the new bytes, and a message for the model. Raises `MissingText`, `ToolFailure`."""
    old, new = arguments.old, arguments.new
    try:
        after = substitute(before, old, new, every=arguments.all)
    except MissingText:
        lines = None if arguments.all else substitute_lines(before, old, new)
        if lines is None:
            raise
        now = show_lines([(lines.line, lines.now)]) if lines.now else "(none)"
        return lines.data, (
            f"Edited {location.text} at line {lines.line}, where the text differed from `old` in "
            f"white space. These lines are there now, with the indentation of the file:\n{now}"
        )
    return after.data, _done(location, after)


def _preview(location: Location, arguments: EditArguments) -> str:
    """Return the diff of the change; a diff of the two texts if `old` is not in the file now."""
    before = read_for_preview(location)
    if before is not None:
        # If this fails, an earlier call of the same response may still add the missing text.
        with suppress(ToolFailure):
            after, _ = _edit(before, arguments, location)
            return show_change(location, before, after)
    return unified_diff(printable_text(arguments.old), printable_text(arguments.new), location.text)


def _done(location: Location, after: Substituted) -> str:
    what = "line" if len(after.lines) == 1 else f"{len(after.lines)} places, lines"
    return f"Edited {location.text} at {what} {listed_numbers(after.lines)}."
