"""Draws what terminals show over time as an SVG that moves without a script."""

import html
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from pyte.screens import Char

from support.screens.drawing import PALETTES, Colour, colours

FONT_SIZE = 14
CELL_WIDTH, CELL_HEIGHT = 8.4, 18
MARGIN, TITLE_HEIGHT = 12, 26
"""Around each terminal, and above it; the sizes above are in pixels, too."""

LAST_S = 5.0
"""Seconds for which the last frame is shown, before the film begins again."""

PALETTE = PALETTES[0]
FRAME, TITLE = "3c3c3c", "9d9d9d"
"""The colours of the line around a terminal, and of its title."""

Screen = Sequence[Sequence[Char]]


class Frame(NamedTuple):
    """What each terminal shows from a moment on, in seconds."""

    at: float
    screens: Sequence[Screen]


class _Parts:
    """Rows and screens, each of which is in the file only once."""

    def __init__(self) -> None:
        self.defined: list[str] = []
        self._names: dict[str, str] = {}
        self.classes: dict[str, str] = {}

    def row(self, row: Sequence[Char]) -> str:
        """Return the name of a row, or nothing if it is blank."""
        return self._named("".join(self._runs(row)), "r")

    def screen(self, screen: Screen) -> str:
        """Return the name of a screen."""
        names = [self.row(row) for row in screen]
        uses = (_use(name, CELL_HEIGHT * y) for y, name in enumerate(names) if name)
        return self._named("".join(uses), "s")

    def _runs(self, row: Sequence[Char]) -> list[str]:
        """Return the texts of a row, one for each run of cells that look alike."""
        runs: list[str] = []
        x = 0
        for (text, behind, bold), group in groupby(row, _look):
            cells = list(group)
            written = "".join(cell.data for cell in cells)
            left, width = round(x * CELL_WIDTH, 1), round(len(cells) * CELL_WIDTH, 1)
            if behind != colours(Char(" "), PALETTE)[1]:
                place = f'x="{left}" y="-{FONT_SIZE}" width="{width}" height="{CELL_HEIGHT}"'
                runs.append(f'<rect {place} class="{self._fill(behind)}"/>')
            if written.strip():
                looks = f"{self._fill(text)} b" if bold else self._fill(text)
                place = f'x="{left}" textLength="{width}"'
                runs.append(f'<text {place} class="{looks}">{html.escape(written)}</text>')
            x += len(cells)
        return runs

    def _fill(self, colour: Colour) -> str:
        return self.classes.setdefault(
            "#{:02x}{:02x}{:02x}".format(*colour), f"c{len(self.classes)}"
        )

    def _named(self, content: str, kind: str) -> str:
        if content and content not in self._names:
            self._names[content] = f"{kind}{len(self._names)}"
            self.defined.append(f'<g id="{self._names[content]}">{content}</g>')
        return self._names.get(content, "")


def film(frames: Sequence[Frame], titles: Sequence[str], pause_max_s: float) -> str:
    """Return an SVG of terminals of one size, one below the other; it cuts long pauses.

    Whoever wishes no motion, or sees the file in a program that knows none, gets the last frame.
    """
    first = frames[0].screens[0]
    width = round(len(first[0]) * CELL_WIDTH) + 2 * MARGIN
    height = TITLE_HEIGHT + len(first) * CELL_HEIGHT + 2 * MARGIN
    top = TITLE_HEIGHT + MARGIN + FONT_SIZE
    parts = _Parts()
    shown: list[str] = []
    for number, frame in enumerate(frames):
        names = [parts.screen(screen) for screen in frame.screens]
        uses = (_use(name, height * at + top) for at, name in enumerate(names) if name)
        shown.append(f'<g transform="translate({width * number})">{"".join(uses)}</g>')
    moves, duration = _moves(frames, width, pause_max_s)
    fills = "".join(f".{name}{{fill:{colour}}}" for colour, name in parts.classes.items())
    windows = "".join(_window(title, width, height * at, height) for at, title in enumerate(titles))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" '
            f'viewBox="0 0 {width} {height * len(titles)}" '
            f'font-family="ui-monospace,SFMono-Regular,Menlo,DejaVu Sans Mono,Consolas,monospace" '
            f'font-size="{FONT_SIZE}">',
            f"<style>text{{white-space:pre}}.b{{font-weight:bold}}{fills}",
            f".film{{transform:translateX(-{width * (len(frames) - 1)}px);"
            f"animation:film {duration:.1f}s step-end infinite}}",
            f"@keyframes film{{{moves}}}",
            "@media (prefers-reduced-motion:reduce){.film{animation:none}}</style>",
            f"<defs>{''.join(parts.defined)}</defs>",
            windows,
            f'<svg x="{MARGIN}" width="{width - 2 * MARGIN}"><g class="film">',
            *shown,
            "</g></svg></svg>\n",
        ]
    )


def _look(cell: Char) -> tuple[Colour, Colour, bool]:
    return (*colours(cell, PALETTE), cell.bold)


def _use(name: str, y: int) -> str:
    return f'<use href="#{name}" y="{y}"/>'


def _window(title: str, width: int, top: int, height: int) -> str:
    return (
        f'<rect x="1" y="{top + 1}" width="{width - 2}" height="{height - 6}" rx="8" '
        f'fill="#{PALETTE.background}" stroke="#{FRAME}"/>'
        f'<text x="{width // 2}" y="{top + 19}" fill="#{TITLE}" text-anchor="middle">{title}</text>'
    )


def _moves(frames: Sequence[Frame], width: int, pause_max_s: float) -> tuple[str, float]:
    """Return the keyframes that show one frame after another, and the duration in seconds."""
    starts = [0.0]
    for before, frame in pairwise(frames):
        starts.append(starts[-1] + min(frame.at - before.at, pause_max_s))
    duration = starts[-1] + LAST_S
    moves = (
        f"{start / duration:.3%}{{transform:translateX(-{number * width}px)}}"
        for number, start in enumerate(starts)
    )
    return "".join(moves), duration
