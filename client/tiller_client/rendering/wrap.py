"""Wraps streamed text between words, as a terminal would break it within words; pure."""

import re

from tiller_client.rendering.text import cells, one_line

_PIECE = r"\n|[^\S\n]+|[\u1100-\u115f\u2e80-\uffdc]|[^\s\u1100-\u115f\u2e80-\uffdc]+"
"""Matches a newline, spaces, a character of a script that wraps anywhere, or a piece of a word.

Compiling this takes 2 ms, so it is compiled only when text is wrapped.
"""

INDENT = "  "

_FENCES = ("```", "~~~")


def pieces(text: str) -> list[str]:
    """Split a text at each place where a line can be broken, and before and after blanks."""
    return re.findall(_PIECE, text)


def wrapped(text: str, width: int) -> str:
    """Wrap a whole message between words."""
    wrap = Wrap()
    return wrap.feed(text, width) + wrap.rest(width)


def sentence(mark: str, message: str, columns: int) -> str:
    """Wrap a message after its mark, between words; indent later rows by the mark's width."""
    text = wrapped(one_line(message), columns - len(mark))
    return mark + text.replace("\n", "\n" + " " * len(mark))


def hanging(line: str, columns: int) -> str:
    """Break a line without colours between words if it is too long, and indent the further rows."""
    if cells(line) <= columns:
        return line
    return wrapped(line, columns - len(INDENT)).replace("\n", "\n" + INDENT)


class Wrap:
    """Wraps one message, which arrives in pieces of any size.

    A word is buffered until it is complete. Code between fences is not wrapped: a line that the
    terminal itself breaks can still be copied as one line.
    """

    def __init__(self) -> None:
        self._column = 0
        self._blanks = ""
        self._word = ""
        self._first = True
        self._in_code = False

    @property
    def at_line_start(self) -> bool:
        """Whether the line is empty, with nothing buffered for it."""
        return not (self._column or self._blanks or self._word)

    def feed(self, text: str, width: int) -> str:
        """Add the next sanitized piece; return what can be written now."""
        out: list[str] = []
        for piece in pieces(text):
            if piece == "\n":
                out += [self.rest(width), "\n"]
                self._column, self._first = 0, True
            elif piece.isspace():
                if self._word:
                    out.append(self.rest(width))
                self._blanks += piece
            else:
                if self._word and cells(piece[0]) == 2:
                    out.append(self.rest(width))
                self._word += piece
        return "".join(out)

    def rest(self, width: int) -> str:
        """Return the buffered text; call this before other text and at the end of the message."""
        blanks, word = self._blanks, self._word
        self._blanks = self._word = ""
        if self._first and word:
            self._first = False
            if word.startswith(_FENCES):
                self._in_code = not self._in_code
        needed = cells(blanks) + cells(word)
        fits = self._column + needed <= width or cells(word) > width
        if fits or not word or self._in_code or not self._column:
            self._column += needed
            return blanks + word
        self._column = cells(word)
        return "\n" + word

    def start_line(self) -> None:
        """Note that the caller has ended the line."""
        self._column = 0
