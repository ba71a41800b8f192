"""Slows the reading of streams if there are many, so that they leave time for everything else.

A stream that is read less often delivers more data per read, for nearly the same work. So a daemon
with a thousand streams shows their text a quarter of a second late, but a new turn, an interrupt or
an approval does not have to wait for seconds.
"""

from collections.abc import Generator
from contextlib import contextmanager

import trio

READS_PER_S = 4_000
"""How often all streams together are read: about half as often as one core could."""

PAUSE_MIN_S = 0.005
"""Shorter pauses cost more than they save, so up to 20 streams are read without pauses."""


class ReadingPace:
    """The reading pace of all streams of a daemon."""

    def __init__(self) -> None:
        self._streams = 0

    @property
    def pause_s(self) -> float:
        """The time between two reads of one stream; 0 while there are few streams."""
        pause_s = self._streams / READS_PER_S
        return pause_s if pause_s > PAUSE_MIN_S else 0.0

    @contextmanager
    def stream(self) -> Generator[None]:
        """Count one more stream within the block."""
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    async def wait_since(self, read_at: float) -> None:
        """Wait until a stream that was read at `read_at`, by trio's clock, may be read again."""
        if pause_s := self.pause_s:
            await trio.sleep_until(read_at + pause_s)
