"""Reads files in whose place there may be something else, such as a directory or a FIFO."""

import os
import stat
from pathlib import Path


def read_regular(path: Path, bytes_max: int) -> bytes | None:
    """Return at most `bytes_max` bytes of a file; None if it is not a regular file.

    Follows links. Never waits for another program, as for the writer of a FIFO. Raises `OSError`.
    """
    # Without O_NONBLOCK, opening a FIFO would block until it has a writer.
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            return None
        with os.fdopen(opened, "rb", closefd=False) as stream:
            return stream.read(bytes_max)
    finally:
        os.close(opened)
