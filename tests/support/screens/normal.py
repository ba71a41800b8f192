"""Makes all screens of a state equal by replacing the times and paths of a run."""

import re
from collections.abc import Sequence

from pyte.screens import Char

DURATION = r"(?:\d+ min \d+ s|\d+(?:\.\d+)? m?s)(?![\w.])"

BARS = ("━" * 16, "━" * 9 + "┄" * 7, "━" + "┄" * 15)
"""The bars that show when parallel calls ran, one bar for each call."""

_TIMES = (
    (re.compile(rf"(?<=working ){DURATION}"), "8.1 s"),
    (re.compile(rf"(?<=running ){DURATION}"), "2.4 s"),
    (re.compile(rf"(?<=trying again in ){DURATION}"), "42.0 s"),
    (re.compile(rf"(?<= in ){DURATION}(?=:)"), "1 min 0 s"),
    (re.compile(rf"{DURATION}(?= ago)"), "3 min"),
    (re.compile(rf"(?<= for ){DURATION}"), "3.2 s"),
    (re.compile(rf"(?<=model ){DURATION}"), "3.2 s"),
    (re.compile(rf"(?<= ok ){DURATION}"), "120 ms"),
    (re.compile(rf"(?<= exit \d ){DURATION}"), "120 ms"),
    (re.compile(rf"(?<= · ){DURATION}(?=\s*$)"), "12.3 s"),
)
_BAR = re.compile(f"[━┄]{{{len(BARS[0])}}}")


def normalised(rows: Sequence[Sequence[Char]], workspace: str, shown_as: str) -> list[list[Char]]:
    """Return the cells with times replaced, and with another workspace path of the same length."""
    assert len(workspace) == len(shown_as)
    changes = [(re.compile(re.escape(workspace)), shown_as), *_TIMES]
    bars = iter(BARS)
    shown: list[list[Char]] = []
    for row in rows:
        cells = list(row)
        for pattern, text in changes:
            cells = replaced(cells, pattern, text)
        if _BAR.search(_text(cells)):
            cells = _barred(cells, next(bars))
        shown.append(cells)
    return shown


def _text(cells: Sequence[Char]) -> str:
    """Return one character for each cell."""
    return "".join(cell.data[:1] or "\0" for cell in cells)


def replaced(cells: list[Char], pattern: re.Pattern[str], text: str) -> list[Char]:
    """Replace the first match; keep the length of the row and the place of its separate parts."""
    found = pattern.search(_text(cells))
    if found is None or found[0] == text:
        return cells
    begin, end = found.span()
    written = [cells[begin]._replace(data=character) for character in text]
    blank = Char(" ")
    behind, longer = cells[end:], len(text) - (end - begin)
    gap = len(_text(behind)) - len(_text(behind).lstrip(" "))
    if gap > max(1, longer):  # a bar, or the end of the row
        behind = [*[blank] * (gap - longer), *behind[gap:]]
    row = [*cells[:begin], *written, *behind]
    return [*row, *[blank] * len(cells)][: len(cells)]


def _barred(cells: list[Char], bar: str) -> list[Char]:
    """Return a row with another bar, whose characters have their usual colours."""
    found = _BAR.search(_text(cells))
    assert found
    colours = {cell.data: cell.fg for cell in cells[found.start() : found.end()]}
    for at, character in enumerate(bar, found.start()):
        cells[at] = cells[at]._replace(data=character, fg=colours.get(character, cells[at].fg))
    return cells
