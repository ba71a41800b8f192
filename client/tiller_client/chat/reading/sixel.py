"""Encodes an image as sixels: bands of six rows of pixels, drawn in one colour after another.

The format is that of the terminal VT340 (https://vt100.net/docs/vt3xx-gp/chapter14.html).
"""

import re
from collections.abc import Iterator, Sequence

BAND_ROWS = 6
"""Rows of pixels in a band; a character has one column of them."""

COLOURS_MAX = 255
"""Colours of an image: terminals know 256 or more."""

CLEAR = 255
"""The index of a pixel that is not drawn, in place of a colour."""

Colour = tuple[int, int, int]
"""Red, green and blue, from 0 to 255."""

_BEGIN, _END = "\x1bP0;1;0q", "\x1b\\"
"""The second parameter leaves pixels alone that are not drawn."""

_REPEATED = re.compile(r"(.)\1{3,}")
_SHOWN = bytes((value + 63) & 127 for value in range(256))
"""The character for the six pixels of a column; the first row is the lowest bit."""

_IS = [bytes(index) + b"\1" + bytes(255 - index) for index in range(COLOURS_MAX)]
"""For each colour a table by which its pixels become 1, all others 0."""


def sixels(pixels: bytes, columns: int, palette: Sequence[Colour]) -> str:
    """The escape that draws an image from the cursor on.

    `pixels` has the index of each pixel's colour in the palette, or `CLEAR`, row by row.
    """
    rows = [pixels[at : at + columns] for at in range(0, len(pixels), columns)]
    percent = [[round(part * 100 / 255) for part in colour] for colour in palette]
    known = "".join(f"#{at};2;{r};{g};{b}" for at, (r, g, b) in enumerate(percent))
    bands = (rows[at : at + BAND_ROWS] for at in range(0, len(rows), BAND_ROWS))
    drawn = "-".join("$".join(_band(band, columns)) for band in bands)
    return f'{_BEGIN}"1;1;{columns};{len(rows)}{known}{drawn}{_END}'


def _band(rows: Sequence[bytes], columns: int) -> Iterator[str]:
    """The pixels of each colour of a band.

    A row is one large number, so that the rows are put together without a loop over pixels.
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
