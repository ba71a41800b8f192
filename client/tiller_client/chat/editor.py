"""The editor for the user's input: a text of several lines, folded pasted texts, a history."""

import re
from collections.abc import Sequence

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.history import InMemoryHistory

from tiller_client.chat.attaching import dropped
from tiller_client.chat.rows import EditorRows, editor_rows, places

PASTED_LINES_MIN = 10
"""A pasted text with this many lines is folded, so that one word stands for it."""

PASTED_CHARS_MIN = 1_000
"""A pasted text with this many characters is folded, too."""

_FOLD = re.compile(r"\[pasted (?:\d+ lines|\d+ characters) #(\d+)\]")


class Editor:
    """The text that the user is writing; it stays when other things are shown meanwhile."""

    def __init__(self, completer: Completer | None = None) -> None:
        self.history: list[str] = []
        """The earlier texts, the newest last."""
        self.buffer = Buffer(completer, complete_while_typing=completer is not None)
        self._pasted: dict[str, str] = {}
        self._wanted = (-1, 0)
        """The cursor's place after the last move by a row, and the column that it came from."""

    @property
    def is_empty(self) -> bool:
        """Whether the editor has no text."""
        return not self.buffer.text

    def paste(self, text: str) -> None:
        """Insert a pasted text; for a large text, insert a word that stands for it."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        if images := dropped(text):
            self.insert_word(images)
            return
        lines = len(text.removesuffix("\n").split("\n"))
        if lines < PASTED_LINES_MIN and len(text) < PASTED_CHARS_MIN:
            self.buffer.insert_text(text)
            return
        number = str(len(self._pasted) + 1)
        self._pasted[number] = text
        amount = f"{lines} lines" if lines > 1 else f"{len(text)} characters"
        self.buffer.insert_text(f"[pasted {amount} #{number}] ")

    def insert_word(self, text: str) -> None:
        """Insert a text with blanks around it."""
        before = self.buffer.document.char_before_cursor
        self.buffer.insert_text(f"{' ' if before.strip() else ''}{text} ")

    def whole(self) -> str:
        """The text to send, with pasted texts in place of the words that stand for them."""
        return _FOLD.sub(lambda fold: self._pasted.get(fold[1], fold[0]), self.buffer.text)

    def take(self) -> str:
        """Return the whole text, add it to the history, and clear the editor."""
        text = self.whole().strip("\n")
        self.buffer.reset(append_to_history=False)
        if text.strip():
            self.remember(text)
        return text

    def put(self, text: str) -> None:
        """Replace the text; add the previous text to the history."""
        self.take()
        self.buffer.insert_text(text)

    def put_before(self, text: str) -> None:
        """Insert lines before the text; what is typed next is after them."""
        if text:
            at = self.buffer.cursor_position
            self.buffer.cursor_position = 0
            self.buffer.insert_text(f"{text}\n")
            self.buffer.cursor_position += at

    def remember(self, text: str) -> None:
        """Add a text to the history, as the newest."""
        if text not in self.history[-1:]:
            self.history.append(text)
            self.buffer.history.append_string(text)

    def recall(self, texts: Sequence[str]) -> None:
        """Put the texts of earlier sessions, the newest last, before the history.

        The buffer reads its history again; the text in the editor stays. While the user looks at an
        earlier text, the buffer also holds the one that they were writing, so it is read later.
        """
        looks_back = self.buffer.working_index < len(self.history)
        self.history[:0] = texts
        self.buffer.history = InMemoryHistory(self.history)
        if looks_back:
            return
        written, at = self.buffer.text, self.buffer.cursor_position
        self.buffer.reset()
        if written:
            self.buffer.insert_text(written)
            self.buffer.cursor_position = at

    def shown(self, width: int) -> EditorRows:
        """Break the text at `width` into rows, and return at most `EDITOR_ROWS_MAX` of them."""
        return editor_rows(self.buffer.text, self.buffer.cursor_position, width)

    def move(self, step: int, width: int) -> bool:
        """Move the cursor to the row above (-1) or below; return whether there is one."""
        found = places(self.buffer.text, width)
        at = self.buffer.cursor_position
        row, column = found[at]
        if at == self._wanted[0]:
            column = self._wanted[1]
        there = [place for place, (its_row, _) in enumerate(found) if its_row == row + step]
        if not there:
            return False
        at = min(there, key=lambda place: abs(found[place][1] - column))
        self.buffer.cursor_position = at
        self._wanted = (at, column)
        return True

    def take_completion(self) -> Completion | None:
        """Insert the highlighted completion, unless the word before the cursor is one already."""
        state = self.buffer.complete_state
        if state is None or not state.completions:
            return None
        if (chosen := state.current_completion) is not None:  # it is in the text already
            self.buffer.complete_state = None
            is_whole_file = chosen.text.startswith("@") and chosen.text.endswith(" ")
            return None if is_whole_file else chosen
        before = self.buffer.document.text_before_cursor
        self.buffer.complete_state = None
        if any(before[one.start_position :] == one.text.rstrip() for one in state.completions):
            return None
        self.buffer.apply_completion(state.completions[0])
        return state.completions[0]
