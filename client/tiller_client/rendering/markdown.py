"""Renders Markdown while it streams: the final lines, and the rest as it looks now.

A line is final when no later text can change it: its block has ended, or it is a line of code.
`markdown_lines` makes the same lines from a whole text.
"""

import re

from tiller_client.rendering.blocks import (
    Continued,
    Piece,
    after,
    fence_row,
    language,
    parsed,
    piece_rows,
    pieces,
)
from tiller_client.rendering.code import Highlighter
from tiller_client.rendering.layout import folded
from tiller_client.rendering.style import Row, Span, Theme

TAIL_LINES_MAX = 40
"""Maximum number of lines of an unfinished block that `tail` renders: enough for the live part."""

PARSED_AGAIN = 8
"""A block is parsed again when it has grown by one line in this many, so the cost stays linear."""

_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})(.*)")

_UNCLEAR = re.compile(r"\s*(?:[-=_*+#>|:\s]+|\d+[.)]?|[`~]{1,2}|(?:`{3,}|~{3,})[^`]*)\s*")
"""Matches the beginning of a line whose kind is not clear yet: showing the line would flicker."""


def markdown_lines(text: str, width: int, theme: Theme) -> list[str]:
    """Render a whole text as lines."""
    stream = MarkdownStream(width, theme)
    stream.fill(text)
    return stream.close()


class _Fence:
    """A code block that has begun."""

    def __init__(self, opening: re.Match[str]) -> None:
        self.info = opening[3].strip()
        self._indent = len(opening[1])
        self._end = re.compile(rf" {{0,3}}{opening[2][0]}{{{len(opening[2])},}} *")
        self._highlighter = Highlighter(language(self.info))

    def is_end(self, line: str) -> bool:
        """Whether a line ends the code block."""
        return self._end.fullmatch(line) is not None

    def line(self, text: str) -> Row:
        """Colour the next line of code."""
        return self._highlighter.line(self.unindented(text))

    def unindented(self, text: str) -> str:
        """A line of code, without the indentation of the fence."""
        blanks = len(text) - len(text.lstrip(" "))
        return text[min(blanks, self._indent) :]


class MarkdownStream:
    """Renders one streaming message.

    A change of `width` or `theme` affects only lines that are not final.
    """

    def __init__(self, width: int, theme: Theme) -> None:
        self.width = width
        self.theme = theme
        self._open = ""
        """The unfinished last line."""
        self._lines: list[str] = []
        """The finished lines of the blocks that are not final."""
        self._parse_at = 1
        """The number of `_lines` at which to parse them again."""
        self._fence: _Fence | None = None
        self._continued: Continued | None = None
        self._began = False

    def feed(self, text: str) -> list[str]:
        """Add the next piece of text; return the lines that have become final."""
        rows: list[Row] = []
        for line in self._taken(text):
            rows += self._line(line)
        return self._shown(rows)

    def tail(self) -> list[str]:
        """The lines that are not final, as they look now; does not change the state."""
        text = _clean(self._open.removesuffix("\r"))
        if self._fence:
            is_shown = text and not _UNCLEAR.fullmatch(text)
            code = [Span(self._fence.unindented(text))]
            return self._shown(folded(code, self.width)) if is_shown else []
        lines = [*self._lines[-TAIL_LINES_MAX:]]
        if not _UNCLEAR.fullmatch(text):
            lines.append(text)
        continued = self._continued if len(self._lines) <= TAIL_LINES_MAX else None
        found = pieces(parsed("\n".join(lines)), continued)
        return self._shown(self._apart(found))

    def close(self) -> list[str]:
        """End the message; return the remaining lines."""
        rows = self._line(_clean(self._open.removesuffix("\r"))) if self._open else []
        rows += [fence_row("")] if self._fence else self._apart(self._pieces())
        return self._shown(rows)

    def fill(self, text: str) -> None:
        """Add text without rendering it; `close` then parses everything only once."""
        self._lines += self._taken(text)

    def _taken(self, text: str) -> list[str]:
        """Add the next piece of text; return the lines that it completes."""
        text = self._open + text
        # A carriage return at the end may be the first half of a line break.
        held = "\r" if text.endswith("\r") else ""
        text = text[: len(text) - len(held)]
        *lines, self._open = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._open += held
        return [_clean(line) for line in lines]

    def _line(self, line: str) -> list[Row]:
        """Add the next complete line; return the rows that have become final."""
        if self._fence:
            if self._fence.is_end(line):
                self._fence = None
                return [fence_row("")]
            return folded(self._fence.line(line), self.width)
        self._lines.append(line)
        goes_on = len(self._lines) > 1 and not line.strip()  # no block begins with a blank line
        if goes_on or len(self._lines) < self._parse_at:
            return []
        found = self._pieces()
        if not found:
            self._lines, self._parse_at = [], 1
            return []
        rows = self._apart(found[:-1])
        self._began = self._began or len(found) > 1
        return rows + self._cut(found)

    def _cut(self, found: list[Piece]) -> list[Row]:
        """Keep only the last piece, which may continue; a code block's lines are final rows."""
        last = found[-1]
        if len(found) > 1:
            is_item = last.node.type == "list_item" and last.node.parent is found[-2].node.parent
            self._continued = after(found[-2], last) if is_item else None
            self._lines = self._lines[last.begin :]
        self._parse_at = len(self._lines) + 1 + len(self._lines) // PARSED_AGAIN
        if last.node.type != "fence" or not (opening := _FENCE.match(self._lines[0])):
            return []
        self._fence = _Fence(opening)
        rows: list[Row] = [[]] if self._began else []
        rows += folded(fence_row(self._fence.info), self.width)
        code, self._lines, self._parse_at = self._lines[1:], [], 1
        self._began = True
        for line in code:
            rows += self._line(line)
        return rows

    def _pieces(self) -> list[Piece]:
        return pieces(parsed("".join(f"{line}\n" for line in self._lines)), self._continued)

    def _apart(self, found: list[Piece]) -> list[Row]:
        """The rows of the next pieces, with a blank line before each that needs one."""
        rows: list[Row] = []
        for piece in found:
            if (rows or self._began) and not piece.follows:
                rows.append([])
            rows += piece_rows(piece, self.width, self.theme)
        return rows

    def _shown(self, rows: list[Row]) -> list[str]:
        return [self.theme.line(row) for row in rows]


def _clean(line: str) -> str:
    """Prepare a line for parsing: replace tabs with spaces up to the same columns."""
    return line.replace("\0", "\ufffd").expandtabs(4)
