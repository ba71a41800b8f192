"""Composes the live part: changing lines, the queue, the question, the editor, status; pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from tiller_client.chat.terminal.painter import Frame


@dataclass(frozen=True)
class Parts:
    """The rows of each part of the frame, with colours, none wider than the terminal."""

    live: Sequence[str] = ()
    """The lines of the conversation that still change."""
    queue: Sequence[str] = ()
    """The queued inputs."""
    question: Sequence[str] = ()
    """The answers to the open request, or a menu."""
    chosen: int = 0
    """The position of the chosen row in `question`."""
    editor: Sequence[str] = ()
    """The text in the editor."""
    cursor: tuple[int, int] = (0, 0)
    """The cursor's row and column in `editor`."""
    menu: Sequence[str] = ()
    """The images that the text names, and the completions of the word before the cursor."""
    status: Sequence[str] = ()
    """The status, in the last rows."""


LIVE_ROWS_MIN = 2
"""Minimum number of rows for `live` on a small terminal, where the other parts come first."""


def _around(rows: Sequence[str], chosen: int, room: int) -> Sequence[str]:
    """As many of the rows as there is room for, with the chosen one."""
    first = max(0, min(chosen - room // 2, len(rows) - room))
    return rows[first : first + room]


def compose(parts: Parts, height: int) -> Frame:
    """Compose the frame for a terminal with `height` rows; long parts are cut."""
    others = len(parts.editor) + len(parts.menu) + len(parts.status)
    below = [*parts.queue]
    if parts.question:
        below += ["", *_around(parts.question, parts.chosen, max(1, height - 1 - others))]
    below.append("")
    editor_row = len(below)
    below += parts.editor
    below += parts.menu
    below += parts.status
    # One row stays free, so that the last printed line can be seen.
    left = max(LIVE_ROWS_MIN, height - 1 - len(below))
    live = parts.live[-left:]
    rows = [*live, *below]
    dropped = max(0, len(rows) - height)
    row, column = parts.cursor
    return Frame(rows[dropped:], (max(0, len(live) + editor_row + row - dropped), column))
