"""Opens files below a directory that is kept open, without following any link.

A search reports paths, but a path may lead elsewhere a moment later, because a directory can be
replaced by a link. So files from search results are read through this module. It opens each part of
a path relative to the part before it, and refuses links.
"""

import os
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from tiller_daemon.files.paths import (
    DIRECTORY,
    Location,
    open_regular_in,
    opened_directory,
    opened_parent,
    printable,
)

_DESCRIPTORS: Final = Path("/proc/self/fd")

_NO_NAMES: Final = frozenset({b"", b".", b".."})
"""Path components that name no entry, but stay in the directory or lead out of it."""


class PinnedDirectory:
    """An open directory, and the subdirectory that was last accessed.

    Paths are bytes, relative to the directory, with slashes. For one thread at a time, which calls
    `close` at the end.
    """

    def __init__(self, root: int, place: Path) -> None:
        """Use the open directory `root`, which the caller closes later; `place` is its path."""
        self._root: Final = root
        self._place: Final = place
        self._directory: bytes = b""
        self._opened: int = root

    def close(self) -> None:
        """Close the open subdirectory."""
        opened, self._opened = self._opened, self._root
        self._directory = b""
        if opened != self._root:
            os.close(opened)

    @property
    def directory(self) -> Path:
        """The path in which to start a child process.

        If `/proc` lists descriptors, it leads to this very directory.
        """
        return _DESCRIPTORS / str(self._root) if _DESCRIPTORS.is_dir() else self._place

    def state(self, path: bytes) -> os.stat_result:
        """Return the state of a file; raises `OSError`."""
        parent, name = self.parent(path)
        return os.stat(name, dir_fd=parent, follow_symlinks=False)

    def open_regular(self, path: bytes) -> int:
        """Open a regular file and return its descriptor; the caller closes it.

        Raises `OSError` and `PathProblem`.
        """
        parent, name = self.parent(path)
        shown = os.fsdecode(path)
        return open_regular_in(parent, name, Location(Path(shown), True, printable(shown)))  # noqa: FBT003

    def parent(self, path: bytes) -> tuple[int, str]:
        """Return the descriptor of a path's directory, open until the next call, and the name.

        Raises `OSError`.
        """
        directory, _, name = path.rpartition(b"/")
        if name in _NO_NAMES:
            raise NotADirectoryError
        # Consecutive paths are usually in the same directory, so it is kept open.
        if directory != self._directory:
            self.close()
            self._opened = self._open(directory)
            self._directory = directory
        return self._opened, os.fsdecode(name)

    def _open(self, directory: bytes) -> int:
        opened = self._root
        for name in directory.split(b"/") if directory else ():
            above = opened
            try:
                if name in _NO_NAMES:
                    raise NotADirectoryError
                opened = os.open(name, DIRECTORY, dir_fd=above)
            finally:
                # Each directory is closed once the next one is open.
                if above != self._root:
                    os.close(above)
        return opened


@contextmanager
def pinned_directory(location: Location) -> Generator[PinnedDirectory]:
    """Keep a directory open in the block, in which any `OSError` becomes a `PathProblem`."""
    with opened_directory(location) as root:
        yield from _held(root, location.path)


@contextmanager
def pinned_parent(location: Location) -> Generator[PinnedDirectory]:
    """Keep a file's directory open in the block; see `pinned_directory`."""
    with opened_parent(location) as (root, _):
        yield from _held(root, location.path.parent)


def _held(root: int, place: Path) -> Generator[PinnedDirectory]:
    with closing(PinnedDirectory(root, place)) as beneath:
        yield beneath
