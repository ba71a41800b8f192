"""What the model may have meant: names and lines like the ones it asked for.

Only for the text of failures; nothing is ever changed on a guess.
"""

import os
from itertools import islice
from typing import Final

from rapidfuzz import fuzz, process

from tiller_daemon.workspace.paths import Location, printable

NAMES_MAX: Final = 3
NAMES_LOOKED_AT: Final = 5000
"""How many entries of a directory are compared: some 5 ms."""

WINDOWS_MAX: Final = 2
LINES_LOOKED_AT: Final = 20_000
LINES_COMPARED: Final = 40
"""How many lines of a text that was not found are compared, and of how large a file: 0.2 s."""

SCORE_MIN: Final = 60.0
"""Likeness in percent below which a suggestion would only mislead."""


def similar_names(location: Location) -> list[str]:
    """Return paths beside a missing one that have a name like its own, the likest first."""
    try:
        with os.scandir(location.path.parent) as found:
            names = [one.name for one in islice(found, NAMES_LOOKED_AT)]
    except OSError:
        return []
    directory = location.text.rpartition("/")[0]
    near = process.extract(
        location.path.name, names, scorer=fuzz.WRatio, limit=NAMES_MAX, score_cutoff=SCORE_MIN
    )
    return [printable(f"{directory}/{name}" if directory else name) for name, _, _ in near]


def similar_lines(wanted: str, text: str) -> list[tuple[int, list[str]]]:
    """Return places in `text` that are like `wanted`: the number of the first line, the lines."""
    asked = wanted.strip("\n").split("\n")[:LINES_COMPARED]
    lines = text.split("\n")[:LINES_LOOKED_AT]
    windows = ["\n".join(lines[i : i + len(asked)]) for i in range(len(lines) - len(asked) + 1)]
    near = process.extract(
        "\n".join(asked), windows, scorer=fuzz.ratio, limit=WINDOWS_MAX, score_cutoff=SCORE_MIN
    )
    return [(place + 1, window.split("\n")) for window, _, place in near]
