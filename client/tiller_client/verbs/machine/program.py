"""Asks the daemon's program about this machine; no daemon needs to be running."""

import subprocess
from pathlib import Path

import msgspec

from tiller_client.connecting.starting import DAEMON_COMMAND
from tiller_client.rendering.text import sanitized


class Verdict(msgspec.Struct, frozen=True):
    """The answer, which `config check --json` prints: whether all is well, and a message."""

    good: bool
    message: str


def ask_program(*arguments: str, directory: Path | None = None) -> Verdict:
    """Run `tillerd` with `arguments` until it ends, in `directory` or else the current one."""
    command = [*DAEMON_COMMAND, *arguments]
    done = subprocess.run(command, capture_output=True, check=False, cwd=directory, text=True)
    message = sanitized(done.stdout + done.stderr).strip().removeprefix("tillerd: ")
    return Verdict(done.returncode == 0, message)
