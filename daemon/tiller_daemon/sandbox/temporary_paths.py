"""Files and directories that exist in a workspace only while commands need them.

A sandbox can mount something only on a path that exists. So a missing directory that a command may
write to is made before the command starts, and so is a placeholder for a path that the command must
not create. Several commands may need the same path at the same time.
"""

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final


class TemporaryPaths:
    """Paths that commands share. The last command removes them, unless they have got content."""

    def __init__(self) -> None:
        self._users: Final = Counter[Path]()

    def __contains__(self, path: Path) -> bool:
        return path in self._users

    @contextmanager
    def used(self, paths: Sequence[Path]) -> Generator[None]:
        """Keep `paths`, parents before children, from being removed while the block runs."""
        self._users.update(paths)
        try:
            yield
        finally:
            for path in reversed(paths):
                self._users[path] -= 1
                if not self._users[path]:
                    del self._users[path]
                    _remove_empty(path)


def _remove_empty(path: Path) -> None:
    """Remove an empty file or directory, but nothing that somebody has put in its place."""
    with suppress(OSError):
        if path.is_symlink():
            return
        if path.is_dir():
            path.rmdir()
        elif path.stat().st_size == 0:
            path.unlink()
