"""A table of the colours of each role, for dark and light backgrounds.

Colours of text have a contrast of at least 4.5 to black or white (WCAG 2.2, level AA).
"""

from typing import NamedTuple


class Colour(NamedTuple):
    """A colour: its code among the 16 basic colours, and its RGB values in hexadecimal."""

    basic: str
    """The code in the terminal's own palette; empty: the terminal's own text colour."""
    dark: str = ""
    """The RGB colour on a dark background; empty: `basic`."""
    light: str = ""
    """The RGB colour on a light background; empty: `basic`."""
    behind: bool = False
    """Whether the colour is for the background."""


COLOURS = {
    # States and marks.
    "good": Colour("32", "7fc77f", "1a7f37"),
    "bad": Colour("31", "ff8080", "cf222e"),
    "asking": Colour("33", "e5c07b", "8a5a00"),
    "muted": Colour("2", "9aa0a8", "656d76"),
    "user": Colour("36", "7dcfff", "0b6e99"),
    "agent": Colour("35", "c9a6ff", "7b3fbf"),
    # Prose.
    "heading": Colour("36", "7dcfff", "0b6e99"),
    "code": Colour("36", "9cdcfe", "0550ae"),
    "link": Colour("34", "7aa2f7", "0550ae"),
    # Code.
    "keyword": Colour("35", "c792ea", "8250df"),
    "string": Colour("32", "a5d6a7", "116329"),
    "comment": Colour("2", "8b949e", "656d76"),
    "number": Colour("33", "f0a868", "953800"),
    "name": Colour("34", "82aaff", "0550ae"),
    "type": Colour("36", "7fdbca", "0b6e6e"),
    # Changes: the colour of the text with 16 colours, otherwise of the background.
    "added": Colour("32", "12351f", "dafbe1", behind=True),
    "removed": Colour("31", "42181b", "ffebe9", behind=True),
    "added_word": Colour("1;4", "1f7f2a", "aceebb", behind=True),
    "removed_word": Colour("1;4", "8a2a2a", "ffb8b3", behind=True),
}
