"""Runs `tiller chat` in a pane of tmux, a third-party terminal."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Self

import trio
from pyte.screens import Char

from support.chat import HasVariables, cells_of
from support.frontend import TIMEOUT_S

TMUX = shutil.which("tmux")

HISTORY_LINES = 100_000

CONFIG = f"""\
set -g status off
set -g history-limit {HISTORY_LINES}
set -g remain-on-exit on
set -g focus-events on
set -g default-shell /bin/sh
set -s escape-time 0
"""

ASK_STATUS = r"\033[5n"
"""A terminal answers this query with four bytes once it has shown all earlier output."""


class Tmux:
    """A context manager for a separate tmux server and its newest pane; it ends all processes."""

    def __init__(self) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="tmux-", dir="/tmp")
        self.path = Path(self._place.name)
        self._numbers = count(1)
        assert TMUX
        self._command = (TMUX, "-u", "-S", str(self.path / "socket"))
        (self.path / "conf").write_text(CONFIG)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, *arguments: str, **variables: str) -> str:
        """Run a tmux command; return its output."""
        environ = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **variables}
        ran = subprocess.run(
            [*self._command, "-f", str(self.path / "conf"), *arguments],
            env=environ,
            check=True,
            capture_output=True,
        )
        return ran.stdout.decode()

    def open(self, command: str, size: tuple[int, int], **variables: str) -> None:
        """Run a command in a new pane."""
        columns, lines = map(str, size)
        self.run("new-session", "-d", "-x", columns, "-y", lines, command, **variables)

    def show(self, written: str, size: tuple[int, int]) -> None:
        """Show in a new pane the output that was written to another terminal of this size."""
        file, shown = self.path / "shown", f"shown-{next(self._numbers)}"
        file.write_bytes(written.encode(errors="surrogateescape"))
        tell = shlex.join([*self._command, "wait-for", "-S", shown])
        wait = f"printf '{ASK_STATUS}'; head -c 4 >/dev/null"
        self.open(f"stty raw -echo; cat {file}; {wait}; {tell}; exec sleep inf", size)
        self.run("wait-for", shown)

    def captured(self, *options: str) -> list[str]:
        """The rows of the newest pane."""
        return self.run("capture-pane", "-p", *options).split("\n")[:-1]

    def cells(self, size: tuple[int, int]) -> list[list[Char]]:
        """What each cell of the newest pane shows, and how."""
        return cells_of("\r\n".join(self.captured("-e")), size)

    @property
    def cursor(self) -> tuple[int, int]:
        """Row and column of the cursor in the newest pane."""
        row, column = self.run("display", "-p", "#{cursor_y} #{cursor_x}").split()
        return int(row), int(column)

    def close(self) -> None:
        """End the server and all that runs in it."""
        subprocess.run([*self._command, "kill-server"], check=False, capture_output=True)
        self._place.cleanup()


class TmuxChat:
    """A pane with `tiller` in it, used as a `ChatTerminal` is."""

    def __init__(self, tmux: Tmux) -> None:
        self._tmux = tmux
        self.pid = int(tmux.run("display", "-p", "#{pane_pid}"))
        # tmux writes here what the pane writes, so that a change can be awaited.
        fifo = tmux.path / "written"
        os.mkfifo(fifo)
        self._written = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
        tmux.run("pipe-pane", "-O", f"exec cat > {fifo}")

    @classmethod
    def start(cls, daemon: HasVariables, *arguments: str) -> Self:
        """Start `tiller` in a pane, which the caller closes."""
        tmux = Tmux()
        command = shlex.join([sys.executable, "-m", "tiller_client", *arguments])
        tmux.open(f"exec {command}", (80, 24), **daemon.variables)
        return cls(tmux)

    @property
    def rows(self) -> list[str]:
        """The rows of the pane, without blanks at their ends."""
        return [row.rstrip() for row in self._tmux.captured()]

    @property
    def text(self) -> str:
        """All rows, those scrolled out of sight included."""
        return "\n".join(row.rstrip() for row in self._tmux.captured("-S", "-"))

    @property
    def cursor(self) -> tuple[int, int]:
        """Row and column of the cursor."""
        return self._tmux.cursor

    def press(self, keys: str) -> None:
        """Type keys, as the bytes that a terminal sends for them."""
        if keys:
            self._tmux.run("send-keys", "-H", *(f"{byte:x}" for byte in keys.encode("ascii")))

    def resize(self, columns: int, lines: int) -> None:
        """Change the size; tmux rewraps the lines."""
        self._tmux.run("resize-window", "-x", str(columns), "-y", str(lines))

    async def until(self, wanted: Callable[[], object]) -> None:
        """Wait until `wanted` returns true."""
        with trio.move_on_after(TIMEOUT_S):
            while not wanted():
                await trio.lowlevel.wait_readable(self._written)
                os.read(self._written, 1 << 20)
        assert wanted(), self.text

    async def shows(self, *texts: str) -> None:
        """Wait until all texts are in the pane, including rows scrolled out of sight."""
        await self.until(lambda: all(text in self.text for text in texts))

    def close(self) -> None:
        """End the chat."""
        self._tmux.close()
        os.close(self._written)
