"""Files that no snapshot stores because of where they are."""

from collections.abc import Callable, Collection
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
