"""Shows images: by the terminal's image protocol if it has one, else as a label.

Pillow, which is imported with the first image, decodes them. The pixels are encoded anew, so that
a terminal gets small images in one format, and nothing else from the file.
"""

import base64
import io
import warnings
from typing import TYPE_CHECKING, NamedTuple

from tiller_client.rendering.layout import folded
from tiller_client.rendering.sixel import BAND_ROWS, CLEAR, COLOURS_MAX, sixels
from tiller_client.rendering.style import Pictures, Span, Theme
from tiller_client.rendering.text import ESCAPE, counted, one_line
from tiller_protocol.items import Image

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

ROWS_MAX = 16
"""Maximum height of an image in rows: enough to recognise it without filling the screen."""

OPAQUE_MIN = 128
"""Lowest opacity, of 255, at which a pixel is drawn as a sixel."""

_SEE_THROUGH = bytes([255] * OPAQUE_MIN + [0] * (256 - OPAQUE_MIN))

PIXELS_MAX = 50_000_000
"""Maximum number of pixels of an image to decode: this many take up to 200 MB for a moment."""

CHUNK_CHARS = 4_096
"""Maximum number of characters in an escape sequence of kitty's protocol
(https://sw.kovidgoyal.net/kitty/graphics-protocol)."""

_FORMATS = ("PNG", "JPEG", "GIF", "WEBP")


class _Drawing(NamedTuple):
    """An image in the form for the terminal."""

    data: bytes
    """A PNG, or the escape with the sixels."""
    columns: int
    rows: int


def image_lines(image: Image, width: int, theme: Theme) -> list[str]:
    """The lines of an image, with its label last; only the label if the image can't be shown.

    The escapes are in the last row of the image, so that the rows that they draw over exist by
    then. They move up, draw, and return to the last row. After sixels, some terminals leave the
    cursor elsewhere, so the escapes restore its position.
    """
    label = [theme.line(row) for row in folded([Span(image_label(image), ("muted",))], width)]
    drawing = None if theme.pictures == "none" else _drawing(image.data, width, theme)
    if drawing is None:
        return label
    escapes = _escapes(drawing, theme.pictures).replace("\x1b", ESCAPE)
    return [*[""] * (drawing.rows - 1), escapes, *label]


def image_label(image: Image) -> str:
    """A description of an image: `[image: image/png, 1280x720, 84 KB]`."""
    kind = "document" if image.is_document else "image"
    extent = counted(image.pages, "page") if image.pages else ""
    if size := _size(image.data):
        extent = f"{size[0]}x{size[1]}"
    parts = (one_line(image.media_type), extent, _bytes(len(image.data)))
    return f"[{kind}: {', '.join(part for part in parts if part)}]"


def _bytes(count: int) -> str:
    """A number of bytes for people, in decimal units: `84 KB`."""
    if count < 1000:
        return f"{count} B"
    return f"{count / 1000:.0f} KB" if count < 999_500 else f"{count / 1_000_000:.1f} MB"


def _size(data: bytes) -> tuple[int, int] | None:
    """The width and height in pixels, from the header; `None` for an unknown format."""
    from PIL import Image as Pillow

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Pillow.DecompressionBombWarning)
            with Pillow.open(io.BytesIO(data), formats=_FORMATS) as picture:
                return picture.size
    except Exception:  # decoders may raise anything on broken bytes
        return None


def _drawing(data: bytes, width: int, theme: Theme) -> _Drawing | None:
    """Scale an image down to the available space; `None` if it can't be decoded.

    A smaller image keeps its size.
    """
    size = _size(data)
    if size is None or size[0] * size[1] > PIXELS_MAX or 0 in size:
        return None
    from PIL import Image as Pillow

    cell_width, cell_height = theme.cell
    band = BAND_ROWS if theme.pictures == "sixel" else 1
    height = max(band, ROWS_MAX * cell_height // band * band)
    scale = min(1.0, width * cell_width / size[0], height / size[1])
    pixels = max(1, round(size[0] * scale)), max(1, round(size[1] * scale))
    try:
        with Pillow.open(io.BytesIO(data), formats=_FORMATS) as picture:
            small = picture.convert("RGBA")
            small.thumbnail(pixels)
            encoded = _sixels(small) if theme.pictures == "sixel" else _png(small)
    except Exception:  # as above
        return None
    columns = min(width, -(-pixels[0] // cell_width))
    whole_bands = -(-pixels[1] // band) * band
    return _Drawing(encoded, columns, min(ROWS_MAX, -(-whole_bands // cell_height)))


def _png(picture: "Picture") -> bytes:
    encoded = io.BytesIO()
    picture.save(encoded, "PNG")
    return encoded.getvalue()


def _sixels(picture: "Picture") -> bytes:
    from PIL import Image as Pillow

    few = picture.convert("RGB").quantize(COLOURS_MAX)
    alpha = picture.getchannel("A").tobytes().translate(_SEE_THROUGH)
    few.paste(CLEAR, mask=Pillow.frombytes("L", picture.size, alpha))
    flat = (few.getpalette() or [])[: 3 * COLOURS_MAX]
    palette = list(zip(flat[::3], flat[1::3], flat[2::3], strict=True))
    return sixels(few.tobytes(), few.width, palette).encode()


def _escapes(drawing: _Drawing, pictures: Pictures) -> str:
    columns, rows = drawing.columns, drawing.rows
    up = f"\x1b[{rows - 1}A" if rows > 1 else ""
    if pictures == "sixel":
        return f"\x1b7{up}{drawing.data.decode()}\x1b8"
    data = base64.b64encode(drawing.data).decode()
    if pictures == "iterm2":
        place = f"width={columns};height={rows};preserveAspectRatio=1"
        return f"{up}\x1b]1337;File=inline=1;size={len(drawing.data)};{place}:{data}\x1b\\"
    chunks = [data[at : at + CHUNK_CHARS] for at in range(0, len(data), CHUNK_CHARS)]
    # f=100: PNG. a=T: show at once. q=2: send no answer, which would look like typed text.
    keys = f"a=T,f=100,q=2,c={columns},r={rows},"
    last = len(chunks) - 1
    return up + "".join(
        f"\x1b_G{keys if at == 0 else ''}m={int(at < last)};{chunk}\x1b\\"
        for at, chunk in enumerate(chunks)
    )
