"""Shows the change of a file as a unified diff. Pure.

`difflib` finds the hunks. It does not get the lines that are equal at both ends, so a small change
to a large file is cheap.
"""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final, Literal

CONTEXT_LINES: Final = 3
MATCHED_LINES_MAX: Final = 4000
"""More changed lines than this are shown as one hunk; matching them could take seconds."""

Opcode = tuple[Literal["replace", "delete", "insert", "equal"], int, int, int, int]


def unified_diff(before: str | None, after: str | None, name: str) -> str:
    """Return the change of file `name` as a unified diff; None stands for a missing file.

    Empty if nothing changes. The diff is whole, as the user may have to approve it.
    """
    old, new = _lines(before or ""), _lines(after or "")
    groups = _Matcher(old, new).get_grouped_opcodes(CONTEXT_LINES)
    hunks = "".join(_hunk(group, old, new) for group in groups)
    if not hunks:
        return ""
    name = name.replace("\n", "␊")  # what follows would look like lines of the diff
    source = "/dev/null" if before is None else f"a/{name}"
    target = "/dev/null" if after is None else f"b/{name}"
    return f"--- {source}\n+++ {target}\n{hunks}"


def _lines(text: str) -> list[str]:
    parts = text.split("\n")
    return [f"{part}\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


class _Matcher(SequenceMatcher[str]):
    """Compares texts without the lines that are equal at both ends."""

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        super().__init__()
        self._old, self._new = old, new

    def get_opcodes(self) -> list[Opcode]:
        """Return how the old lines become the new ones."""
        old, new = self._old, self._new
        start = _equal_lines(old, new)
        spare = _equal_lines(old[start:][::-1], new[start:][::-1])
        old_end, new_end = len(old) - spare, len(new) - spare
        opcodes: list[Opcode] = [("equal", 0, start, 0, start)] if start else []
        if old_end - start + new_end - start <= MATCHED_LINES_MAX:
            middle = SequenceMatcher(None, old[start:old_end], new[start:new_end]).get_opcodes()
            for tag, i, j, k, m in middle:
                opcodes.append((tag, i + start, j + start, k + start, m + start))
        else:
            opcodes.append(("replace", start, old_end, start, new_end))
        if spare:
            opcodes.append(("equal", old_end, len(old), new_end, len(new)))
        return opcodes


def _equal_lines(one: Sequence[str], other: Sequence[str]) -> int:
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _hunk(
    group: Sequence[tuple[str, int, int, int, int]], old: Sequence[str], new: Sequence[str]
) -> str:
    _, old_start, _, new_start, _ = group[0]
    _, _, old_end, _, new_end = group[-1]
    pieces = [f"@@ -{_span(old_start, old_end)} +{_span(new_start, new_end)} @@\n"]
    for tag, i, j, k, m in group:
        if tag == "equal":
            pieces.extend(_marked(" ", old[i:j]))
        else:
            pieces.extend(_marked("-", old[i:j]))
            pieces.extend(_marked("+", new[k:m]))
    return "".join(pieces)


def _span(start: int, end: int) -> str:
    # `diff -u` and `patch` number an empty span by the line before it.
    first = start + 1 if end > start else start
    return str(first) if end - start == 1 else f"{first},{end - start}"


def _marked(mark: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield f"{mark}{line}"
        if not line.endswith("\n"):
            yield "\n\\ No newline at end of file\n"
