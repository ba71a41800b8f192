"""Reads the terminal's input: keys, pasted text, and the terminal's own reports.

prompt-toolkit waits for the rest of a key that began with Esc until nothing has come for a while.
But while an answer streams, the terminal reports its status after each frame. So here, each Esc
has a deadline of its own.
"""

import asyncio
import select
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import groupby
from typing import TextIO

from prompt_toolkit.input.posix_utils import PosixStdinReader
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

from tiller_client.chat.terminal.sequences import (
    ANSWER_SEQUENCE,
    PASTE_END,
    given_up,
    is_pasting,
    split,
)

ESCAPE_S = 0.05
"""How long after an Esc the rest of another key may come; terminals send both at once."""

REST_S = 0.5
"""How long after its beginning the rest of a longer sequence may come, for example through ssh."""

LINE_BREAK = "\n"
"""The data of an Enter that more text follows at once, so that nobody can have pressed it."""

IN_TEXTS = (Keys.Enter, Keys.ControlJ, Keys.Tab)
"""The named keys that stand for characters of a text."""

PASTE_GAP_S = 0.01
"""How long the next piece of a pasted text takes at most; a person needs longer for a key."""

TYPED_AHEAD_BYTES_MAX = 256
"""What a person may type until the chat reads keys; more has been pasted."""


class Keyboard(Vt100Input):
    """The keyboard of a terminal."""

    def __init__(self, stdin: TextIO) -> None:
        super().__init__(stdin)
        # Terminals send UTF-8 in the C locale as well; what is not a character is shown as bytes.
        encoding = "utf-8" if stdin.encoding in ("ascii", "us-ascii") else stdin.encoding
        self.stdin_reader = PosixStdinReader(self.fileno(), "replace", encoding)
        self.answered: Callable[[], None] = lambda: None
        """Called for each answer from the terminal."""
        self.reported: Callable[[str], None] = lambda _: None
        """Called with each other report, such as the colour of the terminal's background."""
        self.is_ignored = False
        """Whether to ignore keys, as the user has left."""
        self._begun = ""
        """The beginning of a sequence, whose rest may come until `_deadline`."""
        self._begun_at = self._deadline = 0.0
        """By `time.monotonic`."""
        self._ready: Callable[[], None] | None = None
        """Lets the application read the keys."""
        self._timer: asyncio.TimerHandle | None = None

    def attach(self, input_ready_callback: Callable[[], None]) -> AbstractContextManager[None]:
        """Call back when bytes have come, and at the deadline of an Esc."""
        self._ready = input_ready_callback
        return super().attach(input_ready_callback)

    def detach(self) -> AbstractContextManager[None]:
        """Read nothing while another program has the terminal."""
        if self._timer is not None:
            self._timer.cancel()
        return super().detach()

    def read_keys(self) -> list[KeyPress]:
        """Return the typed keys, without the terminal's answers, even those within a paste.

        Without bracketed paste, a pasted text arrives as keys. So if text follows an Enter at once,
        the Enter is a `LINE_BREAK`.
        """
        keys = self._read()
        if any(press.key is Keys.Enter for press in keys):
            while self._more_follows():
                keys += self._read()
        return [] if self.is_ignored else _with_line_breaks(keys)

    def _read(self) -> list[KeyPress]:
        keys: list[KeyPress] = []
        if self._begun and not is_pasting(self._begun) and time.monotonic() >= self._deadline:
            keys, self._begun = given_up(self._begun), ""
        read, before = self.stdin_reader.read(), self._begun
        if is_pasting(before) and PASTE_END not in before[1 - len(PASTE_END) :] + read:
            self._begun += read
            return keys
        more, reports, self._begun = split(before + read)
        for report in reports:
            if report == ANSWER_SEQUENCE:
                self.answered()
            else:
                self.reported(report)
        if more or reports or not before:
            self._begun_at = time.monotonic()
        self._wait()
        return [*keys, *more]

    def _wait(self) -> None:
        """Read again at the latest when the rest of what has begun is late."""
        self._deadline = self._begun_at + (REST_S if self._begun.strip("\x1b") else ESCAPE_S)
        if self._timer is not None:
            self._timer.cancel()
        if self._begun and self._ready is not None:
            loop = asyncio.get_running_loop()
            left_s = max(0.0, self._deadline - time.monotonic())
            self._timer = loop.call_later(left_s, self._ready)

    def _more_follows(self) -> bool:
        return not self.closed and bool(select.select([self.fileno()], [], [], PASTE_GAP_S)[0])


def _with_line_breaks(keys: Sequence[KeyPress]) -> list[KeyPress]:
    """Return the keys, with each Enter that text follows as a `LINE_BREAK`.

    Such an Enter and the text around it become one key, as thousands of keys would take too long.
    """
    pressed: list[KeyPress] = []
    for is_text, run in groupby(keys, _is_text):
        text = list(run)
        last = [text.pop()] if is_text and text[-1].key is Keys.Enter else []
        if is_text and any(press.key is Keys.Enter for press in text):
            if text[0].key is Keys.Enter:  # may be for a menu
                pressed.append(KeyPress(Keys.Enter, LINE_BREAK))
                del text[0]
            written = "".join(press.data for press in text).replace("\r", LINE_BREAK)
            text = [KeyPress(Keys.Any, written)] if written else []
        pressed += [*text, *last]
    return pressed


def _is_text(press: KeyPress) -> bool:
    return press.key in IN_TEXTS or not isinstance(press.key, Keys)


def type_ahead(keyboard: Keyboard, typed: bytes) -> None:
    """Let the keyboard return these keys, typed earlier, before all later ones."""
    keys, _, begun = split(typed.decode(errors="replace"))
    keys += given_up(begun)
    if len(typed) > TYPED_AHEAD_BYTES_MAX:
        keys = _with_line_breaks(keys)
    store_typeahead(keyboard, keys)
