"""Files and directories that exist in a workspace only while commands need them.

A sandbox can mount something only on a path that exists. So a missing directory that a command may
write to is made before the command starts, and so is a placeholder for a path that the command must
not create. Several commands may need the same path at the same time.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Final

from tiller_daemon.private import make_directory

MADE_WITHIN_S: Final = 1.0
"""How long after its record a path is made at the latest; usually it takes some microseconds."""


class TemporaryPaths:
    """Paths that commands share. The last command removes them, unless they have got content.

    Each path in use has a record, from before it is made until it has been removed. If the daemon
    is killed, the next one finds the paths in these records (see `remove_abandoned`).
    """

    def __init__(self, records: Path | None = None) -> None:
        """Keep records in the directory `records`, which no other process may use."""
        self._users: Final = Counter[Path]()
        self._records: Final = records
        # Some commands end in a thread.
        self._changing: Final = Lock()
        if records:
            make_directory(records)

    def __contains__(self, path: Path) -> bool:
        return path in self._users

    @contextmanager
    def used(self, directories: Sequence[Path], files: Sequence[Path] = ()) -> Generator[None]:
        """Make the missing paths, parents first, and keep them from being removed in the block.

        Raises `OSError` if one can't be made.
        """
        taken: list[Path] = []
        try:
            with self._changing:
                for path in (*directories, *files):
                    if path not in self._users:
                        self._record(path)
                    self._users[path] += 1
                    taken.append(path)
                    _make(path, is_file=path in files)
            yield
        finally:
            with self._changing:
                for path in reversed(taken):
                    self._leave(path)

    def _leave(self, path: Path) -> None:
        self._users[path] -= 1
        if not self._users[path]:
            del self._users[path]
            _remove_empty(path)
            if self._records:
                with suppress(OSError):
                    _record_of(path, self._records).unlink()

    def _record(self, path: Path) -> None:
        if self._records:
            _record_of(path, self._records).write_bytes(os.fsencode(path))


def remove_abandoned(records: Path) -> list[Path]:
    """Remove the paths that a killed daemon has left behind; return them.

    A path stays if it has content, or if it was not made right after its record and so is somebody
    else's. Call this when no process of the killed daemon is left. If a path can't be reached, for
    example because a disk is missing, its record is kept.
    """
    abandoned: list[Path] = []
    for record in sorted(records.glob("*")):
        with suppress(OSError):
            path = Path(os.fsdecode(record.read_bytes()))
            if _is_of(record, path):
                abandoned.append(path)
            elif path.parent.is_dir():
                record.unlink()
    # A parent is empty only after its children.
    for path in sorted(abandoned, reverse=True):
        _remove_empty(path)
        with suppress(OSError):
            _record_of(path, records).unlink()
    return [path for path in abandoned if not os.path.lexists(path)]


def _is_of(record: Path, path: Path) -> bool:
    """Whether a path was made together with its record, and has not been changed since then."""
    try:
        # A path's ctime changes with it, and programs can't set it.
        return abs(path.lstat().st_ctime - record.stat().st_mtime) <= MADE_WITHIN_S
    except OSError:
        return False


def _record_of(path: Path, records: Path) -> Path:
    return records / hashlib.sha256(os.fsencode(path)).hexdigest()


def _make(path: Path, *, is_file: bool) -> None:
    with suppress(FileExistsError):
        if is_file:
            path.touch(exist_ok=False)
        else:
            path.mkdir()


def _remove_empty(path: Path) -> None:
    """Remove an empty file or directory, but nothing that somebody has put in its place."""
    with suppress(OSError):
        if path.is_symlink():
            return
        if path.is_dir():
            path.rmdir()
        elif path.stat().st_size == 0:
            path.unlink()
