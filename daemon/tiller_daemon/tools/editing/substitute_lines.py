"""Replacing lines that are in a file but for white space: models often get indentation wrong.

Pure. Only whole lines match, only in one place, and only where it can be said what indentation the
new lines must have. Lines at the beginning and the end of both texts that do not change stay as
they are in the file.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tiller_daemon.tools.base import ToolFailure
from tiller_daemon.tools.editing.lines import Line, join_lines, line_end_at, split_lines
from tiller_daemon.tools.encoding import printable_text

PLACES_SHOWN_MAX: Final = 10


class SubstitutedLines(NamedTuple):
    """The new bytes, the number of the first line that was replaced, and what is there now."""

    data: bytes
    line: int
    now: list[str]


def substitute_lines(data: bytes, old: str, new: str) -> SubstitutedLines | None:
    """Replace the lines that are `old` but for white space; None when there are none such.

    Raises `ToolFailure` when they are there more than once.
    """
    asked, given = _split(old), _split(new)
    if old.endswith("\n") and new and not new.endswith("\n"):
        return None
    text = split_lines(data)
    wanted = [_words(line) for line in asked]
    if not any(wanted):
        return None
    found = _places([_words(line.text) for line in text.lines], wanted)
    if len(found) > 1:
        raise ToolFailure(_ambiguous(found))
    if not found:
        return None
    place = found[0]
    there = text.lines[place : place + len(asked)]
    now = _indented(asked, given, there)
    if now is None:
        return None
    lines = [*text.lines[:place], *now, *text.lines[place + len(asked) :]]
    after = join_lines(text, lines)
    return SubstitutedLines(after, place + 1, [printable_text(line.text) for line in now])


def _split(text: str) -> list[str]:
    """The lines of a text from a model; an empty text has none."""
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
    """The new lines as they are to be in the file; None when that can't be said."""
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
    """How an indentation of the model's text is written in the file, as the old lines show it."""
    pairs = {
        (_indent(line), _indent(found.text))
        for line, found in zip(old, there, strict=True)
        if line.strip()
    }
    known = dict(pairs)
    more = {found.removesuffix(said) if found.endswith(said) else None for said, found in pairs}
    less = {said.removesuffix(found) if said.endswith(found) else None for said, found in pairs}

    def indent(said: str) -> str | None:
        if len(known) < len(pairs):
            return None
        if said in known:
            return known[said]
        if len(more) == 1 and (added := next(iter(more))) is not None:
            return added + said
        if len(less) == 1 and (left := next(iter(less))) and said.startswith(left):
            return said.removeprefix(left)
        return None

    return indent


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _ambiguous(places: Sequence[int]) -> str:
    numbers = ", ".join(str(place + 1) for place in places[:PLACES_SHOWN_MAX])
    more = ", ..." if len(places) > PLACES_SHOWN_MAX else ""
    return (
        f"`old` is nowhere exactly, and but for white space it is there {len(places)} times, at "
        f"lines {numbers}{more}. Give it exactly, with surrounding lines to make it one place."
    )
