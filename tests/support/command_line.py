"""Runs `tiller` as a separate process in a workspace, on pipes or on a terminal."""

import subprocess
from pathlib import Path
from typing import NamedTuple

from support.chat import ChatTerminal
from support.daemon import Daemon
from support.frontend import TIMEOUT_S
from support.terminal import TILLER


class CommandResult(NamedTuple):
    """How a process ended, and what it wrote."""

    status: int
    out: str
    err: str


class CommandLine:
    """The shell of a person in a workspace."""

    def __init__(self, daemon: Daemon, workspace: Path) -> None:
        self._daemon = daemon
        self._workspace = workspace

    def __call__(self, *arguments: str, stdin: str = "", **variables: str) -> CommandResult:
        """Run one command line to its end, on pipes."""
        done = subprocess.run(
            [*TILLER, *arguments],
            cwd=self._workspace,
            env=self._daemon.variables | variables,
            input=stdin or None,
            stdin=None if stdin else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=2 * TIMEOUT_S,
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def on_terminal(self, *arguments: str, term: str = "xterm", pager: str = "") -> ChatTerminal:
        """Start a command line on a terminal of 80 columns, which the caller closes."""
        return ChatTerminal.start(
            self._daemon, *arguments, workspace=self._workspace, term=term, TILLER_PAGER=pager
        )
