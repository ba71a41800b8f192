"""Documents that people write for a model: read with a bound, never followed out of their place.

What they mean is in `instructions`, `skills`, `commands` and `agents`. Nothing in them is run.
"""

import os
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from tiller_daemon.workspace.paths import PathProblem, locate, open_regular

ENTRIES_MAX: Final = 1_000
"""Entries of a folder that are looked at; a folder made by people has a handful."""

_BYTE_ORDER_MARK: Final = "\ufeff"


class Document(NamedTuple):
    """The beginning of a text file; `size_bytes` is that of the whole, and `cut` says if more."""

    path: Path
    text: str
    size_bytes: int
    cut: bool


def read_document(path: Path, within: Path | None, bytes_max: int) -> Document | None:
    """Return at most `bytes_max` of a file, or None when there is none that may be read.

    A link is followed only as long as it stays below the directory `within`; without one, as in
    the user's own directory, it may lead anywhere. A FIFO, a device or a directory is no document.
    Bytes that are not UTF-8 are replaced. Blocks for as long as the disk takes.
    """
    if not os.path.lexists(path):  # the usual case, for each turn anew: following links costs more
        return None
    try:
        location = locate(within or path.parent, os.fspath(path))
        if within is not None and not location.inside:
            return None
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


def names_in(directory: Path) -> list[str]:
    """Return the names in a folder, sorted; none when it is not there or can't be read."""
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in islice(entries, ENTRIES_MAX))
    except OSError:
        return []
