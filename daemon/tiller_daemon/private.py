"""Files and directories of the daemon's own, for their owner alone under any umask (G14).

Not those of a workspace: they are the user's, and so is the umask that they are made with.
"""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600

UMASK = 0o077
"""For programs that write files of the daemon's own."""


def make_directory(path: Path) -> None:
    """Make a directory, and those above it that are missing; one that is there stays as it is."""
    try:
        path.mkdir(DIRECTORY_MODE)
    except FileExistsError:
        if not path.is_dir():
            raise
    except FileNotFoundError:
        make_directory(path.parent)
        make_directory(path)
    else:
        path.chmod(DIRECTORY_MODE)  # the umask may have taken too much


def open_private(path: str | Path, flags: int) -> int:
    """Open a file and close it to others; it may be the `opener` of `open`."""
    opened = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    try:
        os.fchmod(opened, FILE_MODE)
    except BaseException:
        os.close(opened)
        raise
    return opened


def tighten(paths: Iterable[Path]) -> None:
    """Close to others those of these files and directories that are there, and ours.

    A link stays what it is, and so does a directory that is everybody's (`/tmp`).
    """
    for path in paths:
        with suppress(FileNotFoundError):
            found = path.lstat()
            is_kept = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
            if found.st_uid != os.geteuid() or not is_kept or found.st_mode & stat.S_ISVTX:
                continue
            if found.st_mode & UMASK:
                path.chmod(stat.S_IMODE(found.st_mode) & ~UMASK)
