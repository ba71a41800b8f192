"""Writes text to stdout and stderr, and maintains the rows at the bottom of a terminal.

Nothing else writes text to stdout and stderr; `streams` handles failures to write. All text is
sanitized here, even if it does not go to a terminal. A terminal gets everything in the order in
which it happened. If stdout is a pipe and the verb separates answers, stdout gets only the final
message.
"""

import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TextIO

import msgspec

from tiller_client import streams
from tiller_client.errors import UsageError
from tiller_client.rendering.events import Piece
from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import cells, cut, json_line, on_screen, one_line, pad
from tiller_client.rendering.wrap import hanging, wrapped
from tiller_client.streams import put

WIDTH_PIPED = 100
"""The width in columns if the output is not a terminal."""

HEIGHT_UNKNOWN = 24
"""The assumed height of a terminal that does not report its size."""

PAGER_OPTIONS = "FRX"
"""Options for `less`, as in git, which keep colours and leave the text on the screen."""

REDRAW_S_MIN = 1 / 30
"""Shortest time between two drawings of several rows: nobody could see more of them."""

_ERASE_LINE = "\r\x1b[K"
_ERASE_BELOW = "\r\x1b[J"
_SAVE_CURSOR, _RESTORE_CURSOR = "\x1b7", "\x1b8"


def print_json(struct: object) -> None:
    """Write one struct as one line of JSON to stdout, at once: UTF-8 in every locale."""
    print_raw(json_line(msgspec.json.encode(struct)) + "\n")


def flush() -> None:
    """Show buffered output of stdout at once."""
    streams.flush(sys.stdout)


def say(text: str = "", *, end: str = "\n") -> None:
    """Write a line of text to stdout."""
    _write(sys.stdout, text + end)


def tell(sentence: str) -> None:
    """Write a sentence to stdout; on a terminal it is broken between words."""
    say(hanging(sentence, stdout_columns()))


def page(text: str) -> None:
    """Write text to stdout; use the user's pager if the text does not fit on the terminal.

    The pager is `$TILLER_PAGER`, else `$PAGER`, else `less`. `cat` or an empty value turns it off.
    Raises `UsageError` if that variable holds no valid command.
    """
    if not _is_terminal(sys.stdout.fileno()) or text.count("\n") < _height(sys.stdout.fileno()) - 1:
        say(text)
        return
    import shutil
    import subprocess

    from tiller_client.variables import command_in

    words = command_in("TILLER_PAGER" if "TILLER_PAGER" in os.environ else "PAGER", "less")
    if not words or words[0] == "cat" or shutil.which(words[0]) is None:
        say(text)
        return
    flush()
    variables = {"LESS": PAGER_OPTIONS, **os.environ}
    # Ctrl-C is for the pager while it runs.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        data = streams.encoded(on_screen(text + "\n"))
        subprocess.run(words, input=data, env=variables, check=False)
    finally:
        signal.signal(signal.SIGINT, before)


def print_raw(text: str) -> None:
    """Write text to stdout unchanged, for another program; the caller has made the text safe."""
    flush()
    streams.put_bytes(sys.stdout.fileno(), text.encode("utf-8", "replace"))


def is_piped() -> bool:
    """Whether stdout is a pipe or a file."""
    return not os.isatty(sys.stdout.fileno())


def complain(text: str) -> None:
    """Write a sentence to stderr, prefixed with the name of the program."""
    try:
        flush()
    finally:
        _write(sys.stderr, _complaint(text))
        streams.flush(sys.stderr)


def _complaint(text: str) -> str:
    # Further lines are indented, so that text from elsewhere can't look like our own lines.
    columns = _columns(sys.stderr.fileno()) - 2
    rows = (wrapped(row, columns) for row in f"tiller: {text}".split("\n"))
    return "\n".join(row.replace("\n", "\n  ") for row in rows) + "\n"


