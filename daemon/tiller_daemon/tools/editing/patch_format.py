"""Parses the patches of `apply_patch`, whose format is that of codex. Pure.

`patch_lines` applies the hunks to a file.
"""

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from tiller_daemon.tools.base import ToolFailure
from tiller_daemon.tools.encoding import require_characters

BEGIN: Final = "*** Begin Patch"
END: Final = "*** End Patch"
ADD: Final = "*** Add File: "
DELETE: Final = "*** Delete File: "
UPDATE: Final = "*** Update File: "
MOVE: Final = "*** Move to: "
END_OF_FILE: Final = "*** End of File"
CONTEXT: Final = "@@"

LINE_SHOWN_CHARS_MAX: Final = 120

_QUOTED_BEGINNINGS: Final = ("<<EOF", "<<'EOF'", '<<"EOF"')
"""First lines of a here-document, which some models put around a patch."""

Mark = Literal[" ", "-", "+"]


class Hunk(Struct, frozen=True):
    """One change of a file: lines of the file (` ` and `-`) and new lines (`+`).

    They are searched for after the lines of `context`, or with `at_end` at the end of the file.
    `number` is the line of the patch where the hunk begins.
    """

    number: int
    context: tuple[str, ...]
    lines: tuple[tuple[Mark, str], ...]
    at_end: bool


class AddFile(Struct, frozen=True):
    """A new file with its content."""

    path: str
    content: str


class DeleteFile(Struct, frozen=True):
    """A file to delete."""

    path: str


class UpdateFile(Struct, frozen=True):
    """A file to change, and perhaps to move."""

    path: str
    move_to: str | None
    hunks: tuple[Hunk, ...]


FileChange = AddFile | DeleteFile | UpdateFile


class BadPatch(ToolFailure):
    """Text that is not a patch; the message names the line and what should be there."""


def parse_patch(text: str) -> tuple[FileChange, ...]:
    """Return the parts of a patch in order. Raises `BadPatch` and `ToolFailure`."""
    require_characters(text, "The patch")
    lines = _Lines(text)
    changes: list[FileChange] = []
    while (line := lines.next()) is not None:
        changes.append(_file_change(line.strip(), lines))
    if not changes:
        raise BadPatch("The patch changes no file.")
    return tuple(changes)


class _Lines:
    """A reader of the lines between the first and the last line of a patch.

    `number` is the number of the line read last, counted in the original text.
    """

    def __init__(self, text: str) -> None:
        lines = text.strip().replace("\r\n", "\n").split("\n")
        self.number = text[: len(text) - len(text.lstrip())].count("\n") + 1
        if lines[0] in _QUOTED_BEGINNINGS and lines[-1].endswith("EOF") and len(lines) > 2:
            lines = lines[1:-1]
            self.number += 1
        if lines[0].strip() != BEGIN:
            raise BadPatch(f"The first line of a patch is `{BEGIN}`, not `{_shown(lines[0])}`.")
        if lines[-1].strip() != END:
            raise BadPatch(f"The last line of a patch is `{END}`, not `{_shown(lines[-1])}`.")
        self._lines = lines[1:-1]
        self._read = 0

    def peek(self) -> str | None:
        """Return the next line without reading it; None at the end."""
        return self._lines[self._read] if self._read < len(self._lines) else None

    def next(self) -> str | None:
        """Read the next line; None at the end."""
        line = self.peek()
        if line is not None:
            self._read += 1
            self.number += 1
        return line


def _file_change(header: str, lines: _Lines) -> FileChange:
    if header.startswith(ADD):
        return AddFile(header.removeprefix(ADD).strip(), _added(lines))
    if header.startswith(DELETE):
        return DeleteFile(header.removeprefix(DELETE).strip())
    if header.startswith(UPDATE):
        return _update(header.removeprefix(UPDATE).strip(), lines)
    raise BadPatch(
        f"Line {lines.number} of the patch is `{_shown(header)}`; it should begin with `{ADD}`, "
        f"`{UPDATE}` or `{DELETE}`."
    )


def _added(lines: _Lines) -> str:
    content: list[str] = []
    while (line := lines.peek()) is not None and line.startswith("+"):
        lines.next()
        content.append(f"{line[1:]}\n")
    return "".join(content)


def _update(path: str, lines: _Lines) -> UpdateFile:
    number, move_to = lines.number, None
    if (line := lines.peek()) is not None and line.startswith(MOVE):
        lines.next()
        move_to = line.removeprefix(MOVE).strip()
    hunks: list[Hunk] = []
    while (line := lines.peek()) is not None and not line.startswith("***"):
        if line.strip():
            hunks.append(_hunk(lines, is_first=not hunks))
        else:
            lines.next()
    if not hunks and move_to is None:
        raise BadPatch(f"Line {number} of the patch names {path}, but no change to it follows.")
    return UpdateFile(path, move_to, tuple(hunks))


def _hunk(lines: _Lines, *, is_first: bool) -> Hunk:
    number = lines.number + 1
    context: list[str] = []
    has_marker = False
    while (line := lines.peek()) is not None and (
        line.rstrip() == CONTEXT or line.startswith(f"{CONTEXT} ")
    ):
        lines.next()
        has_marker = True
        if line.rstrip() != CONTEXT:
            context.append(line.removeprefix(f"{CONTEXT} "))
    if not has_marker and not is_first:
        raise BadPatch(
            f"Line {number} of the patch is `{_shown(line or '')}`; a line of a hunk begins with a "
            f"space, `-` or `+`, and a new hunk begins with `{CONTEXT}`."
        )
    hunk_lines, at_end = _hunk_lines(lines)
    return Hunk(number, tuple(context), tuple(hunk_lines), at_end)


def _hunk_lines(lines: _Lines) -> tuple[Sequence[tuple[Mark, str]], bool]:
    hunk_lines: list[tuple[Mark, str]] = []
    while (line := lines.peek()) is not None:
        if hunk_lines and line.rstrip() == END_OF_FILE:
            lines.next()
            return hunk_lines, True
        match line[:1]:
            case "":
                hunk_lines.append((" ", ""))
            case " " | "-" | "+" as mark:
                hunk_lines.append((mark, line[1:]))
            case _:
                break
        lines.next()
    if not hunk_lines:
        there = "the patch ends" if line is None else f"it is `{_shown(line)}`"
        raise BadPatch(
            f"Line {lines.number + 1} of the patch should be the first of a hunk and begin with a "
            f"space, `-` or `+`, but {there}."
        )
    return hunk_lines, False


def _shown(line: str) -> str:
    return line if len(line) <= LINE_SHOWN_CHARS_MAX else f"{line[:LINE_SHOWN_CHARS_MAX]}…"
