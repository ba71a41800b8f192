"""The registry of a user's daemons, which lists the directories that commands must not access.

A user may run several daemons with separate directories. A command of one daemon must not reach the
sockets, token or log of another. So each daemon registers its directories in one place, and every
confinement hides all registered directories.
"""

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tiller_daemon.private import make_directory
from tiller_daemon.stamps import failed, look_along, look_at, look_into

REGISTRY: Final = Path(".local/state/tiller/homes")
"""The registry's path in the user's home. It has one file per daemon, with one directory per
line."""

ENTRY_BYTES_MAX: Final = 16 * 1024


def register(home: Path, directories: Sequence[Path]) -> None:
    """Register the directories of a daemon; idempotent.

    If the home is not writable, the daemon starts all the same, but other daemons don't know of its
    directories.
    """
    text = "".join(f"{directory}\n" for directory in directories)
    name = hashlib.sha256(os.fsencode(text)).hexdigest()[:16]
    with contextlib.suppress(OSError):
        make_directory(home / REGISTRY)
        (home / REGISTRY / name).write_text(text, errors="surrogateescape")


def registered(home: Path) -> list[Path]:
    """Return the existing directories of all the user's daemons."""
    directories: list[Path] = []
    look_into(home / REGISTRY)
    try:
        for entry in sorted((home / REGISTRY).iterdir()):
            look_at(entry)
            with entry.open(errors="surrogateescape") as stream:
                lines = stream.read(ENTRY_BYTES_MAX).split("\n")
            named = [line for line in lines if line.startswith("/")]
            for line in named:
                look_along(line)
            listed = [Path(line) for line in named if os.path.lexists(line)]
            # All directories are gone, so the daemon was removed.
            if not listed:
                entry.unlink()
            directories += listed
    except OSError as error:
        failed(error)
    return directories
