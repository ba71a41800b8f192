"""Replaces lines that differ from `old` only in white space: models often get indentation wrong.

Pure. Only whole lines match, only in one place, and only if the indentation of the new lines can be
derived. Lines that are equal at the beginning or the end of `old` and `new` stay as they are in the
file.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tiller_daemon.tools.base import ToolFailure
from tiller_daemon.tools.editing.lines import (
    Line,
    join_lines,
    line_end_at,
    listed_numbers,
    split_lines,
)
from tiller_daemon.tools.encoding import printable_text


class SubstitutedLines(NamedTuple):
    """The new bytes, the number of the first replaced line, and the lines there now."""

    data: bytes
    line: int
    now: list[str]


def substitute_lines(data: bytes, old: str, new: str) -> SubstitutedLines | None:
    """Replace the lines that differ from `old` only in white space; None if there are none.

    Raises `ToolFailure` if they occur more than once.
    """
    old_lines, new_lines = _split(old), _split(new)
    if old.endswith("\n") and new and not new.endswith("\n"):
        return None
    text = split_lines(data)
    wanted = [_words(line) for line in old_lines]
    if not any(wanted):
        return None
    places = _places([_words(line.text) for line in text.lines], wanted)
    if len(places) > 1:
        raise ToolFailure(_ambiguous(places))
    if not places:
        return None
    place = places[0]
    end = place + len(old_lines)
    now = _indented(old_lines, new_lines, text.lines[place:end])
    if now is None:
        return None
    lines = [*text.lines[:place], *now, *text.lines[end:]]
    after = join_lines(text, lines)
    return SubstitutedLines(after, place + 1, [printable_text(line.text) for line in now])


def _split(text: str) -> list[str]:
    """Return the lines of a text from a model; an empty text has none."""
    plain = text.replace("\r\n", "\n").removesuffix("\n")
    return plain.split("\n") if text else []


def _words(line: str) -> str:
    return " ".join(line.split())


def _places(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    count = len(wanted)
    return [
        place
        for place in range(len(lines) - count + 1)
        if lines[place] == wanted[0] and lines[place : place + count] == wanted
    ]


def _indented(old: Sequence[str], new: Sequence[str], there: Sequence[Line]) -> list[Line] | None:
    """Return the new lines with the indentation of the file; None if it can't be derived.

    `there` are the lines of the file that `old` matches.
    """
    shorter = min(len(old), len(new))
    first = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    left = shorter - first
    last = next((i for i in range(left) if old[-1 - i] != new[-1 - i]), left)
    indents = _indents(old, there)
    changed: list[Line] = []
    for number, line in enumerate(new[first : len(new) - last], start=first):
        end = line_end_at(there, number)
        if not line.strip():
            changed.append(Line(line, end))
            continue
        indent = indents(_indent(line))
        if indent is None:
            return None
        changed.append(Line(indent + line.lstrip(), end))
    return [*there[:first], *changed, *there[len(there) - last :]]


def _indents(old: Sequence[str], there: Sequence[Line]) -> Callable[[str], str | None]:
    """Return a function that maps an indentation in the model's text to the one in the file.

    An indentation of the old lines is mapped as in those lines. Any other gets the prefix added or
    removed by which all old lines differ from the file.
    """
    pairs = {
        (_indent(line), _indent(actual.text))
        for line, actual in zip(old, there, strict=True)
        if line.strip()
    }
    known = dict(pairs)
    added = {real.removesuffix(model) if real.endswith(model) else None for model, real in pairs}
    removed = {model.removesuffix(real) if model.endswith(real) else None for model, real in pairs}

    def indent(model: str) -> str | None:
        if len(known) < len(pairs):
            return None  # One indentation of the model stands for several of the file.
        if model in known:
            return known[model]
        if len(added) == 1 and (prefix := next(iter(added))) is not None:
            return prefix + model
        if len(removed) == 1 and (prefix := next(iter(removed))) and model.startswith(prefix):
            return model.removeprefix(prefix)
        return None

    return indent


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _ambiguous(places: Sequence[int]) -> str:
    numbers = listed_numbers([place + 1 for place in places])
    return (
        f"`old` does not occur as given. It occurs {len(places)} times with other white space, at "
        f"lines {numbers}. Give it exactly, with surrounding lines to make it unique."
    )
