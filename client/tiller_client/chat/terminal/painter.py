"""Draws the live part at the bottom of a terminal, below lines that stay.

Every frame is one write. So a terminal that knows synchronized updates never shows half a frame,
and other terminals hardly ever do. `pace` decides how often a frame is drawn.
"""

import fcntl
import os
import struct
import termios
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tiller_client.rendering.style import width
from tiller_client.rendering.text import on_screen
from tiller_client.streams import encoded

BEGIN = "\x1b[?2026h"
"""Begins a synchronized update; terminals that do not know it ignore it."""

END = "\x1b[?2026l"
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
NO_WRAP, WRAP = "\x1b[?7l", "\x1b[?7h"
ERASE_BELOW = "\x1b[J"
ERASE_REST = "\x1b[K"
MODES_ON, MODES_OFF = "\x1b[?2004h\x1b[?1004h", "\x1b[?2004l\x1b[?1004l"
"""Turn bracketed paste and focus reports on and off."""

ASK = "\x1b[5n"
"""Asks for the terminal's status; the answer means that it has shown all text before this."""

PLAIN = "\x1b[0m"

WINDOW_ON, WINDOW_OFF = "\x1b[?1049h", "\x1b[?1049l"
"""Turn the alternate screen on and off, which has no scrollback; the other one stays as it is."""

HOME = "\x1b[H"

_SIZE = struct.Struct("4H")
"""`struct winsize`: rows and columns, width and height in pixels."""

REFLOWING = (
    *("TMUX", "VTE_VERSION", "KITTY_WINDOW_ID", "WEZTERM_PANE", "ALACRITTY_WINDOW_ID"),
    *("KONSOLE_VERSION", "GHOSTTY_RESOURCES_DIR", "ITERM_SESSION_ID", "WT_SESSION"),
)
"""Variables by which to recognise terminals that wrap their lines anew when they are resized.

Other terminals are assumed to cut lines. If that is wrong, a resize leaves an old row of the live
part behind; the opposite mistake would erase a row above it.
"""


class Frame(NamedTuple):
    """The rows of the live part, with colours, none wider than the terminal, and the cursor."""

    rows: Sequence[str]
    cursor: tuple[int, int]
    """Row and column, from 0."""