def confirm(question: str) -> bool:
    """Ask a question on the terminal; raises `UsageError` if stdin is not a terminal."""
    if not sys.stdin.isatty():
        raise UsageError("stdin is not a terminal, so you can't be asked; to agree now, add --yes")
    say(hanging(f"{question} [y/N]", stdout_columns()) + " ", end="")
    flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def pick(choices: Sequence[str]) -> int | None:
    """Let the user of a terminal choose by number or by the whole text; returns the position.

    An empty line takes the first choice. If stdin ends, nothing is chosen.
    """
    for number, choice in enumerate(choices, 1):
        say(f"{number:>3}  {choice}")
    while True:
        say(f"1 to {len(choices)} [1] ", end="")
        flush()
        line = sys.stdin.readline()
        if not line:
            return None
        answer = line.strip() or "1"
        if answer.isdecimal() and 1 <= int(answer) <= len(choices):
            return int(answer) - 1
        if answer in choices:
            return choices.index(answer)
        say(f"{one_line(answer)!r} is none of them; type a number from 1 to {len(choices)}")


def stdout_theme() -> Theme:
    """Theme for stdout, with colours if stdout is a terminal and NO_COLOR is not set."""
    return _theme(terminal=_is_terminal(sys.stdout.fileno()))


def stdout_width() -> int:
    """The width of stdout in columns."""
    return _width(sys.stdout.fileno())


def stdout_columns() -> int:
    """The columns that a line on stdout may have before it is broken; unlimited in a pipe."""
    return _columns(sys.stdout.fileno())


class Console:
    """The screen of a verb that follows a session."""

    def __init__(
        self,
        *,
        separate_answers: bool = False,
        quiet: bool = False,
        json: bool = False,
        lines: bool = False,
    ) -> None:
        """With `separate_answers`, a pipe gets only the answer; with `json`, stdout only events.

        With `quiet`, only answers and necessary messages are shown. With `lines`, each line is
        written once and whole, and nothing is redrawn; the keyboard is still used.
        """
        piped = not _is_terminal(sys.stdout.fileno())
        self.json = json
        self.quiet = quiet and not json
        self.separates_answers = (separate_answers and piped and not json) or self.quiet
        self._out = sys.stderr if json or (self.separates_answers and piped) else sys.stdout
        self.terminal = _is_terminal(self._out.fileno()) and not lines
        self.theme = _theme(terminal=self.terminal)
        types = lines or self.terminal
        self.keyboard = 0 if types and os.isatty(self._out.fileno()) and os.isatty(0) else None
        self._lines = lines
        self._unfinished = ""
        """With `lines`, the text of the incomplete line."""
        self._asked = ""
        """With `lines`, the prompt shown last."""
        self._pending_answer = ""
        self._bottom: tuple[str, ...] = ()
        self._bottom_width = 0
        self._typed_from = 0
        self._drawn_at = float("-inf")

    @property
    def width(self) -> int:
        """The present width in columns; a window can be resized at any time."""
        return _width(self._out.fileno())

    def show(self, pieces: Iterable[Piece]) -> None:
        """Write pieces; delay an answer, because it is only progress if more output follows."""
        text = ""
        for piece in pieces:
            if piece.kind == "answer" and self.separates_answers:
                self._pending_answer += piece.text
            elif piece.kind == "needed" or not self.quiet:
                text += ("" if self.quiet else self._pending_answer) + piece.text
                self._pending_answer = ""
        if text:
            self._write(text)

    def line(self, text: str) -> None:
        """Write one line of progress."""
        self._write(text + "\n")

    def complain(self, text: str) -> None:
        """Remove the rows at the bottom, and write a sentence to stderr."""
        self.bottom()
        complain(text)

    def final(self, message: str) -> None:
        """Write the last message of a turn to stdout, if answers are separate."""
        self._pending_answer = self._asked = ""
        if not self.separates_answers or not message:
            return
        text = message + ("" if message.endswith("\n") else "\n")
        put(sys.stdout, on_screen(text), exact=is_piped())
        flush()

    def unfinished(self) -> None:
        """Show a delayed answer with the progress, as the turn has ended without a result."""
        text, self._pending_answer, self._asked = self._pending_answer, "", ""
        if text and not self.quiet:
            self._write(text if text.endswith("\n") else text + "\n")

    def bottom(self, *rows: str) -> None:
        """Show `rows` at the bottom of a terminal, or remove the rows there if none are given.

        The user types after the last row. The typed text stays on the screen, unless the last row
        gets longer. Several rows are drawn at most every `REDRAW_S_MIN`; a later call catches up.
        """
        if not self.terminal:
            self._asked = ""
            return
        width, height = self.width, _height(self._out.fileno())
        fitting = [cut(row, width - 1) for row in rows if row]
        rows = tuple(fitting[-max(1, height - 1) :])
        if (rows, width) == (self._bottom, self._bottom_width):
            return
        if len(rows) > 1:
            now = time.monotonic()
            if now - self._drawn_at < REDRAW_S_MIN:
                return
            self._drawn_at = now
        if self._can_redraw(rows, width):
            self._redraw(rows)
        else:
            text = "\n".join(self.theme.dim(row) for row in rows)
            self._write(f"{text} " if text else "")
            self._typed_from = cells(rows[-1]) if rows else 0
        self._bottom, self._bottom_width = rows, width

    def ask(self, prompt: str, about: str = "") -> None:
        """Show a prompt at the bottom; `about` tells prompts with the same text apart."""
        if not self._lines:
            self.bottom(prompt)
        elif self._asked != prompt + about:
            self.line(prompt.removesuffix("»").rstrip())
            self._asked = prompt + about

    def entered(self) -> None:
        """Note that the user has pressed Enter, so the cursor is on a new line."""
        if len(self._bottom) > 1:
            _write(self._out, "", f"\x1b[{len(self._bottom)}A{_ERASE_BELOW}")
            streams.flush(self._out)
        self.moved()

    def escape(self, text: str) -> None:
        """Write an escape that shows nothing and moves nothing, but only to a terminal."""
        if text and self.terminal:
            _write(self._out, "", text)
            streams.flush(self._out)

    def moved(self) -> None:
        """Note that the cursor may be anywhere, as another program has used the terminal."""
        self._bottom = ()

    def _can_redraw(self, rows: tuple[str, ...], width: int) -> bool:
        """Whether the rows fit over the rows on the screen, without covering typed text."""
        same = (len(rows), width) == (len(self._bottom), self._bottom_width)
        return same and bool(rows) and cells(rows[-1]) <= self._typed_from

    def _redraw(self, rows: tuple[str, ...]) -> None:
        """Write the rows over the rows at the bottom, and restore the cursor."""
        above = len(rows) - 1
        _write(self._out, "", _SAVE_CURSOR + (f"\x1b[{above}A" if above else ""))
        for row, old in zip(rows[:-1], self._bottom[:-1], strict=True):
            if row != old:
                _write(self._out, self.theme.dim(row), _ERASE_LINE)
            _write(self._out, "\n")
        last = self.theme.dim(pad(rows[-1], self._typed_from))
        _write(self._out, last, "\r", _RESTORE_CURSOR)
        streams.flush(self._out)

    def _write(self, text: str) -> None:
        """Remove the rows at the bottom, and write text there."""
        if self._lines:
            whole, end, self._unfinished = (self._unfinished + text).rpartition("\n")
            text = whole + end
        above = len(self._bottom) - 1
        erased = f"\x1b[{above}A{_ERASE_BELOW}" if above > 0 else _ERASE_LINE
        _write(self._out, text, erased if self._bottom else "")
        streams.flush(self._out)
        self._bottom = ()


