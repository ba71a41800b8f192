"""Files below a directory that is held open: no link leads anybody out of it.

A search names what it found by paths, and a name may mean something else a moment later, as a
directory may become a link. What is shown of such a path is therefore taken from here, where each
step of the way is opened in the one before and no link is followed.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
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
"""What no entry of a directory is called: such a step would lead nowhere, or up."""


class PinnedDirectory:
    """A directory held open, and the last one below it that was asked for.

    Paths are bytes, relative to it, with slashes. Used by one thread at a time; `close` it.
    """

    def __init__(self, root: int, place: Path) -> None:
        """Take a directory that is open, and stays so, and where it was found."""
        self._root: Final = root
        self._place: Final = place
        self._directory: bytes = b""
        self._opened: int = root

    def close(self) -> None:
        """Let go of what was opened here."""
        opened, self._opened = self._opened, self._root
        self._directory = b""
        if opened != self._root:
            os.close(opened)

    @property
    def directory(self) -> Path:
        """Where a child process begins: in the very directory, where the system has such a name."""
        return _DESCRIPTORS / str(self._root) if _DESCRIPTORS.is_dir() else self._place

    def state(self, path: bytes) -> os.stat_result:
        """Return the state of what is there; raises `OSError`."""
        parent, name = self._parent(path)
        return os.stat(name, dir_fd=parent, follow_symlinks=False)

    def open_regular(self, path: bytes) -> int:
        """Open a regular file and return its descriptor; the caller closes it.

        Raises `OSError` and `PathProblem`.
        """
        parent, name = self._parent(path)
        shown = os.fsdecode(path)
        return open_regular_in(parent, name, Location(Path(shown), True, printable(shown)))  # noqa: FBT003

    def _parent(self, path: bytes) -> tuple[int, str]:
        """Give the directory that a path is in, open until the next call, and the name there."""
        directory, _, name = path.rpartition(b"/")
        if name in _NO_NAMES:
            raise NotADirectoryError
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
                if above != self._root:
                    os.close(above)
        return opened


@contextmanager
def pinned_directory(location: Location) -> Generator[PinnedDirectory]:
    """Hold a directory open. Failures of the block, too, become `PathProblem`."""
    with opened_directory(location) as root:
        yield from _held(root, location.path)


@contextmanager
def pinned_parent(location: Location) -> Generator[PinnedDirectory]:
    """Hold the directory open that a file is in; see `pinned_directory`."""
    with opened_parent(location) as (root, _):
        yield from _held(root, location.path.parent)


def _held(root: int, place: Path) -> Generator[PinnedDirectory]:
    beneath = PinnedDirectory(root, place)
    try:
        yield beneath
    finally:
        beneath.close()
