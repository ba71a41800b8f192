"""What a search found, looked at again: the files that are there, and the lines that are in them.

A search opens files by their names. One that looks while a directory becomes a link is led out of
the place that it searches, and so may be made to tell of files that nobody allowed. Here all is
taken from the directory that is held open (`files.beneath`): what is not found there under the
same name was not found. So nothing that depends on other files is shown, nor counted.
"""

import io
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Final, NamedTuple, TypeAlias

import trio

from tiller_daemon.files.beneath import Beneath
from tiller_daemon.files.paths import PathProblem
from tiller_daemon.tools.search.ripgrep import LINE_COLUMNS_MAX

READ_BYTES_MAX: Final = 1024**3
"""How much of files is read once more: about a second. What was found beyond is not shown."""

_PIECE_BYTES: Final = 64 * 1024
"""Of a longer line only so much is compared; a cut line is shorter."""

_CUT: Final = b" [... "
"""How begins what ripgrep puts behind a line that it cuts."""

_Reader: TypeAlias = "io.BufferedReader[io.FileIO]"


class File(NamedTuple):
    """A file, and when it was changed."""

    path: bytes
    changed: float


class Line(NamedTuple):
    """A line that fits, without its end; a long one is cut. `path` is that of its file."""

    path: bytes
    number: int
    text: bytes


class Seen(NamedTuple):
    """The lines that are there, by path and number; `whole` if all files were looked at."""

    lines: list[Line]
    whole: bool


def existing_files(beneath: Beneath, paths: Iterable[bytes]) -> list[File]:
    """Return those of the files that are there, by path. Blocks; call it in a thread."""
    there: list[File] = []
    for path in sorted(paths):
        with suppress(OSError):
            there.append(File(path, beneath.state(path).st_mtime))
    trio.from_thread.check_cancelled()
    return there


def confirmed_lines(beneath: Beneath, found: Iterable[Line]) -> Seen:
    """Return those of the lines that are there. Blocks; call it in a thread."""
    there: list[Line] = []
    left_bytes = READ_BYTES_MAX
    for path, lines in groupby(sorted(found), key=lambda line: line.path):
        trio.from_thread.check_cancelled()
        if left_bytes <= 0:
            return Seen(there, whole=False)
        with suppress(OSError, PathProblem):
            opened = io.FileIO(beneath.open_regular(path))
            with io.BufferedReader(opened, _PIECE_BYTES) as file:
                there += _in_file(file, list(lines), left_bytes)
                left_bytes -= file.tell()
    return Seen(there, left_bytes > 0)


def _in_file(file: _Reader, found: Sequence[Line], bytes_max: int) -> Iterator[Line]:
    waiting = iter(found)
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
    """Give the lines with their numbers, of a very long one the beginning."""
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
    """The file as searches read it: UTF-16 becomes UTF-8, and a mark is no part of the text."""
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


def _is_same(line: bytes, found: bytes) -> bool:
    """Whether a line is what was found, which is cut if the line is long."""
    if line == found:
        return True
    head = found.rpartition(_CUT)[0]
    return len(head) >= LINE_COLUMNS_MAX and line.startswith(head)
