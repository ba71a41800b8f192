"""Renders unified diffs with line numbers, colours of the language, and marks on changed words.

The input may be any text; lines outside hunks are shown as they are.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Literal

from tiller_client.rendering.code import Highlighter
from tiller_client.rendering.labels import more_lines
from tiller_client.rendering.layout import folded, row_cells
from tiller_client.rendering.style import TAB_COLUMNS, Row, Span, Theme
from tiller_client.rendering.text import UNCUT

WORD_LINES_MAX = 40
"""Longest run of changed lines whose words are compared; in longer runs only lines are marked."""

WORD_CHARS_MAX = 400
"""Longest line whose words are compared; the cost is quadratic."""

WORD_PAIRS_MAX = 200
"""Maximum number of line pairs in a diff whose words are compared."""

ALIKE_MIN = 0.5
"""Lowest similarity (0 to 1) at which two lines are shown as one line that has changed."""

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@ ?(.*)")
_WORD = re.compile(r"\w+|\s+|.")
_GIT_NAME = re.compile(r'diff --git .* "?b/(.*?)"?$')
_DROPPED = ("diff --git ", "index ")

Mark = Literal["+", "-", " ", "\\"]
_ROLES = {"+": ("good", "added"), "-": ("bad", "removed")}


@dataclass
class _Line:
    """A line of a hunk."""

    mark: Mark
    text: str
    number: int = 0
    """The line's number in the new file; for a removed line, in the old file."""
    changed: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """The ranges of the text that differ from the replaced or replacing line."""


@dataclass
class _Hunk:
    """Some lines of a file; none if only the file is named, as its mode may be all that differs."""

    path: str
    about: str = ""
    """The text after the line numbers in the header: often the name of the function."""
    lines: list[_Line] = field(default_factory=list["_Line"])


_Part = _Hunk | str
"""A hunk, or a line outside hunks."""


def diff_lines(
    diff: str, width: int, theme: Theme, *, lines_max: int = UNCUT, see_all: str = ""
) -> list[str]:
    """Render a diff, with at most `lines_max` of its lines; `see_all` follows their number."""
    parts = list(_parts(diff.replace("\r\n", "\n").rstrip("\n").split("\n")))
    paths = {part.path for part in parts if isinstance(part, _Hunk)}
    total = sum(len(part.lines) if isinstance(part, _Hunk) else 1 for part in parts)
    rows: list[Row] = []
    left = lines_max
    pairs_left = WORD_PAIRS_MAX
    path: str | None = None
    in_file = False
    for part in parts:
        if left <= 0:
            break
        if isinstance(part, str):
            rows += folded([Span(part.expandtabs(TAB_COLUMNS), ("muted",))], width)
            left -= 1
            continue
        if part.path != path and len(paths) > 1:
            rows += folded([Span(part.path, ("bold",))], width)
        elif part.path == path and in_file:
            gap = f"⋯ {part.about}"
            rows += folded([Span(gap, ("muted",))], width)
        path, in_file = part.path, bool(part.lines)
        part.lines = part.lines[:left]
        left -= len(part.lines)
        pairs_left -= _compare(part.lines, pairs_left)
        rows += _hunk_rows(part, width, theme)
    if total > lines_max:
        more = more_lines(total - lines_max) + see_all
        rows += folded([Span(more, ("muted",))], width)
    return [theme.line(row) for row in rows]


def _parts(lines: list[str]) -> Iterator[_Part]:
    """Find the hunks by the line counts in their headers, whatever the lines look like."""
    hunk: _Hunk | None = None
    path = ""
    old = new = old_left = new_left = 0
    is_binary = False
    for at, line in enumerate(lines):
        # Some programs strip the blank of an empty context line.
        mark = line[:1] or " "
        if hunk and mark == "\\":
            # Not counted in the header: "\ No newline at end of file".
            hunk.lines.append(_Line("\\", line[2:]))
        elif hunk and (old_left or new_left) and mark in ("+", "-", " "):
            hunk.lines.append(_line(mark, line[1:], old if mark == "-" else new))
            old, old_left = (old, old_left) if mark == "+" else (old + 1, old_left - 1)
            new, new_left = (new, new_left) if mark == "-" else (new + 1, new_left - 1)
        elif header := _HUNK.match(line):
            if hunk:
                yield hunk
            is_binary = False
            old, new = int(header[1]), int(header[3])
            old_left, new_left = int(header[2] or 1), int(header[4] or 1)
            hunk = _Hunk(path, header[5])
        else:
            if hunk:
                yield hunk
            hunk = None
            if _is_header(lines, at):
                path = _path(line, path)
                continue
            if line.startswith("diff --git "):
                is_binary = False
                if name := _GIT_NAME.match(line):
                    path = name[1]
                    yield _Hunk(path)
            if not is_binary and not line.startswith(_DROPPED):
                yield "(binary)" if line == "GIT binary patch" else line
            is_binary = is_binary or line == "GIT binary patch"
    if hunk:
        yield hunk


