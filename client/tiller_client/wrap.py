"""Breaking streamed text between words, where a terminal would break it in their midst; pure."""

import re

from tiller_client.text import cells

_TOKEN = re.compile(r"\n|[^\S\n]+|[\u1100-\u115f\u2e80-\uffdc]|[^\s\u1100-\u115f\u2e80-\uffdc]+")
"""A line end, blanks, a sign of a script that is broken without blanks, or a piece of a word."""

_FENCES = ("```", "~~~")


class Wrap:
    """The lines of one message, as wide as they are so far; its pieces come in any size.

    A word is held until it is known to be whole. Code between fences is left as it is: a line of it
    that the terminal breaks can still be copied whole.
    """

    def __init__(self) -> None:
        self._column = 0
        self._blanks = ""
        self._word = ""
        self._first = True
        self._in_code = False

    @property
    def at_line_start(self) -> bool:
        """Whether nothing stands in the line, and nothing is held for it."""
        return not (self._column or self._blanks or self._word)

    def feed(self, text: str, width: int) -> str:
        """Take the next piece, harmless; return what can be written now."""
        out: list[str] = []
        for piece in _TOKEN.findall(text):
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
        """Return what is held: the message is over, or something else comes in between."""
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
        """The line was ended by somebody else."""
        self._column = 0
