"""Applies the hunks of a patch to the bytes of one file. Pure.

Each hunk is searched for after the previous one: first exactly, then ignoring blanks at the ends of
lines, then also at their beginnings, then taking typographic characters for plain ones. The file
keeps its own context lines, encoding and line ends, and a missing line end at its end.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from tiller_daemon.tools.base import ToolFailure
from tiller_daemon.tools.editing.lines import Line, join_lines, line_end_at, split_lines
from tiller_daemon.tools.editing.patch_format import Hunk, Mark
from tiller_daemon.tools.encoding import printable_text
from tiller_daemon.tools.suggestions import show_lines, similar_lines

_PLAIN: Final = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f", '"'),
        **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a", " "),
        **dict.fromkeys("\u202f\u205f\u3000", " "),
    }
)
"""Characters that word processors and models write in place of plain ones."""

_LOOKS: Final[tuple[Callable[[str], str], ...]] = (
    str,
    str.rstrip,
    str.strip,
    lambda line: line.strip().translate(_PLAIN),
)
"""Lines are compared after each of these normalizations, the strictest first."""


class _Replacement(NamedTuple):
    """`length` lines of the file from index `start` on, and the lines of the hunk for them."""

    start: int
    length: int
    lines: Sequence[tuple[Mark, str]]


class MissingHunk(ToolFailure):
    """A hunk whose lines are not in the file; `explain_missing_hunk` finds similar lines."""

    def __init__(self, what: str, wanted: str, lines: Sequence[str], place: int) -> None:
        quoted = "\n".join(f"       \t{line}" for line in wanted.split("\n"))
        super().__init__(f"{what}\n{quoted}")
        self.wanted, self.lines, self.place = wanted, lines, place


def apply_hunks(data: bytes, hunks: Sequence[Hunk], name: str) -> bytes:
    """Return the file `name` with all hunks applied.

    Raises `MissingHunk` if the lines of a hunk are not in the file, and `EncodingProblem`.
    """
    text = split_lines(data)
    replacements = _find_all([line for line, _ in text.lines], hunks, name)
    return join_lines(text, _replaced(text.lines, replacements))


def explain_missing_hunk(missing: MissingHunk) -> str:
    """Return a message for the model: where the lines are instead, or the most similar ones.

    Takes up to 0.2 s.
    """
    lines, place = missing.lines, missing.place
    if place and _seek(lines, missing.wanted.split("\n"), 0, at_end=False) is not None:
        return (
            f"{missing}\nThe file has such lines only before line {place + 1}, where this search "
            "began. Put hunks in the order of the file, and do not let them overlap."
        )
    near = similar_lines(missing.wanted, printable_text("\n".join(lines)))
    if not near:
        return f"{missing}\nThe file has no such lines, and nothing similar. Read it again."
    return f"{missing}\nThe file has no such lines. The most similar ones are:\n{show_lines(near)}"


def _find_all(lines: Sequence[str], hunks: Sequence[Hunk], name: str) -> list[_Replacement]:
    replacements: list[_Replacement] = []
    place = 0
    for number, hunk in enumerate(hunks, start=1):
        where = f"Hunk {number} of {name} (line {hunk.number} of the patch)"
        for context in hunk.context:
            at = _seek(lines, [context], place, at_end=False)
            if at is None:
                raise MissingHunk(f"{where} should come after this line:", context, lines, place)
            place = at + 1
        replacement = _find(lines, hunk, place)
        if replacement is None:
            wanted = "\n".join(text for mark, text in hunk.lines if mark != "+")
            raise MissingHunk(f"{where} should change these lines:", wanted, lines, place)
        if replacement.length:
            place = replacement.start + replacement.length
        replacements.append(replacement)
    return replacements


def _find(lines: Sequence[str], hunk: Hunk, place: int) -> _Replacement | None:
    wanted = [text for mark, text in hunk.lines if mark != "+"]
    if not wanted:
        # As in codex, a hunk that only adds lines adds them at the end of the file.
        return _Replacement(len(lines), 0, hunk.lines)
    at = _seek(lines, wanted, place, at_end=hunk.at_end)
    if at is not None:
        return _Replacement(at, len(wanted), hunk.lines)
    if wanted[-1]:
        return None
    # An empty last line may stand for the line end of the line before.
    last = max(i for i, (mark, _) in enumerate(hunk.lines) if mark != "+")
    rest = tuple(line for i, line in enumerate(hunk.lines) if i != last)
    at = _seek(lines, wanted[:-1], place, at_end=hunk.at_end)
    return None if at is None else _Replacement(at, len(wanted) - 1, rest)


def _seek(lines: Sequence[str], wanted: Sequence[str], place: int, *, at_end: bool) -> int | None:
    """Return the first place of `wanted` from `place` on, by the strictest comparison."""
    last = len(lines) - len(wanted)
    first = max(last, place) if at_end else place
    for look in _LOOKS:
        normalized = [look(line) for line in wanted]
        for at in range(first, last + 1):
            if all(look(lines[at + i]) == line for i, line in enumerate(normalized)):
                return at
    return None


def _replaced(lines: Sequence[Line], replacements: Sequence[_Replacement]) -> list[Line]:
    after: list[Line] = []
    place = 0
    # Sorting is stable: lines that several hunks add at the end of the file keep their order.
    for start, new in sorted(_changes(replacements), key=lambda change: change[0]):
        added = [text for mark, text in new if mark == "+"]
        gone = len(new) - len(added)
        after += lines[place:start]
        # A new line gets the line end of the line that it replaces.
        last = max(gone - 1, 0)
        after += [
            Line(text, line_end_at(lines, start + min(i, last))) for i, text in enumerate(added)
        ]
        place = start + gone
    return [*after, *lines[place:]]


def _changes(replacements: Sequence[_Replacement]) -> Iterator[tuple[int, list[tuple[Mark, str]]]]:
    """Yield each run of removed and added lines, and the place where it begins."""
    for replacement in replacements:
        place = replacement.start
        for is_context, run in groupby(replacement.lines, key=lambda line: line[0] == " "):
            new = list(run)
            if not is_context:
                yield place, new
            place += sum(mark != "+" for mark, _ in new)
