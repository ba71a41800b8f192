"""Runs `tiller` on a terminal, and keeps its output and the screen."""

import codecs
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time

import pyte

TILLER = (sys.executable, "-m", "tiller_client")
TIMEOUT_S = 20.0
LINES = 24

_REPORT = re.compile(r"\x1b\]7501;[A-Za-z0-9_.,+/=:-]*\x1b\\")
"""What tiller tells the terminal of itself, which can hold no text as it is."""
SCROLLBACK_LINES = 1_000_000


def without_reports(written: str) -> str:
    """The output of `tiller` without what the terminal takes for itself."""
    return _REPORT.sub("", written)


class Screen:
    """A third-party terminal emulator that forgets no line."""

    def __init__(self, columns: int) -> None:
        self._screen = pyte.HistoryScreen(columns, LINES, history=SCROLLBACK_LINES, ratio=0.5)
        self._stream = pyte.Stream(self._screen)

    def feed(self, text: str) -> None:
        self._stream.feed(text)

    def resize(self, columns: int) -> None:
        """Change the width, as a terminal that does not rewrap its lines."""
        self._screen.resize(LINES, columns)

    def rows(self) -> list[str]:
        """All rows, those scrolled out of sight included, without blanks at their ends."""
        screen = self._screen
        lines = [*screen.history.top, *(screen.buffer[y] for y in range(screen.lines))]
        return ["".join(line[x].data for x in range(screen.columns)).rstrip() for line in lines]


class Terminal:
    """A terminal with `tiller` in it; `screen` has everything that `tiller` wrote."""

    def __init__(self, *arguments: str, columns: int = 80, term: str = "xterm") -> None:
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (LINES, columns))
        self.process = subprocess.Popen(
            [*TILLER, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": term},
        )
        os.close(slave)
        self.screen = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def wait_for(self, text: str, *, after: int = 0) -> int:
        """Read until `text` is on the screen after offset `after`; return its end's offset."""
        deadline = time.monotonic() + TIMEOUT_S
        while text not in self.screen[after:]:
            left = deadline - time.monotonic()
            assert left > 0, self.screen
            assert self._read(left), self.screen
        return self.screen.index(text, after) + len(text)

    def type(self, line: str) -> None:
        os.write(self._master, line.encode() + b"\n")

    def resize(self, columns: int) -> None:
        termios.tcsetwinsize(self._master, (LINES, columns))

    def end(self) -> int:
        """Wait until `tiller` ends; return its exit status."""
        deadline = time.monotonic() + TIMEOUT_S
        while self._read(max(0.0, deadline - time.monotonic())):
            pass
        os.close(self._master)
        return self.process.wait(TIMEOUT_S)

    def _read(self, timeout_s: float) -> bool:
        if not select.select([self._master], [], [], timeout_s)[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other side is closed
            return False
        self.screen += self._decoder.decode(data)
        return bool(data)
