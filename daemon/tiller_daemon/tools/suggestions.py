"""What somebody may have meant: names and lines like the ones that were asked for.

Only for the text of failures; nothing is ever changed on a guess. `rapidfuzz` is imported with the
first failure.
"""

import os
import re
from collections.abc import Iterable
from itertools import islice
from typing import Final

from tiller_daemon.files.paths import Location, PathProblem, opened_parent, printable

NAMES_MAX: Final = 3
NAMES_LOOKED_AT: Final = 5000
"""How many entries of a directory are compared: some 15 ms."""

CHARS_PER_MISTAKE: Final = 3
"""One mistyped, missing, added or swapped character for so many, as rustc and git allow; with more
of them the suggestion would only mislead."""

WORD_CHARS_MIN: Final = 3
"""A shorter word in common says nothing."""

WINDOWS_MAX: Final = 2
LINES_LOOKED_AT: Final = 20_000
LINES_COMPARED: Final = 40
"""How many lines of a text that was not found are compared, and of how large a file: 0.2 s."""

LINES_SCORE_MIN: Final = 75.0
"""Likeness in percent below which lines are others, not the wanted ones with a slip in them:
any two lines of one program are alike to some 50."""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question with the known names that are close to `name`, else an empty text.

    It begins with a blank, to be put behind a sentence.
    """
    return _question(close_names(name, known))


def close_names(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that may be meant by `name`, the likest first.

    Such a one differs by few characters, or has all the words of the other: `read` and `read_file`.
    """
    found = ((_distance(name, one), one) for one in known)
    near = sorted((distance, one) for distance, one in found if distance is not None)
    return [one for _, one in near[:NAMES_MAX]]


def did_you_mean_path(location: Location) -> str:
    """Return a question with the paths beside a missing one that have a name like its own."""
    try:
        with opened_parent(location) as (parent, _):
            names = _names(parent)
    except PathProblem:
        return ""
    directory = location.text.rpartition("/")[0]
    near = close_names(location.path.name, names)
    return _question([printable(f"{directory}/{name}" if directory else name) for name in near])


def similar_lines(wanted: str, text: str) -> list[tuple[int, list[str]]]:
    """Return places in `text` that are like `wanted`: the number of the first line, the lines."""
    from rapidfuzz import fuzz, process

    asked = wanted.strip("\n").split("\n")[:LINES_COMPARED]
    lines = text.split("\n")[:LINES_LOOKED_AT]
    windows = ["\n".join(lines[i : i + len(asked)]) for i in range(len(lines) - len(asked) + 1)]
    near = process.extract(
        "\n".join(asked),
        windows,
        scorer=fuzz.ratio,
        limit=WINDOWS_MAX,
        score_cutoff=LINES_SCORE_MIN,
    )
    return [(place + 1, window.split("\n")) for window, _, place in near]


def show_lines(places: Iterable[tuple[int, list[str]]]) -> str:
    """Return lines with their numbers, as `read` shows them."""
    return "\n...\n".join(
        "\n".join(f"{first + i:>6}\t{line}" for i, line in enumerate(lines))
        for first, lines in places
    )


def _names(directory: int) -> list[str]:
    opened = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        with os.scandir(opened) as found:
            return [one.name for one in islice(found, NAMES_LOOKED_AT)]
    finally:
        os.close(opened)


def _question(names: list[str]) -> str:
    return f" Did you mean {' or '.join(f'`{name}`' for name in names)}?" if names else ""


def _distance(asked: str, known: str) -> int | None:
    """How far apart two names are; None for names that nobody would take for each other.

    What stands behind the last dot is no reason to allow more mistakes, and if it is all that
    differs it is none.
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
