"""Finds where the links among protected paths lead.

A mount protects the file that a link leads to, but no mount can protect a link itself. So the files
are protected at their own paths. A command could still replace a link that is in a directory where
the command may write.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tiller_daemon.sandbox.known_paths import is_there, root_of
from tiller_daemon.sandbox.scan import PRUNED
from tiller_daemon.stamps import LINKS_MAX, failed, look_along, look_into

FOLDERS_MAX: Final = 1_000
"""The most directories that are searched for links; directories of settings have a few."""


class LinkedPaths(NamedTuple):
    """What the links at and below some protected paths lead to."""

    targets: tuple[Path, ...] = ()
    """The paths in writable directories that the links lead to, without links. Some may be
    missing."""
    is_replaceable: bool = False
    """Whether a command could make a protected path lead elsewhere."""


def linked_paths(
    tops: Iterable[Path], protected: Sequence[Path], writable: Sequence[Path]
) -> LinkedPaths:
    """Return what the links at and below `tops` lead to; blocks while directories are read.

    In `writable` directories, commands can change everything except the `protected` paths.
    """
    targets: dict[Path, None] = {}
    is_replaceable = False
    searched = 0
    waiting = [*tops]
    while waiting:
        for link in _links(waiting.pop()):
            if link is None:
                searched += 1
                if searched > FOLDERS_MAX:
                    return LinkedPaths(tuple(targets), is_replaceable=True)
                continue
            look_along(link)
            passed, target = _follow(link)
            is_replaceable |= any(
                root_of(one, writable) and not _is_in(one.parent, (*protected, *targets))
                for one in passed
            )
            if any(root.is_relative_to(target) for root in writable):
                # If the whole workspace were protected, no command could write anything.
                is_replaceable = True
            elif root_of(target, writable) and not _is_in(target, (*protected, *targets)):
                targets[target] = None
                # A directory at the end of a link may have links, too.
                waiting.append(target)
    return LinkedPaths(tuple(targets), is_replaceable)


def _links(top: Path) -> Iterator[Path | None]:
    """Yield `top` if it is or passes a link, else the links below it, and None per directory."""
    exists = is_there(top)
    if os.path.realpath(top) != str(top):
        yield top
        return
    waiting = [top] if exists else []
    while waiting:
        folder = waiting.pop()
        look_into(folder)
        try:
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except NotADirectoryError:
            continue
        except OSError as error:
            failed(error)
            continue
        yield None
        for entry in found:
            if entry.is_symlink():
                yield Path(entry.path)
            elif entry.is_dir(follow_symlinks=False) and entry.name not in PRUNED:
                waiting.append(Path(entry.path))


def _follow(link: Path) -> tuple[list[Path], Path]:
    """Return the links that are passed on the way to the target of `link`, and the target."""
    passed: list[Path] = []
    place, names = Path("/"), [*reversed(link.parts[1:])]
    while names:
        name = names.pop()
        if name == "..":
            place = place.parent
            continue
        try:
            target = Path(os.readlink(place / name))  # noqa: PTH115 - fails for what is no link
        except OSError:
            place /= name
            continue
        passed.append(place / name)
        if len(passed) > LINKS_MAX:
            break
        if target.is_absolute():
            place = Path("/")
        names += reversed(target.parts[1 if target.is_absolute() else 0 :])
    return passed, place


def _is_in(path: Path, places: Iterable[Path]) -> bool:
    """Whether a path is one of `places` or below one; a link contains nothing."""
    return any(path.is_relative_to(place) and not place.is_symlink() for place in places)
