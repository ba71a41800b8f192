"""The registry of a user's daemons: where each one keeps what commands must not get at.

A user may run several, each with directories of its own. A command of one must reach no other: not
its sockets and its token, nor its log. So each daemon writes down its directories where all of them
look, and every enclosure hides what is written there.
"""

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tiller_daemon.private import make_directory

REGISTRY: Final = Path(".local/state/tiller/homes")
"""Below the user's home: a file for each daemon, with a directory on each line."""

ENTRY_BYTES_MAX: Final = 16 * 1024


def register(home: Path, directories: Sequence[Path]) -> None:
    """Write down the directories of a daemon; the same ones again change nothing.

    A home that can't be written to is no reason not to start: then nobody else is told.
    """
    text = "".join(f"{directory}\n" for directory in directories)
    name = hashlib.sha256(os.fsencode(text)).hexdigest()[:16]
    with contextlib.suppress(OSError):
        make_directory(home / REGISTRY)
        (home / REGISTRY / name).write_text(text, errors="surrogateescape")


def registered(home: Path) -> list[Path]:
    """The directories of all daemons of the user that are there."""
    found: list[Path] = []
    with contextlib.suppress(OSError):
        for entry in sorted((home / REGISTRY).iterdir()):
            with entry.open(errors="surrogateescape") as stream:
                lines = stream.read(ENTRY_BYTES_MAX).split("\n")
            listed = [
                Path(line) for line in lines if line.startswith("/") and os.path.lexists(line)
            ]
            if not listed:
                entry.unlink()
            found += listed
    return found
