"""Reads documents that users write for models, up to a limit and never through a link to elsewhere.

`instructions`, `skills`, `commands` and `agents` define what documents mean; nothing in documents
is executed. A project's documents, like its other files, are read only if the rules let a model
read them without asking. The user's own documents are always read.
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
"""The most entries of a folder that are read; folders made by hand have only a few."""

_BYTE_ORDER_MARK: Final = "\ufeff"


class Document(NamedTuple):
    """The beginning of a text file.

    `size_bytes` is the size of the whole file, and `cut` tells whether `text` is incomplete.
    """

    path: Path
    text: str
    size_bytes: int
    cut: bool


class RefusedDocument(NamedTuple):
    """A project's document that exists but was not read; `why` is a clause with the reason."""

    path: Path
    why: str


MayRead = Callable[[Path], bool]
"""Whether a model may see the content of the file at a resolved path without asking."""


def read_document(path: Path, within: Path | None, bytes_max: int) -> Document | None:
    """Return at most `bytes_max` of a file; None if it is missing or can't be read.

    Links may lead anywhere below `within`, or anywhere at all if `within` is None, as in the user's
    own directory. A FIFO, a device or a directory is not a document. Invalid UTF-8 is replaced.
    Blocks for as long as the disk takes.
    """
    location = _follow(path, within)
    if location is None or (within is not None and not location.inside):
        return None
    return _read(path, location, bytes_max)


def read_project_document(
    path: Path, within: Path | None, bytes_max: int, may_read: MayRead
) -> Document | RefusedDocument | None:
    """Return at most `bytes_max` of a document of a project or the user; see `read_document`.

    A project's document is refused if it is outside `within`, or if reading it needs approval. The
    user's own documents have no `within`.
    """
    if within is None:
        return read_document(path, None, bytes_max)
    location = _follow(path, within)
    if location is None:
        return None
    if not location.inside:
        return RefusedDocument(path, f"a link leads out of {printable(within)}")
    if not may_read(location.path):
        return RefusedDocument(path, f"reading {printable(location.path)} needs approval")
    return _read(path, location, bytes_max)


def names_in(directory: Path) -> list[str]:
    """Return the names in a folder, sorted; no names if it is missing or can't be read."""
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in islice(entries, ENTRIES_MAX))
    except OSError:
        return []


def _follow(path: Path, within: Path | None) -> Location | None:
    """Resolve a path; None if it does not exist."""
    # Usually the file does not exist, and resolving links would take longer.
    if not os.path.lexists(path):
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
            # One byte more shows whether the file was cut.
            data = stream.read(bytes_max + 1)
            size_bytes = max(os.fstat(opened).st_size, len(data))
        except OSError:
            return None
    text = data[:bytes_max].decode(errors="replace").removeprefix(_BYTE_ORDER_MARK)
    return Document(path, text.replace("\r\n", "\n"), size_bytes, len(data) > bytes_max)
