"""Reads the daemon's unified diffs: the hunks, and the whole texts of the changed files. Pure."""

import re
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from tiller_client.acp.updates import FileDiff

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NOTHING = "/dev/null"


class Hunk(NamedTuple):
    """One changed part of a file."""

    path: str
    """The absolute path of the file."""
    start: int
    """How many lines of the old text are before the hunk."""
    line: int
    """The first line in the new text, from 1; the line before it if no new line is left."""
    before: Sequence[str]
    """The old lines, with their newlines."""
    after: Sequence[str]
    """The new lines, with their newlines."""
    is_new: bool
    """Whether the file is new."""
    is_gone: bool
    """Whether the file is deleted."""


class _Open:
    """A hunk while its lines are read.

    Its end is known from the line counts in its header, as lines of a file may look like headers.
    """

    def __init__(self, header: re.Match[str]) -> None:
        self.old_left, self.new_left = (int(header[at] or "1") for at in (2, 4))
        self.start = int(header[1]) - (1 if self.old_left else 0)
        self.line = int(header[3])
        self.before: list[str] = []
        self.after: list[str] = []
        self._last: tuple[list[str], ...] = ()

    def take(self, line: str) -> bool:
        """Add a line; return false if it is not part of the hunk."""
        mark = line[:1]
        if mark == "\\" and self._last:
            for side in self._last:
                side[-1] = side[-1].removesuffix("\n")
            self._last = ()
            return True
        old, new = mark in (" ", "-"), mark in (" ", "+")
        if not (old or new) or old > self.old_left or new > self.new_left:
            return False
        self.old_left -= old
        self.new_left -= new
        self._last = (self.before,) * old + (self.after,) * new
        for side in self._last:
            side.append(f"{line[1:]}\n")
        return True


def hunks_of(diff: str, workspace: str) -> list[Hunk]:
    """The hunks of a unified diff; empty if any line is not part of it, as in a cut diff."""
    found: list[Hunk] = []
    opened: _Open | None = None
    source = target = ""
    lines = [*diff.removesuffix("\n").split("\n"), ""]  # the empty line ends the last hunk
    for number, line in enumerate(lines, 1):
        if opened and opened.take(line):
            continue
        if opened:
            if opened.old_left or opened.new_left:
                return []
            # A deleted file keeps its old name.
            name = source if target == _NOTHING else target
            found.append(
                Hunk(
                    str(Path(workspace) / name[2:]),
                    opened.start,
                    opened.line,
                    opened.before,
                    opened.after,
                    source == _NOTHING,
                    target == _NOTHING,
                )
            )
        header = _HUNK.fullmatch(line) if target else None
        if header:
            opened = _Open(header)
        elif line.startswith("--- ") and (opened or not source):
            source, target, opened = line[4:], "", None
        elif line.startswith("+++ ") and source and not target:
            target = line[4:]
        elif number < len(lines) or not opened:
            return []
    return found


def whole_files(hunks: Sequence[Hunk], read: Callable[[str], str | None]) -> list[FileDiff]:
    """One diff with the whole texts for each file; empty if a file is not as the hunks expect it.

    `read` returns the text of a file before the change; None if there is none.
    """
    found: list[FileDiff] = []
    for path, grouped in groupby(hunks, key=lambda hunk: hunk.path):
        parts = list(grouped)
        first = parts[0]
        text = "".join(first.before) if first.is_new or first.is_gone else read(path)
        after = None if text is None else _changed(text, parts)
        if after is None:
            return []
        found.append(FileDiff(path, after, None if first.is_new else text))
    return found


def _changed(text: str, hunks: Sequence[Hunk]) -> str | None:
    """The text with the hunks applied; None if they do not fit."""
    *whole, last = text.split("\n")
    lines = [f"{line}\n" for line in whole] + ([last] if last else [])
    made: list[str] = []
    at = 0
    for hunk in hunks:
        end = hunk.start + len(hunk.before)
        if hunk.start < at or lines[hunk.start : end] != hunk.before:
            return None
        made += [*lines[at : hunk.start], *hunk.after]
        at = end
    return "".join([*made, *lines[at:]])
