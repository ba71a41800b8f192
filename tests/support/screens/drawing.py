"""Draws the screen of a terminal in a palette, as a picture with few colours."""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont
from pyte.screens import Char

FONT_SIZE = 15
CELL_WIDTH, CELL_HEIGHT = 9, 19
MARGIN = 12
"""The margin in pixels; the sizes above are in pixels, too."""

COLOURS_MAX = 128
"""Colours in a picture: enough for smooth letters, few enough for a small file."""

FAINT = 0.6
"""The share of its own colour in faint text; the rest is the background's."""

FONTS = ("DejaVuSansMono", "DejaVuSansMono", "DejaVuSans", "DroidSansFallbackFull")
"""Fonts to search for a character, in order; only the first has bold and slanted letters."""

MISSING = "\uffff"
"""A character that no font has."""

PACKAGES = "fonts-dejavu-core, fonts-dejavu-extra and fonts-droid-fallback"

_NAMES = ("black", "red", "green", "brown", "blue", "magenta", "cyan", "white")
"""pyte's names of the colours 0 to 7; colours from 8 on are their bright versions."""


class Palette(NamedTuple):
    """The colours of a terminal, as red, green and blue in hexadecimal."""

    theme: str
    """The value of `TILLER_THEME` for this palette."""
    text: str
    background: str
    sixteen: str
    """The sixteen colours, separated by blanks."""


PALETTES = (
    Palette(
        "dark",
        "d4d4d4",
        "1e1e1e",
        "000000 cd3131 0dbc79 e5e510 2472c8 bc3fbc 11a8cd e5e5e5"
        " 666666 f14c4c 23d18b f5f543 3b8eea d670d6 29b8db ffffff",
    ),
    Palette(
        "light",
        "333333",
        "ffffff",
        "000000 cd3131 107c10 949800 0451a5 bc05bc 0598bc 555555"
        " 666666 cd3131 14ce14 b5ba00 0451a5 bc05bc 0598bc a5a5a5",
    ),
)
"""The palettes of VS Code's terminal."""

Colour = tuple[int, int, int]


class MissingFont(Exception):
    """A font is not installed."""


def draw(
    rows: Sequence[Sequence[Char]], cursor: tuple[int, int] | None, palette: Palette
) -> Image.Image:
    """Draw the picture of a terminal; may raise `MissingFont`."""
    size = len(rows[0]) * CELL_WIDTH + 2 * MARGIN, len(rows) * CELL_HEIGHT + 2 * MARGIN
    image = Image.new("RGB", size, _rgb(palette.background))
    drawing = ImageDraw.Draw(image)
    for y, row in enumerate(rows):
        for x, cell in enumerate(row):
            if cell.data:  # a wide character has drawn this cell as well
                is_wide = x + 1 < len(row) and not row[x + 1].data
                _draw_cell(drawing, (x, y), cell, 1 + is_wide, palette, is_cursor=cursor == (y, x))
    return image.quantize(COLOURS_MAX, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)


def _draw_cell(
    drawing: ImageDraw.ImageDraw,
    place: tuple[int, int],
    cell: Char,
    cells: int,
    palette: Palette,
    *,
    is_cursor: bool,
) -> None:
    text, behind = colours(cell, palette)
    if is_cursor:
        text, behind = behind, text
    left, top = MARGIN + place[0] * CELL_WIDTH, MARGIN + place[1] * CELL_HEIGHT
    right, bottom = left + cells * CELL_WIDTH - 1, top + CELL_HEIGHT - 1
    drawing.rectangle((left, top, right, bottom), behind)
    if cell.data != " ":
        font = _font(cell.data, bold=cell.bold, slanted=cell.italics)
        # Some characters come from fonts in which they are narrower or wider than a cell.
        shift = max(0, (cells * CELL_WIDTH - round(font.getlength(cell.data))) // 2)
        baseline = top + CELL_HEIGHT - 5
        drawing.text((left + shift, baseline), cell.data, text, font, anchor="ls")
    if cell.underscore:
        drawing.line((left, bottom - 2, right, bottom - 2), text)
    if cell.strikethrough:
        drawing.line((left, top + CELL_HEIGHT // 2, right, top + CELL_HEIGHT // 2), text)


def colours(cell: Char, palette: Palette) -> tuple[Colour, Colour]:
    """Return the colours of a cell's text and of its background."""
    text = _colour(cell.fg, palette, palette.text)
    behind = _colour(cell.bg, palette, palette.background)
    if cell.blink:  # blinking stands for faint text
        text = _mixed(text, behind, FAINT)
    return (behind, text) if cell.reverse else (text, behind)


@cache
def _font(character: str, *, bold: bool, slanted: bool) -> ImageFont.FreeTypeFont:
    """Return the first font that has a character."""
    style = ("Bold" if bold else "") + ("Oblique" if slanted else "")
    names = (f"{FONTS[0]}-{style}" if style else FONTS[0], *FONTS[1:])
    fonts = [_loaded(name) for name in names]
    return next((font for font in fonts if _has(font, character)), fonts[0])


@cache
def _loaded(name: str) -> ImageFont.FreeTypeFont:
    try:
        return ImageFont.truetype(f"{name}.ttf", FONT_SIZE)
    except OSError:
        raise MissingFont(f"{name}.ttf is not installed; Debian has it in {PACKAGES}") from None


def _has(font: ImageFont.FreeTypeFont, character: str) -> bool:
    """Whether a font has a character and does not draw the box of a missing one."""
    drawn: list[bytes] = []
    for one in (character[0], MISSING):
        image = Image.new("1", (3 * FONT_SIZE, 3 * FONT_SIZE))
        ImageDraw.Draw(image).text((0, 0), one, 1, font)
        drawn.append(image.tobytes())
    return drawn[0] != drawn[1]


def _colour(name: str, palette: Palette, default: str) -> Colour:
    """Convert a colour as pyte names it: `default`, one of sixteen, or hexadecimal."""
    if name == "default":
        return _rgb(default)
    base = name.removeprefix("bright")
    if base in _NAMES:
        number = _NAMES.index(base) + (8 if base != name else 0)
        return _rgb(palette.sixteen.split()[number])
    return _rgb(name)


def _rgb(code: str) -> Colour:
    return int(code[:2], 16), int(code[2:4], 16), int(code[4:], 16)


def _mixed(one: Colour, other: Colour, share: float) -> Colour:
    red, green, blue = (round(a * share + b * (1 - share)) for a, b in zip(one, other, strict=True))
    return red, green, blue