def _line(mark: str, text: str, number: int) -> _Line:
    shown: Mark = "+" if mark == "+" else "-" if mark == "-" else " "
    return _Line(shown, text.expandtabs(TAB_COLUMNS), number)


def _is_header(lines: list[str], at: int) -> bool:
    """Whether a line is one of the two that name the file of the hunks below."""
    ahead = 2 if lines[at].startswith("--- ") else 1 if lines[at].startswith("+++ ") else 0
    return bool(ahead) and at + ahead < len(lines) and lines[at + ahead].startswith("@@ ")


def _path(header: str, path: str) -> str:
    """The path in a header line; the second line lacks the path of a removed file."""
    named = header[4:].partition("\t")[0]
    if named == "/dev/null":
        return path
    return named[2:] if named.startswith(("a/", "b/")) else named


def _compare(lines: list[_Line], pairs_max: int) -> int:
    """Mark the words that differ where lines replace others; return the number of pairs."""
    compared = 0
    at = 0
    while at < len(lines):
        old = _run(lines, at, "-")
        new = _run(lines, at + len(old), "+")
        if max(len(old), len(new)) <= WORD_LINES_MAX:
            for before, after in zip(old, new, strict=False):
                if compared >= pairs_max:
                    return compared
                compared += 1
                _compare_words(before, after)
        at += len(old) + len(new) or 1
    return compared


def _run(lines: list[_Line], begin: int, mark: Mark) -> list[_Line]:
    end = begin
    while end < len(lines) and lines[end].mark == mark:
        end += 1
    return lines[begin:end]


def _compare_words(before: _Line, after: _Line) -> None:
    if max(len(before.text), len(after.text)) > WORD_CHARS_MAX:
        return
    old, new = _WORD.findall(before.text), _WORD.findall(after.text)
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    if matcher.ratio() < ALIKE_MIN:
        return
    for tag, old_begin, old_end, new_begin, new_end in matcher.get_opcodes():
        if tag != "equal":
            before.changed.append((_chars(old[:old_begin]), _chars(old[:old_end])))
            after.changed.append((_chars(new[:new_begin]), _chars(new[:new_end])))


def _chars(words: list[str]) -> int:
    return sum(map(len, words))


def _hunk_rows(hunk: _Hunk, width: int, theme: Theme) -> list[Row]:
    """The rows of a hunk; a long line continues below its text, without a number."""
    in_colour = theme.colours > 16
    path = hunk.path if in_colour else ""
    old, new = Highlighter(path=path), Highlighter(path=path)
    digits = len(str(max((line.number for line in hunk.lines), default=0)))
    rows: list[Row] = []
    for line in hunk.lines:
        if line.mark == "\\":
            rows += folded([Span(" " * (digits + 1)), Span(line.text, ("muted",))], width)
            continue
        code = (old if line.mark == "-" else new).line(line.text)
        if line.mark == " ":
            old.line(line.text)
        sign, role = _ROLES.get(line.mark, ("", ""))
        number = Span(f"{line.number:>{digits}} ", ("muted",))
        gutter = [number, Span(f"{line.mark} ", (sign, role) if role else ())]
        indent = row_cells(gutter)
        text = _marked(code, line, role, in_colour=in_colour) if role else code
        first, *rest = folded(text, width - indent)
        rows.append([*gutter, *first])
        rows += [[Span(" " * indent), *row] for row in rest]
    return rows


def _marked(code: Row, line: _Line, role: str, *, in_colour: bool) -> Row:
    """Distinguish the changed words of a changed line.

    With few colours, the code has no colours of its language: colours mean added and removed.
    """
    edges = sorted({edge for part in line.changed for edge in part})
    row: Row = []
    at = 0
    for span in code:
        end = at + len(span.text)
        cuts = [at, *(edge for edge in edges if at < edge < end), end]
        for begin, stop in pairwise(cuts):
            is_word = any(first <= begin < last for first, last in line.changed)
            behind = (f"{role}_word",) if is_word else (role,)
            if not in_colour:
                behind = (role, *behind) if is_word else behind
            roles = (*span.roles, *behind) if in_colour else behind
            row.append(Span(span.text[begin - at : stop - at], roles))
        at = end
    return row
