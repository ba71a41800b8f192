"""The places that a task declares for its sub-agent, which may change nothing else. Pure.

`session.calls.write_limits` refuses calls that would write elsewhere, and sandboxes keep commands
from it.
"""

from pathlib import Path
from typing import Final
from unicodedata import normalize

from msgspec import Struct

WHOLE: Final = "."
"""The name of the workspace itself."""


class WriteScope(Struct, frozen=True):
    """Files and directories of a workspace, with everything in the directories."""

    names: tuple[str, ...]
    """Their paths relative to the workspace, without links, as rules and people see them."""
    roots: tuple[Path, ...]
    """The same files and directories, as absolute paths."""

    def covers(self, name: str) -> bool:
        """Whether a path is in this scope; `name` is absolute for a path outside the workspace."""
        return any(is_below(name, one) for one in self.names)

    def covers_all(self, other: "WriteScope") -> bool:
        """Whether all of `other` is in this scope."""
        return all(map(self.covers, other.names))

    def overlaps(self, other: "WriteScope") -> bool:
        """Whether a path can be in both scopes.

        Names that differ only in case, or in how accents are encoded, count as the same name, as
        on some file systems.
        """
        ours, theirs = map(_folded, self.names), [*map(_folded, other.names)]
        return any(is_below(a, b) or is_below(b, a) for a in ours for b in theirs)

    def __str__(self) -> str:
        return ", ".join(self.names)


def scope_of(places: dict[str, Path]) -> WriteScope:
    """Return the scope of `places`, by name, without places that are inside another one."""
    names = [name for name in places if not any(_is_in(name, other) for other in places)]
    return WriteScope(tuple(names), tuple(places[name] for name in names))


def is_below(name: str, place: str) -> bool:
    """Whether a path is `place` or inside it; both are named as in a `WriteScope`."""
    if place == WHOLE:
        return not name.startswith("/")
    return name == place or name.startswith(f"{place}/")


def _folded(name: str) -> str:
    # Normalized before and after, as case folding may undo it (Unicode, definition D145).
    return normalize("NFD", normalize("NFD", name).casefold())


def _is_in(name: str, other: str) -> bool:
    return name != other and is_below(name, other)
