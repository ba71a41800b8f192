"""Draws the states of `tiller board` into docs/board, and writes a page that shows the pictures.

    .venv/bin/python scripts/board_screens.py

A board's window follows from its state alone, so no daemon runs. Every state is drawn in 100
columns and dark colours; the main states are drawn in all sizes and palettes.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests")]

from support.boards import NOW  # noqa: E402 - found there
from support.chat import cells_of  # noqa: E402
from support.screens.boards import BOARD_SCREENS, BoardScreen  # noqa: E402
from support.screens.drawing import PALETTES, Palette, draw  # noqa: E402
from tiller_client.board.frame import compose  # noqa: E402
from tiller_client.rendering.style import TRUECOLOR, Theme  # noqa: E402
from tiller_client.rendering.text import on_screen  # noqa: E402

DOCS = ROOT / "docs/board"
SIZES = ((100, 30), (60, 24), (200, 34))

READ_S = 1.0
"""For how long the user has looked at a request."""

PAGE = """\
# Every state of `tiller board`

`scripts/board_screens.py` draws these pictures.
[board.md](../board.md) describes the keys.
"""


def picture(one: BoardScreen, size: tuple[int, int], palette: Palette) -> None:
    """Draw a state in a size and a palette."""
    theme = Theme("light" if palette.theme == "light" else "dark", TRUECOLOR)
    frame = compose(one.make(size), size, NOW, READ_S, theme).frame
    cells = cells_of("\r\n".join(map(on_screen, frame.rows)), size)
    name = f"{one.name}-{size[0]}x{size[1]}-{palette.theme}"
    draw(cells, frame.cursor, palette).save(DOCS / f"{name}.png", optimize=True)


def section(one: BoardScreen) -> str:
    """Return the section of the page about a state."""
    names = [
        (f"{columns} columns, {palette.theme}", f"{one.name}-{columns}x{lines}-{palette.theme}.png")
        for columns, lines in SIZES
        for palette in PALETTES
    ]
    also = ", ".join(f"[{text}]({name})" for text, name in names[1:])
    also = f"\n\nAlso: {also}." if one.main else ""
    return f"\n## {one.about}\n\n![{one.about}]({names[0][1]}){also}\n"


def main() -> None:
    """Draw all states, and write the page."""
    DOCS.mkdir(exist_ok=True)
    for one in BOARD_SCREENS:
        for size in SIZES:
            for palette in PALETTES:
                if one.main or (size, palette) == (SIZES[0], PALETTES[0]):
                    picture(one, size, palette)
    (DOCS / "README.md").write_text(PAGE + "".join(map(section, BOARD_SCREENS)))


if __name__ == "__main__":
    main()
