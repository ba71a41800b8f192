"""`sandbox`: runs a command in the sandbox for the model's commands, or describes that sandbox.

The daemon's program does the work; no daemon needs to be running.
"""

import os
from argparse import Namespace
from pathlib import Path

import msgspec

from tiller_client.connecting.starting import DAEMON_COMMAND
from tiller_client.console import flush, print_json, say
from tiller_client.errors import TillerError
from tiller_client.verbs.machine.program import ask_program


class SandboxReport(msgspec.Struct):
    """Result of `--json` without a command: the sandbox, and whether it is enforced (`held`)."""

    held: bool
    message: str


def run(arguments: Namespace) -> int:
    """Replace this process with the command in its sandbox, or describe the sandbox."""
    chosen = ["-c", f"sandbox.mode={arguments.sandbox}"] if arguments.sandbox else []
    words = [*chosen, "--sandboxed"]
    place = Path(arguments.directory)
    if not place.is_dir():
        raise TillerError(f"{place} is not a directory; choose one with -C DIR")
    if arguments.command:
        os.chdir(place)
        flush()
        program = [*DAEMON_COMMAND, *words, *arguments.command]
        os.execv(program[0], program)  # noqa: S606 - no shell
    level = ask_program(*words, directory=place)
    if arguments.json:
        print_json(SandboxReport(level.good, level.message))
    elif not level.good:
        raise TillerError(level.message)
    else:
        say(level.message)
    return 0 if level.good else 1
