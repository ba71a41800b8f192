"""Runs `tiller chat` on a pseudo-terminal, whose emulator shows what a person sees."""

import codecs
import os
import pty
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, Self

import pyte
import trio
from pyte.screens import Char

from support.frontend import TIMEOUT_S
from tiller_client.chat.rows import PROMPT
from tiller_client.chat.terminal.backdrop import ASK_BACKGROUND
from tiller_client.chat.terminal.painter import BEGIN, END

SCROLLBACK_LINES = 1_000_000

WIDER = 10
"""The factor that makes a terminal so wide that no line is broken."""

FAINT, BLINKING = 2, 5

FOCUS_REPORTS = 1004

FOCUSED = "\x1b[I"
FINE = "\x1b[0n"
"""A terminal's answer when it is asked for its status."""

ECHOED = tuple(answer.replace("\x1b", "^[") for answer in (FOCUSED, FINE))
"""How a terminal that is not in raw mode echoes its own answers."""


class _Screen(pyte.HistoryScreen):
    """A pyte screen that shows faint text as blinking text, which tiller never writes."""

    answers = ""
    """The terminal's answers that the program has not received yet."""

    def set_mode(self, *modes: int, **more: bool) -> None:
        """Report the focus at once when a program turns focus reports on, as tmux and kitty do."""
        super().set_mode(*modes, **more)
        if FOCUS_REPORTS in modes:
            self.answers += FOCUSED

    def write_process_input(self, data: str) -> None:
        """Answer what the program asks for."""
        self.answers += data

    def select_graphic_rendition(self, *attrs: int) -> None:
        """Set what text looks like from here on."""
        if not {38, 48} & set(attrs):  # these begin a colour, which may have any number
            attrs = tuple(BLINKING if one == FAINT else one for one in attrs)
        super().select_graphic_rendition(*attrs)

    @property
    def cells(self) -> list[list[Char]]:
        """What each cell shows, and how; one behind a wide character is empty."""
        return [[self.buffer[y][x] for x in range(self.columns)] for y in range(self.lines)]


def cells_of(written: str, size: tuple[int, int]) -> list[list[Char]]:
    """Return the cells of a terminal after `written` was written to it."""
    screen = _Screen(*size)
    pyte.Stream(screen).feed(written)
    return screen.cells


