"""The points of a session to go back to: before each turn, by revert or fork. Pure."""

from typing import NamedTuple

from tiller_protocol.items import Item, Patch, ToolCall, UserMessage
from tiller_protocol.snapshot import Snapshot


class Point(NamedTuple):
    """The point before a turn."""

    turn_id: str
    """For `revert`."""
    seq: int
    """The last event before it: `at` of `session_fork`."""
    text: str
    """First line of what began the turn, not made safe; empty if nothing was said."""
    at: float
    """Unix seconds when the turn began; 0 if unknown."""
    files: int
    """How many files the turn changed, as far as is known."""
    more_files: bool
    """Whether it may have changed more."""


def points(snapshot: Snapshot) -> list[Point]:
    """The points before all turns, oldest first."""
    marks = [mark for mark in snapshot.marks if mark.step == 0]
    ends = [mark.items for mark in marks[1:]] + [len(snapshot.items)]
    found: list[Point] = []
    for mark, end in zip(marks, ends, strict=False):
        items = snapshot.items[mark.items : end]
        patches = [item for item in items if isinstance(item, Patch)]
        found.append(
            Point(
                mark.turn_id,
                mark.seq,
                next((line for item in items if (line := _first_line(item))), ""),
                mark.at,
                len({path for patch in patches for path in patch.files}),
                any(patch.more or not patch.tree_after for patch in patches),
            )
        )
    return found


def _first_line(item: Item) -> str:
    """What the user wrote, or the command that they ran."""
    match item:
        case UserMessage(text=text):
            lines = (line.strip() for line in text.splitlines())
            return next(filter(None, lines), "") or ", ".join(item.files)
        case ToolCall(by_user=True):
            return f"! {item.title}"
        case _:
            return ""
