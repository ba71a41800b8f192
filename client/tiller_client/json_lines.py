"""Reads and writes lines of JSON on stdin and stdout, for a program at the other end.

`watch` reads lines from people, and `console` writes lines for them.
"""

import os
import select
import threading
from collections.abc import Generator, Iterator
from typing import NamedTuple

import msgspec

from tiller_client.following.watch import Wakeup
from tiller_client.streams import put_bytes

LINE_BYTES_MAX = 32 * 1024 * 1024
"""Longest line; the largest message in base64, which makes it a third longer, is shorter."""

READ_BYTES = 128 * 1024


class Line(NamedTuple):
    """A line that is not empty; `text` is `None` if it was longer than `LINE_BYTES_MAX`."""

    number: int
    """The number of the line, from 1; empty lines count."""
    text: bytes | None


class LineSplitter:
    """Splits a stream into lines; `None` stands for a line longer than `LINE_BYTES_MAX`."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._too_long = False

    def take(self, data: bytes) -> Iterator[bytes | None]:
        """Add the next piece of the stream, and yield the lines that it ends."""
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._append(piece)
            yield None if self._too_long else bytes(self._pending)
            self._pending.clear()
            self._too_long = False
        self._append(rest)

    def _append(self, piece: bytes) -> None:
        # A line that is too long is not kept, so memory stays bounded.
        if len(self._pending) + len(piece) > LINE_BYTES_MAX:
            self._too_long = True
            self._pending.clear()
        if not self._too_long:
            self._pending += piece


def read_lines(descriptor: int, wakeup: Wakeup) -> Generator[Line]:
    """Yield lines until the end of input or a wake-up; the last line needs no newline."""
    splitter, number = LineSplitter(), 0
    while descriptor in select.select([descriptor, wakeup.fd], [], [])[0]:
        if wakeup.take():
            return
        data = os.read(descriptor, READ_BYTES)
        for text in splitter.take(data or b"\n"):
            number += 1
            if text is None or text.strip():
                yield Line(number, text)
        if not data:
            return


class LineWriter:
    """Writes structs as lines of JSON, from any thread; writers wait for a slow reader."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def write(self, struct: msgspec.Struct) -> None:
        """Write one line; raises the same errors as `put_bytes`."""
        with self._lock:
            put_bytes(self._descriptor, msgspec.json.encode(struct) + b"\n")

    def end(self) -> None:
        """Wait until the present line is written, and let no thread begin another line."""
        self._lock.acquire()
