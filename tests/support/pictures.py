"""Images for tests, as the bytes of a file."""

import io
import os

from PIL import Image, ImageDraw

SIZE = (120, 80)


def picture(kind: str = "PNG", size: tuple[int, int] = SIZE, mode: str = "RGB", **how: object):
    """Return a drawing: light at the top, dark at the bottom, with a red corner at the top left."""
    drawn = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(drawn)
    draw.rectangle((0, size[1] // 2, *size), fill="navy")
    draw.rectangle((0, 0, size[0] // 4, size[1] // 4), fill="red")
    return encode(drawn.convert(mode), kind, **how)


def noise(kind: str, size: tuple[int, int], **how: object) -> bytes:
    """Return a picture that no encoder can make small."""
    return encode(Image.frombytes("RGB", size, os.urandom(size[0] * size[1] * 3)), kind, **how)


def encode(drawn: Image.Image, kind: str, **how: object) -> bytes:
    into = io.BytesIO()
    drawn.save(into, kind, **how)
    return into.getvalue()


def decode(data: bytes) -> Image.Image:
    """Decode the picture in `data`."""
    found = Image.open(io.BytesIO(data))
    found.load()
    return found
