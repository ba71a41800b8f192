"""Applying the hunks of a patch to the bytes of one file; lines that no hunk changes stay.

Pure. A hunk is looked for behind the one before it: exactly, then without the blanks at line ends,
then without those around lines, then with typographic characters taken for plain ones. Lines of
context keep what they are in the file. So do encoding, line ends, and a missing last one.
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
"""What word processors and models make of plain characters."""

_LOOKS: Final[tuple[Callable[[str], str], ...]] = (
    str,
    str.rstrip,
    str.strip,
    lambda line: line.strip().translate(_PLAIN),
)
"""How lines are compared, the strictest way first."""


class _Replacement(NamedTuple):
    """From line `start` on, `lines` are replaced; a mark and a new line each."""

    start: int
    length: int
    lines: Sequence[tuple[Mark, str]]


class MissingHunk(ToolFailure):
    """A hunk whose lines are not in the file; `explain_missing_hunk` says what there is instead."""

    def __init__(self, said: str, wanted: str, lines: Sequence[str], place: int) -> None:
        quoted = "\n".join(f"       \t{line}" for line in wanted.split("\n"))
        super().__init__(f"{said}\n{quoted}\nwhich are not there")
        self.wanted, self.lines, self.place = wanted, lines, place


def apply_hunks(data: bytes, hunks: Sequence[Hunk], name: str) -> bytes:
    """Return the file `name` with all hunks applied.

    Raises `MissingHunk` for one that is not there, and `EncodingProblem`.
    """
    text = split_lines(data)
    found = _find_all([line for line, _ in text.lines], hunks, name)
    return join_lines(text, _replaced(text.lines, found))


def explain_missing_hunk(missing: MissingHunk) -> str:
    """Return what to tell the model: where the lines are instead, or what is most like them.

    Takes up to 0.2 s.
    """
    lines, place = missing.lines, missing.place
    if place and _seek(lines, missing.wanted.split("\n"), 0, at_end=False) is not None:
        return (
            f"{missing} behind line {place}, but before it: put hunks in the order of the file, "
            "and do not let them overlap."
        )
    near = similar_lines(missing.wanted, printable_text("\n".join(lines)))
    if not near:
        return f"{missing}. Nothing in the file is like that; read it again."
    return f"{missing}. The likest lines are:\n{show_lines(near)}"


def _find_all(lines: Sequence[str], hunks: Sequence[Hunk], name: str) -> list[_Replacement]:
    found: list[_Replacement] = []
    place = 0
    for number, hunk in enumerate(hunks, start=1):
        where = f"Hunk {number} of {name} (line {hunk.number} of the patch)"
        for context in hunk.context:
            at = _seek(lines, [context], place, at_end=False)
            if at is None:
                raise MissingHunk(f"{where} comes after the line", context, lines, place)
            place = at + 1
        one = _find(lines, hunk, place)
        if one is None:
            wanted = "\n".join(text for mark, text in hunk.lines if mark != "+")
            raise MissingHunk(f"{where} changes the lines", wanted, lines, place)
        if one.length:
            place = one.start + one.length
        found.append(one)
    return found


def _find(lines: Sequence[str], hunk: Hunk, place: int) -> _Replacement | None:
    wanted = [text for mark, text in hunk.lines if mark != "+"]
    if not wanted:
        # As codex has it: what only adds, adds to the end of the file.
        return _Replacement(len(lines), 0, hunk.lines)
    at = _seek(lines, wanted, place, at_end=hunk.at_end)
    if at is not None:
        return _Replacement(at, len(wanted), hunk.lines)
    if wanted[-1]:
        return None
    # An empty line at its end stands for the end of the last line.
    last = max(i for i, (mark, _) in enumerate(hunk.lines) if mark != "+")
    rest = tuple(line for i, line in enumerate(hunk.lines) if i != last)
    at = _seek(lines, wanted[:-1], place, at_end=hunk.at_end)
    return None if at is None else _Replacement(at, len(wanted) - 1, rest)


def _seek(lines: Sequence[str], wanted: Sequence[str], place: int, *, at_end: bool) -> int | None:
    """Return where `wanted` is at `place` or behind it, in the strictest way that finds it."""
    last = len(lines) - len(wanted)
    first = max(last, place) if at_end else place
    for look in _LOOKS:
        asked = [look(line) for line in wanted]
        for at in range(first, last + 1):
            if all(look(lines[at + i]) == line for i, line in enumerate(asked)):
                return at
    return None


def _replaced(lines: Sequence[Line], found: Sequence[_Replacement]) -> list[Line]:
    after: list[Line] = []
    place = 0
    # What two hunks add at one place, the end of the file, comes in the order of the patch.
    for start, new in sorted(_changes(found), key=lambda change: change[0]):
        added = [text for mark, text in new if mark == "+"]
        gone = len(new) - len(added)
        after += lines[place:start]
        # A line ends like the one whose place it takes.
        last = max(gone - 1, 0)
        after += [
            Line(text, line_end_at(lines, start + min(i, last))) for i, text in enumerate(added)
        ]
        place = start + gone
    return [*after, *lines[place:]]


def _changes(found: Sequence[_Replacement]) -> Iterator[tuple[int, list[tuple[Mark, str]]]]:
    """Give each run of lines that go or come, and where it begins."""
    for replacement in found:
        place = replacement.start
        for is_context, run in groupby(replacement.lines, key=lambda line: line[0] == " "):
            new = list(run)
            if not is_context:
                yield place, new
            place += sum(mark != "+" for mark, _ in new)
