"""`tiller chat` in a pane of tmux, a terminal not of our making."""

import os
import shlex
import shutil
import subprocess
import tempfile
from itertools import count
from pathlib import Path
from typing import Self

from pyte.screens import Char

from support.chat import cells_of

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
"""A terminal answers with four bytes when it has shown what was written before."""


class Tmux:
    """A server of its own, and its newest pane; a context manager that leaves no process behind."""

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
        """Run a command of tmux; returns what it prints."""
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
        """Show in a new pane what was written to another terminal of this size."""
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
