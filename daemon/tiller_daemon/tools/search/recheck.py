"""Checks the results of a search against the files below the searched directory.

ripgrep opens files by name. If a directory is replaced by a link meanwhile, ripgrep reads files
outside, which the call is not allowed to show. So every result is looked up again through
`files.pinned_directory`, which holds the directory open, and is dropped if it is not there under
the same name. Nothing outside is shown, or even counted.
"""

import io
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Final, NamedTuple, TypeAlias

import trio

from tiller_daemon.files.paths import PathProblem
from tiller_daemon.files.pinned_directory import PinnedDirectory
from tiller_daemon.tools.base import ToolEnvironment
from tiller_daemon.tools.search.ripgrep import LINE_COLUMNS_MAX, Extent, Query, run_search

READ_BYTES_MAX: Final = 1024**3
"""How much is read again, in about a second. Results beyond it are not shown."""

_PIECE_BYTES: Final = 64 * 1024
"""How much of a long line is compared; lines that ripgrep cuts are shorter."""

_CUT: Final = b" [... "
"""The beginning of what ripgrep appends to a line that it cuts."""

_Reader: TypeAlias = "io.BufferedReader[io.FileIO]"


class File(NamedTuple):
    """A file, and when it was changed, in seconds since the epoch."""

    path: bytes
    changed: float


class Line(NamedTuple):
    """A matching line of the file `path`, without its line end; cut if it is long."""

    path: bytes
    number: int
    text: bytes


class ConfirmedLines(NamedTuple):
    """The lines found in their files, by path and number; `complete` if all files were checked."""

    lines: list[Line]
    complete: bool


async def find_files(
    beneath: PinnedDirectory,
    environment: ToolEnvironment,
    ignore_lines: tuple[str, ...],
    is_wanted: Callable[[str], bool],
    files_max: int,
) -> tuple[list[File], Extent]:
    """Return the wanted files, by path, but at most `files_max`; and how far the search got.

    `is_wanted` gets a file's path in the directory. Files that `ignore_lines` exclude are skipped.
    Raises `ToolFailure`.
    """
    paths: list[bytes] = []

    def take(record: bytes) -> bool:
        path = record.removeprefix(b"./")
        if is_wanted(path.decode(errors="replace")):
            paths.append(path)
        return len(paths) < files_max

    extent = await run_search(Query("./", ignore_lines=ignore_lines), beneath, environment, take)
    return await trio.to_thread.run_sync(_existing_files, beneath, paths), extent


def confirmed_lines(beneath: PinnedDirectory, found: Iterable[Line]) -> ConfirmedLines:
    """Return those lines that are in their files. Blocks; call it in a thread."""
    confirmed: list[Line] = []
    left_bytes = READ_BYTES_MAX
    for path, lines in groupby(sorted(found), key=lambda line: line.path):
        trio.from_thread.check_cancelled()
        if left_bytes <= 0:
            return ConfirmedLines(confirmed, complete=False)
        with suppress(OSError, PathProblem):
            opened = io.FileIO(beneath.open_regular(path))
            with io.BufferedReader(opened, _PIECE_BYTES) as file:
                confirmed += _in_file(file, list(lines), left_bytes)
                left_bytes -= file.tell()
    return ConfirmedLines(confirmed, left_bytes > 0)


def _existing_files(beneath: PinnedDirectory, paths: Iterable[bytes]) -> list[File]:
    existing: list[File] = []
    for path in sorted(paths):
        with suppress(OSError):
            existing.append(File(path, beneath.state(path).st_mtime))
    trio.from_thread.check_cancelled()
    return existing


def _in_file(file: _Reader, reported: Sequence[Line], bytes_max: int) -> Iterator[Line]:
    waiting = iter(reported)
    wanted = next(waiting)
    for number, line in _lines(file, bytes_max):
        while wanted.number <= number:
            if wanted.number == number and _is_same(line, wanted.text):
                yield wanted
            following = next(waiting, None)
            if following is None:
                return
            wanted = following


def _lines(file: _Reader, bytes_max: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with their numbers; only the beginning of a very long line."""
    number, begins = 1, True
    for piece in _pieces(file):
        if begins:
            yield number, piece.removesuffix(b"\n")
        begins = piece.endswith(b"\n")
        number += begins
        bytes_max -= len(piece)
        if bytes_max <= 0:
            return
        if number % 1024 == 0 or not begins:
            trio.from_thread.check_cancelled()


def _pieces(file: _Reader) -> Iterator[bytes]:
    """Yield the file as ripgrep reads it: UTF-16 as UTF-8, and without a byte order mark."""
    beginning = file.peek(len(BOM_UTF8))
    if beginning.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        text = io.TextIOWrapper(file, "utf-16", "replace", newline="\n")
        try:
            while piece := text.readline(_PIECE_BYTES):
                yield piece.encode()
        finally:
            text.detach()
        return
    if beginning.startswith(BOM_UTF8):
        file.read(len(BOM_UTF8))
    while line := file.readline(_PIECE_BYTES):
        yield line


def _is_same(line: bytes, reported: bytes) -> bool:
    """Whether a line is the one that ripgrep found; ripgrep cuts long lines."""
    if line == reported:
        return True
    head = reported.rpartition(_CUT)[0]
    return len(head) >= LINE_COLUMNS_MAX and line.startswith(head)
