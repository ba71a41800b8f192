"""Reads and writes lines of JSON on stdin and stdout, for a program at the other end.

`watch` reads lines from people, and `console` writes lines for them.
"""

import os
import select
import threading
from collections.abc import Generator
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


def read_lines(descriptor: int, wakeup: Wakeup) -> Generator[Line]:
    """Yield lines until the end of input or a wake-up; the last line needs no newline."""
    number, pending, too_long = 1, bytearray(), False
    while descriptor in select.select([descriptor, wakeup.fd], [], [])[0]:
        if wakeup.take():
            return
        data = os.read(descriptor, READ_BYTES)
        *ended, rest = data.split(b"\n") if data else (b"", b"")
        for piece in ended:
            pending += piece
            if too_long or len(pending) > LINE_BYTES_MAX:
                yield Line(number, None)
            elif pending.strip():
                yield Line(number, bytes(pending))
            number, too_long = number + 1, False
            pending.clear()
        if not data:
            return
        pending += rest
        # The rest of a line that is too long is not kept, so memory stays bounded.
        if len(pending) > LINE_BYTES_MAX:
            too_long = True
            pending.clear()


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
