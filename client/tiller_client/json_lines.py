"""Lines of JSON on stdin and stdout, for a program at the other end: bounded, whole, unbuffered.

People's lines are read by `watch` and written by `console`.
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
"""Longest line: more than the largest message takes in base64, which is a third longer."""

READ_BYTES = 128 * 1024


class Line(NamedTuple):
    """A line that is not empty; `text` is `None` if it was longer than `LINE_BYTES_MAX`."""

    number: int
    """From 1; empty lines count."""
    text: bytes | None


def read_lines(descriptor: int, wakeup: Wakeup) -> Generator[Line]:
    """Yield lines until the end of input or a wake-up; the last one needs no newline."""
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
        if len(pending) > LINE_BYTES_MAX:
            too_long = True
            pending.clear()


class LineWriter:
    """Writes structs as lines of JSON, from any thread; a reader that is slow stops the writers."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def write(self, struct: msgspec.Struct) -> None:
        """Write one line; raises the same errors as `put_bytes`."""
        with self._lock:
            put_bytes(self._descriptor, msgspec.json.encode(struct) + b"\n")

    def end(self) -> None:
        """Let no thread begin another line; the present one is written first."""
        self._lock.acquire()
