"""`tiller chat` on a pseudo-terminal, with a terminal emulator that tells what a person sees."""

import codecs
import os
import pty
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self

import pyte
import trio
from pyte.screens import Char

from support.frontend import TIMEOUT_S
from tiller_client.chat.terminal.painter import BEGIN, END

SCROLLBACK_LINES = 1_000_000

WIDER = 10
"""How many times as wide a terminal is on which no line is broken."""

FAINT, BLINKING = 2, 5

FOCUS_REPORTS = 1004

FOCUSED = "\x1b[I"
FINE = "\x1b[0n"
"""A terminal's answer when it is asked for its status."""

ECHOED = tuple(answer.replace("\x1b", "^[") for answer in (FOCUSED, FINE))
"""What stands on a terminal that is not raw when it answers."""


class _Screen(pyte.HistoryScreen):
    """pyte knows no faint text; so blinking text, which tiller never writes, stands for it."""

    answers = ""
    """What the terminal has to say to the program."""

    def set_mode(self, *modes: int, **more: bool) -> None:
        """Tell at once who has the focus if that is wanted, as tmux and kitty do."""
        super().set_mode(*modes, **more)
        if FOCUS_REPORTS in modes:
            self.answers += FOCUSED

    def write_process_input(self, data: str) -> None:
        """Answer what the program asks for."""
        self.answers += data

    def select_graphic_rendition(self, *attrs: int) -> None:
        """Set what text looks like from here on."""
        if not {38, 48} & set(attrs):  # they begin a colour, which may have any number
            attrs = tuple(BLINKING if one == FAINT else one for one in attrs)
        super().select_graphic_rendition(*attrs)

    @property
    def cells(self) -> list[list[Char]]:
        """What each cell shows, and how; one behind a wide character is empty."""
        return [[self.buffer[y][x] for x in range(self.columns)] for y in range(self.lines)]


def cells_of(written: str, size: tuple[int, int]) -> list[list[Char]]:
    """What each cell of a terminal shows after this was written to it."""
    screen = _Screen(*size)
    pyte.Stream(screen).feed(written)
    return screen.cells


class HasVariables(Protocol):
    """A daemon, or a place from which one is used."""

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
        """When the last of it came, by the clock of `time.perf_counter`."""
        self.is_slow = False
        """Whether its answers stay away, as if it had not shown yet what was written to it."""
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
        """Start it; the caller closes it. `program` is what Python runs."""
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
        """Of the chat."""
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
        """The same on a wider terminal: where a line was too long for this one, it is not broken.

        It holds for a terminal that has not been resized.
        """
        columns, lines = self._screen.columns, self._screen.lines
        wider = ChatTerminal(self.process, self._master, (WIDER * columns, lines))
        wider._stream.feed(self.written)
        return wider.text

    @property
    def cursor(self) -> tuple[int, int]:
        """Row and column of the cursor."""
        return self._screen.cursor.y, self._screen.cursor.x

    def press(self, keys: str) -> None:
        """Type keys, as the bytes that a terminal sends for them."""
        os.write(self._master, keys.encode(errors="surrogateescape"))

    def paste(self, text: str) -> None:
        """Paste a text, as terminals do that mark it."""
        self.press(f"\x1b[200~{text}\x1b[201~")

    def resize(self, columns: int, lines: int) -> None:
        """Change the size; lines are cut, not wrapped anew."""
        self._screen.resize(lines, columns)
        termios.tcsetwinsize(self._master, (lines, columns))

    async def until(self, wanted: Callable[[], object]) -> None:
        """Read until something holds and the frame in which it does is whole."""
        with trio.move_on_after(TIMEOUT_S):
            while not wanted() or self.written.rfind(BEGIN) > self.written.rfind(END):
                if not await self.read():
                    break
        assert wanted(), self.text

    async def shows(self, *texts: str) -> None:
        """Read until all texts stand on the terminal, scrolled out of sight or not."""
        await self.until(lambda: all(text in self.text for text in texts))

    async def sees(self, *texts: str) -> None:
        """Read until all texts stand on the screen at the same time."""
        await self.until(lambda: all(text in self.screen for text in texts))

    async def end(self) -> int:
        """Read to the end; the exit status."""
        with trio.fail_after(TIMEOUT_S):
            while await self.read():
                pass
        return await trio.to_thread.run_sync(self.process.wait)

    def close(self) -> None:
        """End it if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)

    async def read(self) -> bool:
        """Take what was written since; waits for something, and returns whether there was any."""
        written = await self._receive()
        self._show(written or "")
        return written is not None

    async def takes(self, text: str, key: str) -> tuple[float, float]:
        """Read until a text was written, press a key, and read until that was written, too.

        All of it is shown only then, as this terminal is slow. Returns when each of them came, by
        the clock of `time.perf_counter`.
        """
        begin = len(self.written)
        with trio.fail_after(TIMEOUT_S):
            drawn = await self._receive_all(text)
            self.press(key)
            typed = await self._receive_all(key)
        self._show(self.written[begin:])
        return drawn, typed

    async def _receive_all(self, text: str) -> float:
        """Take what is written until this was; returns when it came."""
        begin = len(self.written)
        while text not in self.written[begin:]:
            assert await self._receive() is not None, self.written
        return self.read_at

    async def _receive(self) -> str | None:
        """Take what was written since, or `None` at the end."""
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
        self._stream.feed(text)
        if not self.is_slow:
            self.answer()

    def answer(self) -> None:
        """Tell the program what it has asked."""
        answers, self._screen.answers = self._screen.answers, ""
        self.press(answers)
