"""Reads the terminal's input: keys, pasted text, and the terminal's own reports."""

import select
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TextIO

from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.input.posix_utils import PosixStdinReader
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

FOCUS_IN, FOCUS_OUT, ANSWER = Keys.F21, Keys.F22, Keys.F23
"""Keys that no keyboard has; they stand for reports that prompt-toolkit has no names for."""

ANSWER_SEQUENCE = "\x1b[0n"
"""A terminal's answer to the request for its status."""

SEQUENCES = {"\x1b[I": FOCUS_IN, "\x1b[O": FOCUS_OUT, ANSWER_SEQUENCE: ANSWER}
"""A terminal's reports that its window gets or loses the focus, and its answer."""

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
        ANSI_SEQUENCES.update(SEQUENCES)
        # Terminals send UTF-8 in the C locale as well; what is not a character is shown as bytes.
        encoding = "utf-8" if stdin.encoding in ("ascii", "us-ascii") else stdin.encoding
        self.stdin_reader = PosixStdinReader(self.fileno(), "replace", encoding)
        self.answered: Callable[[], None] = lambda: None
        """Called for each answer from the terminal."""
        self.is_ignored = False
        """Whether to ignore keys, as the user has left."""

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
        for press in super().read_keys():
            for _ in range(press.data.count(ANSWER_SEQUENCE)):
                self.answered()
            if press.key is not ANSWER:
                keys.append(KeyPress(press.key, press.data.replace(ANSWER_SEQUENCE, "")))
        return keys

    def _more_follows(self) -> bool:
        return not self.closed and bool(select.select([self.fileno()], [], [], PASTE_GAP_S)[0])

    def flush_keys(self) -> list[KeyPress]:
        """Return a lone Esc, which could have been the beginning of another key."""
        keys = super().flush_keys()
        return [] if self.is_ignored else keys


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
    keys: list[KeyPress] = []
    parser = Vt100Parser(keys.append)
    parser.feed_and_flush(typed.decode(errors="replace"))
    if len(typed) > TYPED_AHEAD_BYTES_MAX:
        keys = _with_line_breaks(keys)
    store_typeahead(keyboard, keys)
