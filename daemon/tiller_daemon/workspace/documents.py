"""Documents that people write for a model: read with a bound, never followed out of their place.

What they mean is in `instructions`, `skills`, `commands` and `agents`. Nothing in them is run.
Those of a project are read as its other files are: only if the rules let a model read them unasked.
The user's own are the user's to choose.
"""

import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from tiller_daemon.files.paths import (
    Location,
    PathProblem,
    locate,
    open_regular,
    printable,
)

ENTRIES_MAX: Final = 1_000
"""Entries of a folder that are looked at; a folder made by people has a handful."""

_BYTE_ORDER_MARK: Final = "\ufeff"


class Document(NamedTuple):
    """The beginning of a text file; `size_bytes` is that of the whole, and `cut` says if more."""

    path: Path
    text: str
    size_bytes: int
    cut: bool


class RefusedDocument(NamedTuple):
    """A document of a project that is there and is not read; `why` is a clause."""

    path: Path
    why: str


MayRead = Callable[[Path], bool]
"""Whether the content of a file may be shown to a model unasked; given where its path leads."""


def read_document(path: Path, within: Path | None, bytes_max: int) -> Document | None:
    """Return at most `bytes_max` of a file, or None when there is none that may be read.

    A link is followed only as long as it stays below the directory `within`; without one, as in
    the user's own directory, it may lead anywhere. A FIFO, a device or a directory is no document.
    Bytes that are not UTF-8 are replaced. Blocks for as long as the disk takes.
    """
    location = _follow(path, within)
    if location is None or (within is not None and not location.inside):
        return None
    return _read(path, location, bytes_max)


def read_project_document(
    path: Path, within: Path, bytes_max: int, may_read: MayRead
) -> Document | RefusedDocument | None:
    """Return at most `bytes_max` of a file that a project has for a model; see `read_document`.

    One that leads out of `within`, or to a file that may not be read unasked, is refused.
    """
    location = _follow(path, within)
    if location is None:
        return None
    if not location.inside:
        return RefusedDocument(path, f"it leads out of {printable(within)}")
    if not may_read(location.path):
        return RefusedDocument(path, f"reading {printable(location.path)} needs an approval")
    return _read(path, location, bytes_max)


def names_in(directory: Path) -> list[str]:
    """Return the names in a folder, sorted; none when it is not there or can't be read."""
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in islice(entries, ENTRIES_MAX))
    except OSError:
        return []


def _follow(path: Path, within: Path | None) -> Location | None:
    """Where a path leads, if anything is there."""
    if not os.path.lexists(path):  # the usual case, for each turn anew: following links costs more
        return None
    try:
        return locate(within or path.parent, os.fspath(path))
    except PathProblem:
        return None


def _read(path: Path, location: Location, bytes_max: int) -> Document | None:
    try:
        opened = open_regular(location)
    except PathProblem:
        return None
    with os.fdopen(opened, "rb") as stream:
        try:
            data = stream.read(bytes_max + 1)
            size_bytes = max(os.fstat(opened).st_size, len(data))
        except OSError:
            return None
    text = data[:bytes_max].decode(errors="replace").removeprefix(_BYTE_ORDER_MARK)
    return Document(path, text.replace("\r\n", "\n"), size_bytes, len(data) > bytes_max)