class Painter:
    """Draws the live part of one terminal, to which nothing else may write between two frames."""

    def __init__(self, descriptor: int, environ: Mapping[str, str], *, fills: bool = False) -> None:
        """With `fills`, frames fill a window that is opened first, and nothing stays above them."""
        self._fills = fills
        self.is_ours = False
        """Whether the terminal is used now, rather than lent to another program."""
        self._descriptor = descriptor
        self._reflows = any(environ.get(name) for name in REFLOWING)
        self._rows: Sequence[str] = ()
        self._cursor_row = 0
        self._cursor: tuple[int, int] | None = None
        self._size = (0, 0)

    @property
    def size(self) -> tuple[int, int]:
        """The present size of the terminal in columns and rows."""
        try:
            size = os.get_terminal_size(self._descriptor)
        except OSError:
            return 80, 24
        return size.columns or 80, size.lines or 24

    @property
    def cell(self) -> tuple[int, int] | None:
        """The present width and height of a cell in pixels; many terminals do not report them."""
        try:
            answer = fcntl.ioctl(self._descriptor, termios.TIOCGWINSZ, bytes(_SIZE.size))
        except OSError:
            return None
        rows, columns, width, height = _SIZE.unpack(answer)
        cell = width // (columns or 1), height // (rows or 1)
        return cell if all(cell) else None

    def open_window(self) -> None:
        """Show an empty window in place of the lines so far."""
        self.forget()
        self._write(WINDOW_ON + HOME)

    def close_window(self) -> None:
        """Show the lines from before `open_window` again."""
        self._write(WINDOW_OFF)

    def begin(self) -> None:
        """Make the terminal mark pasted text and report the focus, and ask for its status."""
        self.is_ours = True
        self._write(MODES_ON + ASK)

    def end(self, extra: str = "") -> None:
        """Undo the changes of `begin`; `extra` are escapes to write, too."""
        self.is_ours = False
        self._write(MODES_OFF + WRAP + SHOW_CURSOR + extra)

    def paint(
        self,
        above: Sequence[str],
        frame: Frame,
        size: tuple[int, int],
        extra: str = "",
        ask: str = "",
    ) -> bool:
        """Add lines that stay above the live part, and make the live part look like `frame`.

        `size` is the terminal's. If it has changed, everything is drawn, as rows may have moved.

        `extra`, such as a bell or a title, is written unchanged. So is `ask`, if anything else is
        written. Return whether anything was written.
        """
        above = [on_screen(line) for line in above]
        frame = frame._replace(rows=[on_screen(row) for row in frame.rows])
        begin = self._to_top(size[0])
        if above or size != self._size:
            body = ERASE_BELOW + "".join(f"{line}{PLAIN}\r\n" for line in above)
            drawn = "\r\n".join(row + PLAIN for row in frame.rows)
            row = max(0, len(frame.rows) - 1)
        else:
            body, drawn, row = "", *self._difference(frame)
        place = self._place_cursor(frame, row)
        if above or drawn or extra:
            wrap = WRAP if above else ""  # lines that stay may be longer than the terminal is wide
            body = f"{begin}{wrap}{body}{NO_WRAP}{drawn}{WRAP}{place}"
            written = f"{BEGIN}{HIDE_CURSOR}{body}{extra}{END}{ask}"
        elif frame.cursor != self._cursor:
            written = f"{begin}{place}{ask}"
        else:
            written = ""
        self._write(written)
        self._cursor = frame.cursor
        self._rows, self._size = frame.rows, size
        return bool(written)

    def erase(self) -> None:
        """Remove the live part; the cursor is then at its first row."""
        if self._rows:
            self._write(f"{self._to_top(self.size[0])}{ERASE_BELOW}{SHOW_CURSOR}")
        self.forget()

    def forget(self) -> None:
        """Forget the live part, as another program has written to the screen."""
        self._rows, self._cursor_row, self._size = (), 0, (0, 0)

    def _to_top(self, columns: int) -> str:
        """The escape that moves to the first row of the present live part."""
        if self._fills:
            return HOME
        above = self._cursor_row
        if self._reflows and columns < self._size[0]:
            rows = self._rows[: self._cursor_row]
            above = sum(max(1, -(-width(row) // columns)) for row in rows)
        return ("\r" + f"\x1b[{above}A") if above else "\r"

    def _difference(self, frame: Frame) -> tuple[str, int]:
        """The text that turns the rows on the screen into the frame, and the row where it ends."""
        parts: list[str] = []
        at = 0
        for number, row in enumerate(frame.rows):
            if number < len(self._rows) and self._rows[number] == row:
                continue
            # Erase first: after a row that fills the last column, erasing would remove its end.
            parts.append("\r\n" * (number - at) + f"\r{ERASE_REST}{row}{PLAIN}")
            at = number
        if len(frame.rows) < len(self._rows):
            parts.append("\r\n" * (len(frame.rows) - at) + "\r" + ERASE_BELOW)
            at = len(frame.rows)
        return "".join(parts), at

    def _place_cursor(self, frame: Frame, row: int) -> str:
        wanted_row, column = frame.cursor
        self._cursor_row = wanted_row
        up = f"\x1b[{row - wanted_row}A" if row > wanted_row else ""
        down = "\n" * (wanted_row - row)
        right = f"\x1b[{column}C" if column else ""
        return f"\r{up}{down}{right}{SHOW_CURSOR}"

    def _write(self, text: str) -> None:
        data = memoryview(encoded(text))
        while data:
            data = data[os.write(self._descriptor, data) :]
