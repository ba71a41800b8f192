"""Tells by their stamps whether files have changed since they were read.

A stamp is the kernel's data about a file. Nobody but the kernel sets the time of the last change
(`st_ctime`), so a file with the same stamp has the same content, unless it changed twice within one
tick of the clock. Therefore stamps that were too young are never trusted, as in git's index.
"""

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

TICK_NS: Final = 100_000_000
"""How long before a reading a file must have changed, in nanoseconds. The kernel's clock for files
ticks every 1 to 10 ms; the rest is for a file server whose clock is slightly behind."""

Stamp = tuple[int, ...]
"""A file's device, inode, mode and owner, then its size and times of content and inode in
nanoseconds, which a directory's stamp lacks. For a file that can't be examined, the error number.
"""


def take_stamps(paths: Iterable[str | Path], read_at_ns: int) -> tuple[Stamp, ...] | None:
    """Return the stamps of files that are read from `read_at_ns` on, as in `time.time_ns()`.

    A link has the stamps of itself and of its target. None if a file was so young that a further
    change may not show.
    """
    stamps: list[Stamp] = []
    for path in paths:
        stamp = take_stamp(path, follows=False)
        stamps.append(stamp)
        if len(stamp) > 1 and stat.S_ISLNK(stamp[2]):
            stamps.append(take_stamp(path, follows=True))
    is_young = any(stamp[-1] > read_at_ns - TICK_NS for stamp in stamps)
    return None if is_young else tuple(stamps)


def take_stamp(path: str | Path, *, follows: bool) -> Stamp:
    """Return the stamp of the file or link at `path` now; with `follows`, of a link's target."""
    try:
        now = os.stat(path, follow_symlinks=follows)  # noqa: PTH116 - a third of the time
    except (OSError, ValueError) as error:
        # ValueError: a NUL in the path.
        return (getattr(error, "errno", 0) or 0,)
    identity = (now.st_dev, now.st_ino, now.st_mode, now.st_uid)
    if stat.S_ISDIR(now.st_mode):
        return identity
    return (*identity, now.st_size, now.st_mtime_ns, now.st_ctime_ns)
