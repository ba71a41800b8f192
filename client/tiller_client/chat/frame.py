"""Puts the live part together: what still changes, the queue, the question, the editor; pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from tiller_client.chat.terminal.painter import Frame


@dataclass(frozen=True)
class Parts:
    """The rows of each part, with colours, none wider than the terminal."""

    live: Sequence[str] = ()
    """What still changes in the conversation."""
    queue: Sequence[str] = ()
    """Input that waits."""
    question: Sequence[str] = ()
    """The answers to choose from, or a menu."""
    editor: Sequence[str] = ()
    """The text that is being written."""
    cursor: tuple[int, int] | None = None
    """Row and column in `editor`."""
    menu: Sequence[str] = ()
    """Completions of what is being written."""
    status: Sequence[str] = ()
    """The last rows."""


LIVE_ROWS_MIN = 2
"""Rows that the live part keeps on a small terminal; the other parts are more urgent."""


def compose(parts: Parts, height: int) -> Frame:
    """The frame for a terminal with this many rows; the live part shows its end."""
    below: list[str] = []
    if parts.queue:
        below += parts.queue
    if parts.question:
        below += ["", *parts.question]
    below.append("")
    editor_row = len(below)
    below += parts.editor
    below += parts.menu
    below += parts.status
    # A row stays free, so that what was printed last can be seen.
    left = max(LIVE_ROWS_MIN, height - 1 - len(below))
    live = list(parts.live[-left:])
    rows = [*live, *below]
    dropped = max(0, len(rows) - height)
    cursor = None
    if parts.cursor is not None:
        cursor = (max(0, len(live) + editor_row + parts.cursor[0] - dropped), parts.cursor[1])
    return Frame(rows[dropped:], cursor)
