"""Suggestions for failures: names and lines that resemble the missing ones.

They only appear in messages; nothing is ever changed on a guess. `rapidfuzz` is imported at the
first failure.
"""

import os
import re
from collections.abc import Iterable
from itertools import islice
from typing import Final

from tiller_daemon.files.paths import Location, PathProblem, opened_directory, printable

NAMES_MAX: Final = 3
NAMES_COMPARED_MAX: Final = 5000
"""How many entries of a directory are compared, in some 15 ms."""

CHARS_PER_MISTAKE: Final = 3
"""Allow one mistyped, missing, added or swapped character for this many characters, as rustc and
git do. More mistakes would give misleading suggestions."""

WORD_CHARS_MIN: Final = 3
"""Two names may have shorter words in common by chance."""

WINDOWS_MAX: Final = 2
FILE_LINES_MAX: Final = 20_000
LINES_COMPARED_MAX: Final = 40
"""How many lines of a missing text are compared with `FILE_LINES_MAX` lines of a file, in 0.2 s."""

LINES_SCORE_MIN: Final = 75.0
"""Similarity in percent that lines need for a suggestion. Any two lines of one program reach some
50."""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question with the known names that resemble `name`; empty if none does.

    It begins with a blank, to follow a sentence.
    """
    return _question(close_names(name, known))


def close_names(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that `name` may mean, the most similar first.

    Such a name differs in few characters, or one of the two names has all the words of the other,
    as `read` and `read_file`.
    """
    distances = ((_distance(name, candidate), candidate) for candidate in known)
    near = sorted((distance, each) for distance, each in distances if distance is not None)
    return [candidate for _, candidate in near[:NAMES_MAX]]


def did_you_mean_path(location: Location) -> str:
    """Return a question with similar names in the directory of a missing file; may be empty."""
    above = location._replace(path=location.path.parent)
    try:
        with opened_directory(above, listed=True) as opened, os.scandir(opened) as entries:
            names = [entry.name for entry in islice(entries, NAMES_COMPARED_MAX)]
    except PathProblem:
        return ""
    directory = location.text.rpartition("/")[0]
    near = close_names(location.path.name, names)
    return _question([printable(f"{directory}/{name}" if directory else name) for name in near])


def similar_lines(wanted: str, text: str) -> list[tuple[int, list[str]]]:
    """Return passages of `text` that resemble `wanted`: the number of the first line, the lines."""
    from rapidfuzz import fuzz, process

    missing = wanted.strip("\n").split("\n")[:LINES_COMPARED_MAX]
    lines = text.split("\n")[:FILE_LINES_MAX]
    windows = ["\n".join(lines[i : i + len(missing)]) for i in range(len(lines) - len(missing) + 1)]
    near = process.extract(
        "\n".join(missing),
        windows,
        scorer=fuzz.ratio,
        limit=WINDOWS_MAX,
        score_cutoff=LINES_SCORE_MIN,
    )
    return [(index + 1, window.split("\n")) for window, _, index in near]


def show_lines(passages: Iterable[tuple[int, list[str]]]) -> str:
    """Return lines with their numbers, in the format of `read`."""
    return "\n...\n".join(
        "\n".join(f"{first + i:>6}\t{line}" for i, line in enumerate(lines))
        for first, lines in passages
    )


def _question(names: list[str]) -> str:
    return f" Did you mean {' or '.join(f'`{name}`' for name in names)}?" if names else ""


def _distance(asked: str, known: str) -> int | None:
    """Return how far apart two names are; None if they are not similar.

    The number of allowed mistakes depends on the length without the extension. Names that differ
    only in the extension are always similar.
    """
    from rapidfuzz.distance import OSA

    one, other = asked.casefold(), known.casefold()
    allowed = len(_stem(one)) // CHARS_PER_MISTAKE
    distance = OSA.distance(one, other)
    if distance <= allowed or _stem(one) == _stem(other):
        return min(distance, allowed)
    if _share_words(_stem(asked), _stem(known)):
        return len(one) + distance
    return None


def _stem(name: str) -> str:
    stem, dot, _ = name.rpartition(".")
    return stem if dot and stem else name


def _share_words(asked: str, known: str) -> bool:
    """Whether all the words of one name are in the other."""
    words, others = _words(asked), _words(known)
    common = words & others
    return max(map(len, common), default=0) >= WORD_CHARS_MIN and common in (words, others)


def _words(name: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(name)}
