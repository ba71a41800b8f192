"""Where commands may write: the workspace, and what the user names."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from tiller_daemon.sandbox.known_paths import existing, root_of


class Worktrees(Protocol):
    """Knows the worktrees that this daemon has made."""

    def borrowed(self, path: Path) -> tuple[Path, ...]:
        """Return what commands in a workspace must see of the repository that it borrows from."""
        ...

    def off_limits(self, path: Path) -> tuple[Path, ...]:
        """Return where nothing in a worktree may write: the other checkouts of its repository."""
        ...


def writable_places(
    names: Iterable[str], root: Path, apart: Sequence[Path] = ()
) -> tuple[Path, ...]:
    """Return the workspace `root` and the named places, but none in or around places `apart`.

    A sandbox can't always keep a command out of a part of a place where it may write.
    """
    # Paths inside a writable directory are writable already, and a command may have replaced
    # them with links to anywhere. But those in the workspace may be protected otherwise.
    named = [path for path in map(Path, names) if path != root]
    outside = existing(
        path
        for path in named
        if not root_of(path, (root,))
        and not any(one.is_relative_to(path) or path.is_relative_to(one) for one in apart)
    )
    inside = in_place(path for path in named if root_of(path, (root,)))
    return tuple(path for path in (root, *outside, *inside) if path != Path("/"))


def in_place(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the paths, except those that are links or lead through one."""
    return (path for path in paths if os.path.realpath(path) == str(path))


def make_owned(paths: Iterable[Path]) -> None:
    """Make the missing directories that sub-agents own; without a suffix it is a directory."""
    for path in paths:
        if not path.suffix and os.path.realpath(path) == str(path):
            with suppress(OSError):
                path.mkdir(parents=True, exist_ok=True)
