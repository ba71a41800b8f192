"""Reads the terminal's input: keys, pasted text, and the terminal's own reports."""

from collections.abc import Callable
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
        """Return the typed keys, without the terminal's answers, even those within a paste."""
        keys: list[KeyPress] = []
        for press in super().read_keys():
            for _ in range(press.data.count(ANSWER_SEQUENCE)):
                self.answered()
            if press.key is not ANSWER:
                keys.append(KeyPress(press.key, press.data.replace(ANSWER_SEQUENCE, "")))
        return [] if self.is_ignored else keys

    def flush_keys(self) -> list[KeyPress]:
        """Return a lone Esc, which could have been the beginning of another key."""
        keys = super().flush_keys()
        return [] if self.is_ignored else keys


def type_ahead(keyboard: Keyboard, typed: bytes) -> None:
    """Let the keyboard return these keys, typed earlier, before all later ones."""
    keys: list[KeyPress] = []
    parser = Vt100Parser(keys.append)
    parser.feed_and_flush(typed.decode(errors="replace"))
    store_typeahead(keyboard, keys)
