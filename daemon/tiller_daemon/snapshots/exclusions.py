"""Files that no snapshot stores because of where they are, what they are, or what they contain."""

import os
import stat
from collections.abc import Callable, Collection, Sequence
from pathlib import Path, PurePosixPath

from msgspec import Struct


class Exclusions(Struct, frozen=True):
    """Files that no snapshot stores because of their paths."""

    is_secret: Callable[[Path, str], bool]
    """Tells, from a workspace and a path in it, whether the file must never be stored."""
    own: tuple[Path, ...] = ()
    """The daemon's own directories, without links. No revert touches them, either."""

    def owns(self, workspace: Path) -> bool:
        """Return whether a workspace is one of the daemon's own directories, or in one."""
        return any(workspace.is_relative_to(one) for one in self.own)

    def own_places(self, workspace: Path) -> tuple[str, ...]:
        """Return the paths, relative to a workspace, of the daemon's own directories in it."""
        inside = [one for one in self.own if one.is_relative_to(workspace)]
        return tuple(one.relative_to(workspace).as_posix() for one in inside)


def is_in(path: str, places: Collection[str]) -> bool:
    """Return whether a relative path, or a directory above it, is one of `places`."""
    return path in places or (
        bool(places) and any(str(one) in places for one in PurePosixPath(path).parents)
    )


def files_to_exclude(
    workspace: Path, paths: Sequence[str], secret_values: Sequence[bytes]
) -> frozenset[str]:
    """Return the files that no snapshot may store.

    These are files that contain a secret value, can't be read, are neither regular files nor links,
    or are reached through a linked directory.
    """
    parents = {(workspace / path).parent for path in paths}
    behind_links = {parent for parent in parents if os.path.realpath(parent) != str(parent)}
    return frozenset(
        path
        for path in paths
        if (workspace / path).parent in behind_links
        or _is_excluded(workspace / path, secret_values)
    )


def _is_excluded(path: Path, secret_values: Sequence[bytes]) -> bool:
    try:
        state = os.lstat(path)
        if stat.S_ISLNK(state.st_mode):
            data = os.fsencode(os.readlink(path))  # noqa: PTH115 - bytes
        elif stat.S_ISREG(state.st_mode):
            if not secret_values:
                return not os.access(path, os.R_OK)
            data = path.read_bytes()
        else:
            return True
    except OSError:
        return True
    return any(value in data for value in secret_values)
