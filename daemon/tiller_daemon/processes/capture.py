"""Keeping a command's output: a head and a tail in memory, the whole in a spill file.

The one place that makes text of a program's bytes. What of it the model sees is cut in
`tools.truncation`.
"""

import codecs
import os
from pathlib import Path
from typing import Final, NamedTuple

import trio

from tiller_daemon.private import make_directory, open_private

KEPT_BYTES: Final = 50 * 1024
"""How much of the beginning and of the end is held in memory: as much as a model is shown."""

SPILL_BYTES_MAX: Final = 64 * 1024 * 1024
"""The largest spill file; of what a command prints beyond that, only the end is kept."""

LIVE_BYTES_MAX: Final = 1024 * 1024
"""How much is text while the command runs: four times what a turn shows of one call."""

_CHARACTER_BYTES_MAX: Final = 4


class Captured(NamedTuple):
    """What a command printed: all of it in `head`, or its beginning and its end.

    `lines` and `size_bytes` count the whole. `where` says where the whole is, or why it is not
    kept; empty when nothing was written to the spill file.
    """

    head: str
    tail: str
    lines: int
    size_bytes: int
    where: str


class Capture:
    """Takes output piece by piece, in bounded memory; close it when the command has ended."""

    def __init__(self, spill_path: Path) -> None:
        self._path: Final = spill_path
        self._live: Final = codecs.getincrementaldecoder("utf-8")("replace")
        self._head = bytearray()
        self._tail = bytearray()
        self._size_bytes = 0
        self._lines = 0
        self._spill: int | None = None
        self._spilled_bytes = 0
        self._problem = ""

    async def add(self, piece: bytes) -> str:
        """Keep the next piece; return its text, to be seen while the call runs.

        There is none beyond `LIVE_BYTES_MAX`: to make text of a flood takes longer than to keep it.
        The first piece that does not fit into memory opens the spill file. A file that can't be
        written (disk full) is told in `Captured.where`; the command goes on.
        """
        room_bytes = LIVE_BYTES_MAX - self._size_bytes
        shown = self._live.decode(piece[:room_bytes]) if room_bytes > 0 else ""
        self._lines += piece.count(b"\n")
        before_bytes = self._size_bytes
        self._size_bytes += len(piece)
        if self._size_bytes > KEPT_BYTES and self._spilled_bytes < SPILL_BYTES_MAX:
            opening = bytes(self._head) if before_bytes <= KEPT_BYTES else b""
            await trio.to_thread.run_sync(self._write, opening + piece)
        room = KEPT_BYTES - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:]
        del self._tail[:-KEPT_BYTES]
        return shown

    async def spill(self) -> None:
        """Write the whole to the spill file though it fits into memory; call after the end."""
        if self._size_bytes <= KEPT_BYTES:
            await trio.to_thread.run_sync(self._write, bytes(self._head))

    def close(self) -> None:
        """Close the spill file, if there is one."""
        if self._spill is not None:
            os.close(self._spill)
            self._spill = None

    def result(self) -> Captured:
        """Return what there is now; bytes that are no UTF-8 come as replacement characters."""
        kept_bytes = len(self._head) + len(self._tail)
        if kept_bytes == self._size_bytes:
            head, tail = (self._head + self._tail).decode(errors="replace"), ""
        else:
            head, tail = _decode_beginning(self._head), _decode_end(self._tail)
        return Captured(head, tail, self._lines, self._size_bytes, self._where())

    def spill_path(self) -> str:
        """Return the path of the spill file; empty if none was written."""
        return str(self._path) if self._spilled_bytes else ""

    def _write(self, piece: bytes) -> None:
        room = SPILL_BYTES_MAX - self._spilled_bytes
        if self._problem or room <= 0:
            return
        try:
            if self._spill is None:
                self._spill = _create(self._path)
            rest = memoryview(piece)[:room]
            while rest:
                written = os.write(self._spill, rest)
                self._spilled_bytes += written
                rest = rest[written:]
        except OSError as error:
            self._problem = error.strerror or str(error)

    def _where(self) -> str:
        if self._problem:
            return f"the whole could not be written to {self._path}: {self._problem}"
        if self._spilled_bytes >= SPILL_BYTES_MAX:
            return f"the first {SPILL_BYTES_MAX // 1024**2} MiB are in {self._path}"
        return f"the whole is in {self._path}" if self._spilled_bytes else ""


def _create(path: Path) -> int:
    make_directory(path.parent)
    return open_private(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)


def _decode_beginning(data: bytearray) -> str:
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data)


def _decode_end(data: bytearray) -> str:
    # The first bytes may be the rest of a character whose beginning was let go.
    rest = next((i for i, one in enumerate(data[:_CHARACTER_BYTES_MAX]) if one & 0xC0 != 0x80), 0)
    return data[rest:].decode(errors="replace")