class HasVariables(Protocol):
    """A daemon, or a place from which a daemon is used."""

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment of a frontend."""
        ...


class ChatTerminal:
    """A terminal with `tiller` in it. Rows are what stands on it now, `text` all of it."""

    def __init__(
        self, process: subprocess.Popen[bytes], master: int, size: tuple[int, int]
    ) -> None:
        self.process = process
        self.written = ""
        """Everything that was written to the terminal, as it came."""
        self.read_at = 0.0
        """When the last output came, by `time.perf_counter`."""
        self.is_slow = False
        """Whether the terminal withholds its answers, as if it had not yet shown its input."""
        self.background = ""
        """The terminal's answer when it is asked for its background; empty if it gives none."""
        self._master = master
        columns, lines = size
        self._screen = _Screen(columns, lines, history=SCROLLBACK_LINES, ratio=0.5)
        self._stream = pyte.Stream(self._screen)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @classmethod
    def start(
        cls,
        daemon: HasVariables,
        *arguments: str,
        size: tuple[int, int] = (80, 24),
        workspace: Path | None = None,
        term: str = "xterm-256color",
        program: Sequence[str] = ("-m", "tiller_client"),
        **variables: str,
    ) -> Self:
        """Start `tiller`, which the caller closes; `program` holds Python's arguments."""
        master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (size[1], size[0]))
        process = subprocess.Popen(
            [sys.executable, *program, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            cwd=workspace,
            env={**daemon.variables, "TERM": term, **variables},
        )
        os.close(slave)
        os.set_blocking(master, False)
        return cls(process, master, size)

    @property
    def pid(self) -> int:
        """The process id of the chat."""
        return self.process.pid

    @property
    def rows(self) -> list[str]:
        """The rows of the screen, without blanks at their ends."""
        return [row.rstrip() for row in self._screen.display]

    @property
    def cells(self) -> list[list[Char]]:
        """What each cell of the screen shows, and how; one behind a wide character is empty."""
        return self._screen.cells

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        return self._screen.columns, self._screen.lines

    @property
    def screen(self) -> str:
        """The rows of the screen as one text."""
        return "\n".join(self.rows)

    @property
    def text(self) -> str:
        """All rows, those scrolled out of sight included."""
        screen = self._screen
        above = [
            "".join(line[x].data for x in range(screen.columns)).rstrip()
            for line in screen.history.top
        ]
        return "\n".join([*above, *self.rows])

    @property
    def text_of_a_wider_one(self) -> str:
        """All rows as on a wider terminal, where lines too long for this terminal are not broken.

        Works only if the terminal has not been resized.
        """
        columns, lines = self._screen.columns, self._screen.lines
        wider = ChatTerminal(self.process, self._master, (WIDER * columns, lines))
        wider._stream.feed(self.written)
        return wider.text

    @property
    def cursor(self) -> tuple[int, int]:
        """Row and column of the cursor."""
        return self._screen.cursor.y, self._screen.cursor.x

    @property
    def editor(self) -> list[str]:
        """The rows of the editor, up to the cursor's."""
        begin = next(at for at, row in enumerate(self.rows) if row.startswith(PROMPT))
        return [row[len(PROMPT) :] for row in self.rows[begin : self.cursor[0] + 1]]

    def press(self, keys: str) -> None:
        """Type keys, as the bytes that a terminal sends for them."""
        os.write(self._master, keys.encode(errors="surrogateescape"))

    def paste(self, text: str) -> None:
        """Paste a text, as terminals with bracketed paste do."""
        self.press(f"\x1b[200~{text}\x1b[201~")

    async def paste_unmarked(self, text: str) -> None:
        """Paste a text as if it were typed, as fast as the program reads it.

        The terminal answers nothing meanwhile.
        """
        self.is_slow = True
        left = text.replace("\n", "\r").encode()
        while left:
            await trio.lowlevel.wait_writable(self._master)
            with suppress(BlockingIOError):  # less room than a readiness check knows
                left = left[os.write(self._master, left) :]
        self.is_slow = False
        self.answer()

    def resize(self, columns: int, lines: int) -> None:
        """Change the size; lines are cut, not wrapped anew."""
        self._screen.resize(lines, columns)
        termios.tcsetwinsize(self._master, (lines, columns))

    async def until(self, wanted: Callable[[], object]) -> None:
        """Read until `wanted` returns true after a complete frame."""
        with trio.move_on_after(TIMEOUT_S):
            while self.written.rfind(BEGIN) > self.written.rfind(END) or not wanted():
                if not await self.read():
                    break
        assert wanted(), self.text

    async def shows(self, *texts: str) -> None:
        """Read until all texts are on the terminal, including rows scrolled out of sight."""
        await self.until(lambda: all(text in self.text for text in texts))

    async def sees(self, *texts: str) -> None:
        """Read until all texts are on the screen at the same time."""
        await self.until(lambda: all(text in self.screen for text in texts))

    async def end(self) -> int:
        """Read until the chat ends, and return its exit status."""
        with trio.fail_after(TIMEOUT_S):
            while await self.read():
                pass
        return await trio.to_thread.run_sync(self.process.wait)

    def close(self) -> None:
        """End the chat if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)

    async def read(self) -> bool:
        """Wait for output and read it; return False at its end."""
        written = await self._receive()
        self._show(written or "")
        return written is not None

    async def takes(self, text: str, key: str) -> tuple[float, float]:
        """Read until a text was written, press a key, and read until the key was written, too.

        As this terminal is slow, it shows all of this only then. Return when the text and the key
        came, by `time.perf_counter`.
        """
        begin = len(self.written)
        with trio.fail_after(TIMEOUT_S):
            drawn = await self._receive_all(text)
            self.press(key)
            typed = await self._receive_all(key)
        self._show(self.written[begin:])
        return drawn, typed

    async def _receive_all(self, text: str) -> float:
        """Read until `text` was written, and return when it came."""
        begin = len(self.written)
        while text not in self.written[begin:]:
            assert await self._receive() is not None, self.written
        return self.read_at

    async def _receive(self) -> str | None:
        """Wait for output and return it, or `None` at the end."""
        await trio.lowlevel.wait_readable(self._master)
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other side is closed
            return None
        self.read_at = time.perf_counter()
        text = self._decoder.decode(data)
        self.written += text
        return text

    def _show(self, text: str) -> None:
        if self.background:
            colour = f"\x1b]11;{self.background}\x1b\\"
            self._screen.answers += colour * text.count(ASK_BACKGROUND)
        self._stream.feed(text)
        if not self.is_slow:
            self.answer()

    def answer(self) -> None:
        """Send the program the answers to its queries."""
        answers, self._screen.answers = self._screen.answers, ""
        self.press(answers)
