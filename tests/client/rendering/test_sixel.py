"""Sixels are decoded again into the pixels that they were made of, by a reader of the format."""

import itertools
import re

from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pillow

from support.each import each
from support.pictures import encode
from tiller_client.rendering.images import OPAQUE_MIN, ROWS_MAX, image_lines
from tiller_client.rendering.sixel import BAND_ROWS, CLEAR, COLOURS_MAX, sixels
from tiller_client.rendering.style import CELL, Theme
from tiller_client.rendering.text import on_screen
from tiller_protocol.items import Image

SIXEL = Theme("dark", 256, pictures="sixel")
ROUNDED = 2
"""Colours are told in percent: they differ by this much of 255 at most."""

_ORDER = re.compile(
    r"#(?P<define>\d+);2;(?P<r>\d+);(?P<g>\d+);(?P<b>\d+)|#(?P<use>\d+)"
    r"|!(?P<times>\d+)(?P<repeated>[?-~])|(?P<six>[?-~])|(?P<move>[-$])"
)
_WHOLE = re.compile(r'\x1bP0;1;0q"1;1;(\d+);(\d+)([!-~]*)\x1b\\')

Pixel = tuple[int, int, int]


def drawn(text: str) -> tuple[int, int, dict[tuple[int, int], Pixel]]:
    """Width and height, and the pixels that were drawn, by column and row."""
    found = _WHOLE.fullmatch(text)
    assert found
    palette: dict[int, Pixel] = {}
    pixels: dict[tuple[int, int], Pixel] = {}
    colour = x = top = at = 0
    orders = found[3]
    while at < len(orders):
        order = _ORDER.match(orders, at)
        assert order, orders[at : at + 20]
        at = order.end()
        if order["define"]:
            r, g, b = (round(int(order[part]) * 255 / 100) for part in "rgb")
            palette[int(order["define"])] = (r, g, b)
        elif order["use"]:
            colour = int(order["use"])
        elif order["move"]:
            x, top = 0, top + (6 if order["move"] == "-" else 0)
        else:
            bits = ord(order["repeated"] or order["six"]) - 63
            after = x + int(order["times"] or 1)
            columns, rows = range(x, after), [top + bit for bit in range(6) if bits >> bit & 1]
            new = dict.fromkeys(itertools.product(columns, rows), palette[colour])
            assert not pixels.keys() & new.keys()
            pixels |= new
            x = after
    return int(found[1]), int(found[2]), pixels


def near(one: Pixel, other: Pixel) -> bool:
    return all(abs(a - b) <= ROUNDED for a, b in zip(one, other, strict=True))


PARTS = st.integers(0, 255)
COLOURS = st.lists(st.tuples(PARTS, PARTS, PARTS), min_size=1, max_size=COLOURS_MAX)


@given(COLOURS, st.integers(1, 40), st.integers(1, 20), st.data())
def test_sixels_are_decoded_into_the_pixels_that_they_were_made_of(palette, columns, rows, data):
    index = st.sampled_from([*range(len(palette)), CLEAR])
    size = columns * rows
    some = st.lists(index, min_size=size, max_size=size)
    alike = index.map(lambda one: [one] * size)
    pixels = data.draw(some | alike)
    width, height, found = drawn(sixels(bytes(pixels), columns, palette))
    assert (width, height) == (columns, rows)
    wanted = {
        (at % columns, at // columns): palette[one] for at, one in enumerate(pixels) if one != CLEAR
    }
    assert found.keys() == wanted.keys()
    assert all(near(found[place], wanted[place]) for place in wanted)


@given(st.lists(st.tuples(PARTS, PARTS, PARTS, PARTS), min_size=1, max_size=60), st.integers(1, 12))
def test_an_image_of_few_colours_is_drawn_with_exactly_these(pixels, columns):
    """What is rather transparent than not shows what is behind it."""
    pixels = pixels * columns
    picture = Pillow.new("RGBA", (columns, len(pixels) // columns))
    picture.putdata(pixels)
    line = [*map(on_screen, image_lines(Image("image/png", encode(picture, "PNG")), 60, SIXEL))]
    bands = -(-picture.height // BAND_ROWS)
    rows = -(-bands * BAND_ROWS // CELL[1])
    up = f"\x1b[{rows - 1}A" if rows > 1 else ""
    assert line[: rows - 1] == [""] * (rows - 1)
    assert line[rows - 1].startswith(f"\x1b7{up}\x1bP")
    assert line[rows - 1].endswith("\x1b\\\x1b8")
    found = drawn(line[rows - 1].removeprefix(f"\x1b7{up}").removesuffix("\x1b8"))[2]
    wanted = {
        (at % columns, at // columns): pixel[:3]
        for at, pixel in enumerate(pixels)
        if pixel[3] >= OPAQUE_MIN
    }
    assert found.keys() == wanted.keys()
    assert all(near(found[place], wanted[place]) for place in wanted)


@each("cell", [(1, 2), (7, 14), (10, 20), (11, 23), (24, 50)])
@each("size", [(1, 1), (30, 700), (700, 30), (640, 400)])
def test_sixels_stay_in_the_rows_and_columns_that_are_kept_for_them(size, cell):
    """Whole bands, as a terminal may scroll for the last one."""
    image = Image("image/png", encode(Pillow.effect_noise(size, 90), "PNG"))
    lines = [
        *map(on_screen, image_lines(image, 60, Theme("dark", 256, pictures="sixel", cell=cell)))
    ]
    rows = len(lines) - 1
    assert rows <= ROWS_MAX
    found = _WHOLE.search(lines[-2])
    assert found
    width, height = int(found[1]), int(found[2])
    assert 1 <= width <= 60 * cell[0]
    assert -(-height // 6) * 6 <= rows * cell[1] or rows == ROWS_MAX == -(-6 // cell[1])
