"""Captures a command's output: its head and tail in memory, all of it in a spill file.

This is the only place that decodes programs' output. `tools.truncation` decides how much the model
sees.
"""

import codecs
import os
from pathlib import Path
from typing import Final, NamedTuple

import trio

from tiller_daemon.private import make_directory, open_private
from tiller_daemon.processes.terminal_text import TerminalText

END_BYTES: Final = 50 * 1024
"""How much of each end of the output is kept in memory; a model sees no more than this in total."""

SPILL_BYTES_MAX: Final = 64 * 1024 * 1024
"""The largest spill file. Of any output beyond this size, only the tail is kept."""

LIVE_BYTES_MAX: Final = 1024 * 1024
"""How much output is decoded while the command runs: four times what a turn shows of one call."""

SLICE_BYTES: Final = 16 * 1024
"""How much output is looked at before other tasks run; 16 KiB of escape sequences take 20 ms."""

_CHARACTER_BYTES_MAX: Final = 4


class CapturedOutput(NamedTuple):
    """The output of a command."""

    head: str
    """All of the output, or its beginning if it does not fit into memory."""
    tail: str
    """The end of the output; empty if `head` is all of it."""
    lines: int
    """The number of lines of the whole output."""
    size_bytes: int
    """The size of the whole output."""
    where: str
    """A clause that tells where the full output is, or why it was not written; empty without a
    spill file."""


class Capture:
    """Collects output piece by piece in bounded memory; call `close` after the command."""

    def __init__(self, spill_path: Path, terminal: TerminalText | None = None) -> None:
        """With a `terminal`, all but the live text is what that terminal shows in the end."""
        self._path: Final = spill_path
        self._terminal: Final = terminal
        # Incremental, because a piece may end in the middle of a character.
        self._live: Final = codecs.getincrementaldecoder("utf-8")("replace")
        self._live_bytes = 0
        self._head = bytearray()
        self._tail = bytearray()
        self._size_bytes = 0
        self._lines = 0
        self._spill: int | None = None
        self._spilled_bytes = 0
        self._problem = ""

    async def add(self, piece: bytes) -> str:
        """Add a piece of output; return its text, to be shown while the command runs.

        Beyond `LIVE_BYTES_MAX` the text is empty, because decoding a flood takes longer than
        storing it. The first piece that does not fit into memory opens the spill file. If the file
        can't be written (disk full), `CapturedOutput.where` says so, and the command continues.
        """
        left_bytes = LIVE_BYTES_MAX - self._live_bytes
        shown = self._live.decode(piece[:left_bytes]) if left_bytes > 0 else ""
        self._live_bytes += len(piece)
        if self._terminal:
            gone = bytearray()
            for start in range(0, len(piece), SLICE_BYTES):
                gone += self._terminal.feed(piece[start : start + SLICE_BYTES])
                await trio.lowlevel.checkpoint()
            piece = bytes(gone)
        if to_write := self._keep(piece):
            await trio.to_thread.run_sync(self._write, to_write)
        return shown

    async def spill(self) -> None:
        """Write a spill file even if the output fits into memory; call this after the end."""
        self._end()
        if self._size_bytes <= END_BYTES:
            await trio.to_thread.run_sync(self._write, bytes(self._head))

    def close(self) -> None:
        """Close the spill file if there is one."""
        self._end()
        if self._spill is not None:
            os.close(self._spill)
            self._spill = None

    def result(self) -> CapturedOutput:
        """Return the output so far; invalid UTF-8 is replaced."""
        self._end()
        kept_bytes = len(self._head) + len(self._tail)
        if kept_bytes == self._size_bytes:
            head, tail = (self._head + self._tail).decode(errors="replace"), ""
        else:
            beginning = codecs.getincrementaldecoder("utf-8")("replace")
            head, tail = beginning.decode(self._head), _decode_end(self._tail)
        return CapturedOutput(head, tail, self._lines, self._size_bytes, self._where())

    def spill_path(self) -> str:
        """Return the path of the spill file; empty if there is none."""
        return str(self._path) if self._spilled_bytes else ""

    def _end(self) -> None:
        """Keep what the terminal still holds, which is little."""
        if self._terminal and (to_write := self._keep(self._terminal.end())):
            self._write(to_write)

    def _keep(self, piece: bytes) -> bytes:
        """Keep output in memory; return what belongs into the spill file."""
        self._lines += piece.count(b"\n")
        before_bytes = self._size_bytes
        self._size_bytes += len(piece)
        to_write = b""
        if self._size_bytes > END_BYTES and self._spilled_bytes < SPILL_BYTES_MAX:
            # The file gets the whole output, so it begins with the part that is in memory.
            to_write = (bytes(self._head) if before_bytes <= END_BYTES else b"") + piece
        into_head = END_BYTES - len(self._head)
        self._head += piece[:into_head]
        self._tail += piece[into_head:]
        del self._tail[:-END_BYTES]
        return to_write

    def _write(self, piece: bytes) -> None:
        left_bytes = SPILL_BYTES_MAX - self._spilled_bytes
        if self._problem or left_bytes <= 0:
            return
        try:
            if self._spill is None:
                self._spill = _create(self._path)
            rest = memoryview(piece)[:left_bytes]
            while rest:
                # A disk that is nearly full takes less than it is given.
                written = os.write(self._spill, rest)
                self._spilled_bytes += written
                rest = rest[written:]
        except OSError as error:
            self._problem = error.strerror or str(error)

    def _where(self) -> str:
        if self._problem:
            return f"the full output could not be written to {self._path}: {self._problem}"
        if self._spilled_bytes >= SPILL_BYTES_MAX:
            return f"the first {SPILL_BYTES_MAX // 1024**2} MiB are in {self._path}"
        return f"the full output is in {self._path}" if self._spilled_bytes else ""


def _create(path: Path) -> int:
    make_directory(path.parent)
    return open_private(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)


def _decode_end(data: bytearray) -> str:
    # The tail may start in the middle of a character.
    rest = next((i for i, one in enumerate(data[:_CHARACTER_BYTES_MAX]) if one & 0xC0 != 0x80), 0)
    return data[rest:].decode(errors="replace")
