"""Makes the daemon's files and directories accessible to their owner only, under any umask.

This is not for files in a workspace, to which the user's umask applies.
"""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600

UMASK = 0o077
"""The umask for other programs that create files for the daemon."""


def make_directory(path: Path) -> None:
    """Create a directory and its missing parents; an existing directory is left unchanged."""
    try:
        path.mkdir(DIRECTORY_MODE)
    except FileExistsError:
        if not path.is_dir():
            raise
    except FileNotFoundError:
        make_directory(path.parent)
        make_directory(path)
    else:
        path.chmod(DIRECTORY_MODE)  # the umask may have removed the owner's permissions


def open_private(path: str | Path, flags: int) -> int:
    """Open a file and make it private; usable as the `opener` of `open`."""
    opened = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    try:
        os.fchmod(opened, FILE_MODE)
    except BaseException:
        os.close(opened)
        raise
    return opened


def replace_private(file: Path, data: bytes) -> None:
    """Replace the content of a private file; after a crash it has its old or its new content."""
    draft = file.with_name(f".{file.name}.new")
    draft.unlink(missing_ok=True)
    with open(draft, "xb", opener=open_private) as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(file)


def tighten(paths: Iterable[Path]) -> None:
    """Make files and directories private if they exist and are ours.

    Links and shared directories (`/tmp`) are left unchanged.
    """
    for path in paths:
        with suppress(FileNotFoundError):
            state = path.lstat()
            is_plain = stat.S_ISREG(state.st_mode) or stat.S_ISDIR(state.st_mode)
            if state.st_uid != os.geteuid() or not is_plain or state.st_mode & stat.S_ISVTX:
                continue
            if state.st_mode & UMASK:
                path.chmod(stat.S_IMODE(state.st_mode) & ~UMASK)
