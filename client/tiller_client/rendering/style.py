"""The look of lines: spans of text have roles, and themes convert roles to escapes.

`Theme.line` makes every text safe, and `text.on_screen` does so again before it is written. So a
model's or a tool's text never reaches the terminal as an escape, even if another module has a
mistake.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from tiller_client.rendering.colours import COLOURS, Colour
from tiller_client.rendering.text import ESCAPE, cells, sanitized

Kind = Literal["dark", "light", "none"]
Pictures = Literal["kitty", "iterm2", "sixel", "none"]

TRUECOLOR = 1 << 24
"""The number of colours of a terminal that accepts any RGB value."""

CELL = (10, 20)
"""Assumed width and height of a cell in pixels if the terminal does not report them."""

TAB_COLUMNS = 4

LINK_CHARS_MAX = 2_000
"""Longest address of a link; terminals ignore links longer than about 2,083 characters."""

LINKED_SCHEMES = frozenset({"http", "https", "file"})
"""Schemes that a click may open; other schemes can start programs."""

_ESCAPES = re.compile(rf"[\x1b{ESCAPE}](?:\[[0-9;]*m|\]8;[^\x1b{ESCAPE}]*[\x1b{ESCAPE}]\\)")

_EMOJI_SELECTOR = "\ufe0f"
_LINK_END = f"{ESCAPE}]8;;{ESCAPE}\\"


class Span(NamedTuple):
    """A piece of text, its roles (names in `COLOURS` and `_ATTRIBUTES`), and its link."""

    text: str
    roles: tuple[str, ...] = ()
    link: str = ""


Row = list[Span]
"""The spans of one line."""


_ATTRIBUTES = {
    "bold": "1",
    "italic": "3",
    "underline": "4",
    "strike": "9",
}


@dataclass(frozen=True)
class Theme:
    """The look of roles in one terminal, and the terminal's abilities."""

    kind: Kind = "none"
    """The background that the colours are for; `none`: no escapes at all."""
    colours: int = 0
    """The number of colours of the terminal: 0, 16, 256 or `TRUECOLOR`."""
    links: bool = False
    """Whether the terminal supports links (OSC 8)."""
    pictures: Pictures = "none"
    """The terminal's protocol for images."""
    cell: tuple[int, int] = CELL
    """The width and height of a cell in pixels."""

    def line(self, row: Iterable[Span]) -> str:
        """The text of a row with escapes; safe, whatever the row contains."""
        return "".join(map(self._written, row)).rstrip(" ")

    def bold(self, text: str) -> str:
        """Emphasise names and headings in a safe text, as `painted` does."""
        return self.painted(text, "bold")

    def dim(self, text: str) -> str:
        """Colour less important text."""
        return self.painted(text, "muted")

    def good(self, text: str) -> str:
        """Colour texts about success, and added lines."""
        return self.painted(text, "good")

    def bad(self, text: str) -> str:
        """Colour texts about failure, and removed lines."""
        return self.painted(text, "bad")

    def asking(self, text: str) -> str:
        """Colour warnings and questions."""
        return self.painted(text, "asking")

    def painted(self, text: str, *roles: str) -> str:
        """Colour each line separately, so that a colour never outlasts truncated output."""
        codes = ";".join(map(self._code, roles))
        if self.kind == "none" or not codes:
            return text
        lines = text.split("\n")
        return "\n".join(f"{ESCAPE}[{codes}m{line}{ESCAPE}[0m" if line else "" for line in lines)

    def can_link(self, address: str) -> bool:
        """Whether the terminal can show a link to this address."""
        return self.links and self.kind != "none" and is_link(address)

    def _written(self, span: Span) -> str:
        text = safe(span.text)
        painted = self.painted(text, *span.roles)
        if text and span.link and self.can_link(span.link):
            return f"{ESCAPE}]8;;{span.link}{ESCAPE}\\{painted}{_LINK_END}"
        return painted

    def _code(self, role: str) -> str:
        if attribute := _ATTRIBUTES.get(role):
            return attribute
        colour = COLOURS[role]
        if self.colours <= 16:
            return colour.basic
        return _shade(colour, light=self.kind == "light", exact=self.colours == TRUECOLOR)


def safe(text: str) -> str:
    """Sanitize a text of one line, and remove emoji selectors.

    Terminals disagree on whether an emoji selector widens a character.
    """
    if text.isascii() and text.isprintable():
        return text
    text = sanitized(text).replace(_EMOJI_SELECTOR, "").replace("\n", "␊")
    return text.expandtabs(TAB_COLUMNS)


def width(line: str) -> int:
    """The number of columns of a finished line, not counting escapes."""
    return cells(_ESCAPES.sub("", line))


def text_of(row: Iterable[Span]) -> str:
    """The text of a row, without roles."""
    return "".join(span.text for span in row)


def is_link(address: str) -> bool:
    """Whether an address may be a link: short, printable ASCII, with a harmless scheme."""
    if not (address.isascii() and address.isprintable() and len(address) <= LINK_CHARS_MAX):
        return False
    try:
        return urlsplit(address).scheme in LINKED_SCHEMES
    except ValueError:
        return False


def _shade(colour: Colour, *, light: bool, exact: bool) -> str:
    """The code of a colour on a terminal with 256 or more colours."""
    shade = colour.light if light else colour.dark
    if not shade:
        return colour.basic
    layer = 48 if colour.behind else 38
    red, green, blue = (int(shade[at : at + 2], 16) for at in (0, 2, 4))
    if exact:
        return f"{layer};2;{red};{green};{blue}"
    return f"{layer};5;{_nearest(red, green, blue, grey=not colour.behind)}"


def _nearest(red: int, green: int, blue: int, *, grey: bool) -> int:
    """The nearest colour among the 216 of a 256-colour terminal and, if `grey`, its 24 greys."""
    levels = (0, 95, 135, 175, 215, 255)
    cube = [min(range(6), key=lambda at: abs(levels[at] - part)) for part in (red, green, blue)]
    shade = max(0, min(23, round(((red + green + blue) / 3 - 8) / 10)))
    wanted = (red, green, blue)
    by_cube = sum(abs(levels[at] - part) for at, part in zip(cube, wanted, strict=True))
    by_grey = sum(abs(8 + 10 * shade - part) for part in wanted)
    if grey and by_grey < by_cube:
        return 232 + shade
    return 16 + 36 * cube[0] + 6 * cube[1] + cube[2]
