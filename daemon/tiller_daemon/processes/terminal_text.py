"""Turns the output of a program into what a terminal would show in the end, for a model. Pure.

A line that was written again and again, such as a progress bar, is kept in its last state, and
colours and other escape sequences are removed. No terminal emulator in Python keeps up with a
program that prints a lot, so this is a small one: it knows lines and a cursor, but no colours, wide
characters or scrolling regions.
"""

import codecs
import re
from typing import Final

ROWS: Final = 40
"""The rows of a terminal: how many lines at the end of the output can still change."""

COLUMNS_MAX: Final = 1000
"""How far to the right a sequence can move the cursor; text can be wider."""

LINE_CHARS_MAX: Final = 64 * 1024
"""Of a longer line, the beginning no longer changes."""

SEQUENCE_CHARS_MAX: Final = 4096
"""An escape sequence that is longer, and incomplete, counts as text."""

_CSI = r"\x1b\[[0-?]*[ -/]*[@-~]"
_STRING = r"\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"

_INVISIBLE: Final = re.compile(
    rf"\x1b\[[0-9;:]*m|{_STRING}|\x1b[ -/]+[0-~]|\x1b[0-OQ-WYZ`-~]|\r(?=\n)|"
    "[\x01-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]"
)
"""Colours, titles, links, character sets, bells, and carriage returns before a line feed."""

_INCOMPLETE: Final = re.compile(r"(?:\r|\x1b(?:[ -/]*|\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?))\Z")
"""The beginning of a sequence at the end of a piece, whose rest comes with the next piece."""

_RETURNS: Final = re.compile(r"\r{2,}")
"""Carriage returns that do the same as one."""

_TOKEN: Final = re.compile(rf"{_CSI}|[\r\b\x1b]|[^\r\b\x1b]+")


class TerminalText:
    """A terminal that gets output in pieces, and returns the lines that no longer change."""

    def __init__(self) -> None:
        self._decoder: Final = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._held = ""
        self._lines = [""]
        self._row = 0
        self._column = 0

    def feed(self, piece: bytes) -> bytes:
        """Add output; return the text that has left the terminal at its top."""
        text = _RETURNS.sub("\r", self._held + self._decoder.decode(piece))
        self._held = ""
        if found := _INCOMPLETE.search(text, max(len(text) - SEQUENCE_CHARS_MAX, 0)):
            text, self._held = text[: found.start()], found[0]
        self._show(text)
        gone = self._leave(self._top)
        if max(map(len, self._lines)) > LINE_CHARS_MAX:
            gone += self._leave(len(self._lines))
        return gone

    def end(self) -> bytes:
        """Return the rest of the text, after the last piece."""
        self._show(self._held + self._decoder.decode(b"", final=True))
        self._held = ""
        text = "\n".join(self._lines)
        self.__init__()
        return text.encode(errors="surrogateescape")

    @property
    def _top(self) -> int:
        """The first line that can still change."""
        return max(len(self._lines) - ROWS, 0)

    def _leave(self, lines: int) -> bytes:
        """Remove so many lines from the top, and return them."""
        if not lines:
            return b""
        gone, self._lines = self._lines[:lines], self._lines[lines:]
        text = "\n".join(gone)
        if self._lines:
            text += "\n"
            self._row -= lines
        else:
            self._lines, self._row, self._column = [""], 0, 0
        return text.encode(errors="surrogateescape")

    def _show(self, text: str) -> None:
        # A NUL parts words, as in the output of `find -print0`.
        text = _INVISIBLE.sub("", text).replace("\0", " ")
        for token in _TOKEN.findall(text):
            match token[0]:
                case "\r":
                    self._column = 0
                case "\b":
                    self._column = max(self._column - 1, 0)
                case "\x1b":
                    self._obey(token)
                case _:
                    first, *lines = token.split("\n")
                    if first:
                        self._write(first)
                    if lines:
                        self._write_lines(lines)

    def _write_lines(self, lines: list[str]) -> None:
        """Write texts, each in a line below the previous one."""
        below = len(self._lines) - 1 - self._row
        for line in lines[:below]:
            self._row += 1
            self._column = 0
            self._write(line)
        if fresh := lines[below:]:
            self._lines += fresh
            self._row = len(self._lines) - 1
            self._column = len(fresh[-1])

    def _write(self, text: str) -> None:
        line, column = self._lines[self._row], self._column
        if len(line) < column:
            line = line.ljust(column)
        self._column = column + len(text)
        self._lines[self._row] = line[:column] + text + line[self._column :]

    def _obey(self, sequence: str) -> None:
        """Carry out a sequence that moves the cursor or erases text; ignore any other one."""
        numbers = [int(n[:9]) if n.isdecimal() else 0 for n in sequence[2:-1].split(";")]
        count = min(max(numbers[0], 1), COLUMNS_MAX)
        match sequence[-1]:
            case "A" | "F":
                self._go(self._row - count)
            case "B" | "E":
                self._go(self._row + count)
            case "C":
                self._column = max(self._column, min(self._column + count, COLUMNS_MAX))
            case "D":
                self._column = max(self._column - count, 0)
            case "G":
                self._column = count - 1
            case "H" | "f":
                self._go(self._top + count - 1)
                self._column = min(max(numbers[-1], 1), COLUMNS_MAX) - 1 if numbers[1:] else 0
            case "J":
                self._erase(numbers[0], whole=True)
            case "K":
                self._erase(numbers[0], whole=False)
            case _:
                return
        if sequence[-1] in "EF":
            self._column = 0

    def _go(self, row: int) -> None:
        top = self._top
        self._row = min(max(row, top), top + ROWS - 1)
        self._lines += [""] * (self._row + 1 - len(self._lines))

    def _erase(self, how: int, *, whole: bool) -> None:
        """Erase the line, or the whole terminal: after the cursor (0), before it (1), or all."""
        line, column, top = self._lines[self._row], self._column, self._top
        # What is before the cursor includes its own cell.
        before = line[:column] if how == 0 else " " * min(column + 1, len(line))
        after = line[column + 1 :] if how == 1 else ""
        self._lines[self._row] = before + after if after else before.rstrip(" ")
        if whole and how != 1:
            del self._lines[self._row + 1 :]
        if whole and how != 0:
            self._lines[top : self._row] = [""] * (self._row - top)


def last_state(output: bytes) -> str:
    """Return what a terminal would show of complete output; invalid UTF-8 is replaced."""
    terminal = TerminalText()
    return (terminal.feed(output) + terminal.end()).decode(errors="replace")
