"""The look of lines: spans of text have roles, and themes convert roles to escapes.

`Theme.line` makes every text safe, and `text.on_screen` does so again before it is written. So a
model's or a tool's text never reaches the terminal as an escape, even if another module has a
mistake.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args
from urllib.parse import urlsplit

from tiller_client.rendering.colours import COLOURS, Colour
from tiller_client.rendering.text import ESCAPE, cells, sanitized

Kind = Literal["dark", "light", "none"]
Pictures = Literal["kitty", "iterm2", "sixel", "none"]
PICTURES: tuple[Pictures, ...] = get_args(Pictures)

TRUECOLOR = 1 << 24
"""The number of colours of a terminal that accepts any RGB value."""

CELL = (10, 20)
"""Assumed width and height of a cell in pixels if the terminal does not report them."""

KONSOLE_WITH_SIXELS = 220400
"""Konsole's first version that draws sixels, 22.04, as in `KONSOLE_VERSION`."""

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
    "dim": "2",
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

    def changed(self, mark: str, text: str) -> str:
        """Colour a line of a diff by the `mark` at its beginning."""
        return self.painted(text, {"+": "good", "-": "bad"}.get(mark, "muted"))

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


def theme_for(environ: Mapping[str, str], background: Kind | None = None) -> Theme:
    """The theme for a terminal, by environment variables.

    `TILLER_THEME` is `dark`, `light`, `none` or `auto`. If it is `auto` or not set, the background
    that the terminal has reported decides, else `COLORFGBG`, which some terminals set.
    `TILLER_IMAGES` is one of `PICTURES`. With `NO_COLOR` or `TERM=dumb`, there are no escapes.
    """
    term = environ.get("TERM", "")
    if environ.get("NO_COLOR") or term in ("", "dumb") or environ.get("TILLER_THEME") == "none":
        return Theme()
    kind = _kind_of_variables(environ)
    if background and follows_background(environ):
        kind = background
    # A terminal multiplexer drops images and links unless they are specially wrapped.
    between = "TMUX" in environ or term.startswith(("screen", "tmux"))
    program = environ.get("TERM_PROGRAM", "")
    return Theme(
        kind,
        _colours(environ, term),
        links=not between and _takes_links(environ, term, program),
        pictures=_wished_pictures(environ)
        or ("none" if between else _pictures(environ, term, program)),
    )


def follows_background(environ: Mapping[str, str]) -> bool:
    """Whether the terminal's background decides about the theme, rather than the user."""
    wishes = environ.get("NO_COLOR"), environ.get("TILLER_THEME") in ("dark", "light", "none")
    return not any(wishes)


def _kind_of_variables(environ: Mapping[str, str]) -> Kind:
    """The background by `COLORFGBG`, such as `0;15`: the last number is one of 16 colours."""
    wished = environ.get("TILLER_THEME", "")
    if wished in ("dark", "light"):
        return "light" if wished == "light" else "dark"
    return "light" if environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15") else "dark"


def _colours(environ: Mapping[str, str], term: str) -> int:
    if environ.get("COLORTERM") in ("truecolor", "24bit"):
        return TRUECOLOR
    return 256 if "256color" in term or term.startswith(("xterm-kitty", "alacritty")) else 16


def _takes_links(environ: Mapping[str, str], term: str, program: str) -> bool:
    known = ("iTerm.app", "WezTerm", "ghostty", "vscode", "Hyper", "Tabby", "rio")
    vte = environ.get("VTE_VERSION", "")
    return (
        program in known
        or term.startswith(("xterm-kitty", "xterm-ghostty", "alacritty", "foot"))
        or "WT_SESSION" in environ
        or "KONSOLE_VERSION" in environ
        or (vte.isdecimal() and int(vte) >= 5000)  # since VTE 0.50
    )


def _pictures(environ: Mapping[str, str], term: str, program: str) -> Pictures:
    if "KITTY_WINDOW_ID" in environ or term in ("xterm-kitty", "xterm-ghostty"):
        return "kitty"
    if program == "ghostty":
        return "kitty"
    if program in ("iTerm.app", "WezTerm"):
        return "iterm2"
    konsole = environ.get("KONSOLE_VERSION", "")
    has_sixels = (
        term.startswith(("foot", "mlterm", "contour", "yaft"))
        or program == "mintty"
        or (konsole.isdecimal() and int(konsole) >= KONSOLE_WITH_SIXELS)
    )
    return "sixel" if has_sixels else "none"


def _wished_pictures(environ: Mapping[str, str]) -> Pictures | None:
    wished = environ.get("TILLER_IMAGES", "")
    return next((one for one in PICTURES if one == wished), None)


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
