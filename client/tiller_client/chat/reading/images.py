"""Shows images: by the terminal's own protocol where it has one, else as a label.

Pillow decodes them; it is imported with the first image. The pixels are encoded anew, so that a
terminal gets small images of one format, and nothing else that was in a file.
"""

import base64
import io
import warnings
from typing import NamedTuple

from tiller_client.chat.reading.layout import folded
from tiller_client.chat.reading.style import Pictures, Span, Theme
from tiller_client.text import one_line
from tiller_protocol.items import Image

ROWS_MAX = 16
"""Most rows of an image: it is to be recognised, not to fill the screen."""

CELL_WIDTH, CELL_HEIGHT = 10, 20
"""Pixels of a cell, about; an image is not made larger than its own pixels."""

PIXELS_MAX = 50_000_000
"""Larger images are not decoded: this many take up to 200 MB for a moment."""

CHUNK_CHARS = 4_096
"""Most that one escape of kitty's protocol may carry
(https://sw.kovidgoyal.net/kitty/graphics-protocol)."""

_FORMATS = ("PNG", "JPEG", "GIF", "WEBP")


class _Drawing(NamedTuple):
    """An image as a terminal gets it."""

    png: bytes
    columns: int
    rows: int


def image_lines(image: Image, width: int, theme: Theme, name: str = "") -> list[str]:
    """The lines of an image, its label last; only the label where it can't be shown.

    The escapes are in the last row of the image, so that the rows they draw over exist by then.
    They go up, draw, and end in the last row again.
    """
    label = [theme.line(row) for row in folded([Span(image_label(image, name), ("muted",))], width)]
    drawing = None if theme.pictures == "none" else _drawing(image.data, width)
    if drawing is None:
        return label
    up = f"\x1b[{drawing.rows - 1}A" if drawing.rows > 1 else ""
    return [*[""] * (drawing.rows - 1), f"{up}{_escapes(drawing, theme.pictures)}", *label]


def image_label(image: Image, name: str = "") -> str:
    """What an image is: `[image: cat.png, 1280x720, 84 KB]`."""
    kind = "document" if image.is_document else "image"
    extent = f"{image.pages} page{'' if image.pages == 1 else 's'}" if image.pages else ""
    if size := _size(image.data):
        extent = f"{size[0]}x{size[1]}"
    parts = (one_line(name or image.media_type), extent, _bytes(len(image.data)))
    return f"[{kind}: {', '.join(part for part in parts if part)}]"


def _bytes(count: int) -> str:
    """A number of bytes for people, in the units of disks: `84 KB`."""
    if count < 1000:
        return f"{count} B"
    return f"{count / 1000:.0f} KB" if count < 999_500 else f"{count / 1_000_000:.1f} MB"


def _size(data: bytes) -> tuple[int, int] | None:
    """Width and height in pixels, by the header; `None` if it is no image that we know."""
    from PIL import Image as Pillow

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Pillow.DecompressionBombWarning)
            with Pillow.open(io.BytesIO(data), formats=_FORMATS) as picture:
                return picture.size
    except Exception:  # decoders raise whatever broken bytes lead them to
        return None


def _drawing(data: bytes, width: int) -> _Drawing | None:
    """Make an image small enough for its place; `None` if it can't be decoded."""
    size = _size(data)
    if size is None or size[0] * size[1] > PIXELS_MAX or 0 in size:
        return None
    from PIL import Image as Pillow

    scale = min(1.0, width * CELL_WIDTH / size[0], ROWS_MAX * CELL_HEIGHT / size[1])
    pixels = max(1, round(size[0] * scale)), max(1, round(size[1] * scale))
    encoded = io.BytesIO()
    try:
        with Pillow.open(io.BytesIO(data), formats=_FORMATS) as picture:
            small = picture.convert("RGBA")
            small.thumbnail(pixels)
            small.save(encoded, "PNG")
    except Exception:  # as above
        return None
    columns = min(width, -(-pixels[0] // CELL_WIDTH))
    return _Drawing(encoded.getvalue(), columns, min(ROWS_MAX, -(-pixels[1] // CELL_HEIGHT)))


def _escapes(drawing: _Drawing, pictures: Pictures) -> str:
    data = base64.b64encode(drawing.png).decode()
    columns, rows = drawing.columns, drawing.rows
    if pictures == "iterm2":
        place = f"width={columns};height={rows};preserveAspectRatio=1"
        return f"\x1b]1337;File=inline=1;size={len(drawing.png)};{place}:{data}\x07"
    chunks = [data[at : at + CHUNK_CHARS] for at in range(0, len(data), CHUNK_CHARS)]
    # f=100: PNG. a=T: show at once. q=2: no answer, which would look like typed text.
    keys = f"a=T,f=100,q=2,c={columns},r={rows},"
    last = len(chunks) - 1
    return "".join(
        f"\x1b_G{keys if at == 0 else ''}m={int(at < last)};{chunk}\x1b\\"
        for at, chunk in enumerate(chunks)
    )
