"""Encodes an image as sixels: bands of six pixel rows, drawn in one colour after another.

The format comes from the VT340 terminal (https://vt100.net/docs/vt3xx-gp/chapter14.html).
"""

import re
from collections.abc import Iterator, Sequence

BAND_ROWS = 6
"""Rows of pixels in a band; each character encodes one column of a band."""

COLOURS_MAX = 255
"""Maximum number of colours in an image: terminals have 256 or more."""

CLEAR = 255
"""The value, instead of a colour's index, of a pixel that is not drawn."""

Colour = tuple[int, int, int]
"""Red, green and blue, from 0 to 255."""

_BEGIN, _END = "\x1bP0;1;0q", "\x1b\\"
"""The escapes around the sixels; the second parameter keeps the screen where nothing is drawn."""

_REPEATED = re.compile(r"(.)\1{3,}")
_SHOWN = bytes((value + 63) & 127 for value in range(256))
"""The character for the six pixels of a column, in which the first row is the lowest bit."""

_IS = [bytes(index) + b"\1" + bytes(255 - index) for index in range(COLOURS_MAX)]
"""For each colour, a table that translates its pixels to 1 and all others to 0."""


def sixels(pixels: bytes, columns: int, palette: Sequence[Colour]) -> str:
    """The escape that draws an image at the cursor.

    `pixels` has the index of each pixel's colour in the palette, or `CLEAR`, row by row.
    """
    rows = [pixels[at : at + columns] for at in range(0, len(pixels), columns)]
    percent = [[round(part * 100 / 255) for part in colour] for colour in palette]
    known = "".join(f"#{at};2;{r};{g};{b}" for at, (r, g, b) in enumerate(percent))
    bands = (rows[at : at + BAND_ROWS] for at in range(0, len(rows), BAND_ROWS))
    drawn = "-".join("$".join(_band(band, columns)) for band in bands)
    return f'{_BEGIN}"1;1;{columns};{len(rows)}{known}{drawn}{_END}'


def _band(rows: Sequence[bytes], columns: int) -> Iterator[str]:
    """The pixels of a band, for each colour.

    Each row is treated as one large number, so that no loop over pixels is needed.
    """
    for index in sorted(set(b"".join(rows)) - {CLEAR}):
        bits = 0
        for number, row in enumerate(rows):
            if index in row:
                bits |= int.from_bytes(row.translate(_IS[index])) << number
        text = bits.to_bytes(columns).translate(_SHOWN).decode().rstrip("?")
        yield f"#{index}{_REPEATED.sub(_repeated, text)}"


def _repeated(found: re.Match[str]) -> str:
    return f"!{len(found[0])}{found[1]}"
