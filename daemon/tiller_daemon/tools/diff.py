"""Showing a change of a file as a unified diff, within bounds.

Pure. The standard library's matcher finds the hunks; what is equal at both ends is left out of
its work, so that a small change of a large file is cheap.
"""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final

from tiller_daemon.tools.output import cut_text

CONTEXT_LINES: Final = 3
MATCHED_LINES_MAX: Final = 4000
"""More changed lines than this are shown as one hunk; matching them could take seconds."""

Opcode = tuple[str, int, int, int, int]


def unified_diff(before: str | None, after: str, name: str) -> str:
    """Return the change of file `name` as a unified diff; `before` is None for a new file.

    Empty when nothing changes; a diff beyond what `cut_text` allows lacks its middle.
    """
    old, new = _lines(before or ""), _lines(after)
    hunks = "".join(_hunk(group, old, new) for group in _groups(old, new))
    if not hunks:
        return ""
    source = "/dev/null" if before is None else f"a/{name}"
    return cut_text(f"--- {source}\n+++ b/{name}\n{hunks}")


def _lines(text: str) -> list[str]:
    parts = text.split("\n")
    return [f"{part}\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _groups(old: Sequence[str], new: Sequence[str]) -> Iterator[list[Opcode]]:
    equal = _equal_lines(old, new)
    equal_end = (
        _equal_lines(old[: equal - 1 : -1], new[: equal - 1 : -1])
        if equal
        else (_equal_lines(old[::-1], new[::-1]))
    )
    start = max(equal - CONTEXT_LINES, 0)
    spare = max(equal_end - CONTEXT_LINES, 0)
    a, b = old[start : len(old) - spare], new[start : len(new) - spare]
    if len(a) + len(b) <= MATCHED_LINES_MAX:
        groups = SequenceMatcher(None, a, b).get_grouped_opcodes(CONTEXT_LINES)
    else:
        groups = iter([[("replace", 0, len(a), 0, len(b))]])
    for group in groups:
        yield [(tag, i + start, j + start, k + start, m + start) for tag, i, j, k, m in group]


def _equal_lines(one: Sequence[str], other: Sequence[str]) -> int:
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _hunk(group: list[Opcode], old: Sequence[str], new: Sequence[str]) -> str:
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
    # A span without lines is named by the line before it, as `diff -u` and `patch` have it.
    first = start + 1 if end > start else start
    return str(first) if end - start == 1 else f"{first},{end - start}"


def _marked(mark: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield f"{mark}{line}"
        if not line.endswith("\n"):
            yield "\n\\ No newline at end of file\n"