def _write(stream: TextIO, text: str, before: str = "", after: str = "") -> None:
    """Write sanitized text; `before` and `after` are control sequences that move the cursor."""
    put(stream, f"{before}{on_screen(text)}{after}")


def _is_terminal(descriptor: int) -> bool:
    """Whether this is a terminal with control sequences; a dumb terminal counts as a pipe."""
    return os.isatty(descriptor) and os.environ.get("TERM") != "dumb"


def _theme(*, terminal: bool) -> Theme:
    """The terminal's own 16 colours, which suit any background; none if NO_COLOR is set.

    NO_COLOR is explained at https://no-color.org.
    """
    return Theme("dark", 16) if terminal and not os.environ.get("NO_COLOR") else Theme()


def _height(descriptor: int) -> int:
    """The height of a terminal in lines; `HEIGHT_UNKNOWN` if it reports none."""
    return os.get_terminal_size(descriptor).lines or HEIGHT_UNKNOWN


def _columns(descriptor: int) -> int:
    """The columns that a line may have before it is broken."""
    return _width(descriptor) - 1 if _is_terminal(descriptor) else sys.maxsize


def _width(descriptor: int) -> int:
    """The width of a terminal in columns; `WIDTH_PIPED` if there is none, or it reports no size."""
    if not os.isatty(descriptor):
        return WIDTH_PIPED
    return os.get_terminal_size(descriptor).columns or WIDTH_PIPED
