"""How often events may draw a frame. Keys are drawn at once, so that typing feels immediate."""

import asyncio
import time
from collections.abc import Callable

FRAME_S = 1 / 30
"""Shortest time between two frames that events make; more can't be told apart."""


class Pace:
    """Joins the wishes of events for a new frame. `draw` makes one and calls `drawn`."""

    def __init__(self, draw: Callable[[], None]) -> None:
        self._draw = draw
        self._drawn_at = 0.0
        self._due: asyncio.TimerHandle | None = None

    def soon(self) -> None:
        """Draw once, as soon as the last frame is old enough."""
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(self._wait_s, self._draw_due)

    async def rest(self) -> None:
        """Return when the last frame is old enough for another one."""
        await asyncio.sleep(self._wait_s)

    def drawn(self) -> None:
        """A frame was drawn, for whatever reason."""
        self._drawn_at = time.monotonic()
        self.stop()

    def stop(self) -> None:
        """Draw no frame for what events have wished so far."""
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _draw_due(self) -> None:
        self._due = None
        self._draw()

    @property
    def _wait_s(self) -> float:
        return max(0.0, self._drawn_at + FRAME_S - time.monotonic())
