"""Lists the points in a session to which a revert or fork can go back: before each turn. Pure."""

from typing import NamedTuple

from tiller_protocol.items import Item, Patch, ToolCall, UserMessage
from tiller_protocol.snapshot import Snapshot


class Point(NamedTuple):
    """The point before a turn."""

    turn_id: str
    """The id of the turn, for `revert`."""
    seq: int
    """The number of the last event before the turn, which is `at` in `session_fork`."""
    text: str
    """The first line of the input that began the turn, not made safe; empty if there was none."""
    prompt: str
    """The whole message that began the turn; empty if there was none."""
    at: float
    """Unix seconds when the turn began; 0 if unknown."""
    files: int
    """The number of files that the turn is known to have changed."""
    more_files: bool
    """Whether the turn may have changed more files."""


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
                next((item.text for item in items if isinstance(item, UserMessage)), ""),
                mark.at,
                len({path for patch in patches for path in patch.files}),
                any(patch.more or not patch.tree_after for patch in patches),
            )
        )
    return found


def _first_line(item: Item) -> str:
    """The first line of the user's text or command."""
    match item:
        case UserMessage(text=text):
            lines = (line.strip() for line in text.splitlines())
            return next(filter(None, lines), "") or ", ".join(item.files)
        case ToolCall(by_user=True):
            return f"! {item.title}"
        case _:
            return ""
