"""How often events may draw a frame. Keys are drawn at once, so that typing feels immediate."""

import asyncio
import time
from collections.abc import Callable

FRAME_S = 1 / 30
"""Shortest time between two frames that events make; more can't be told apart."""


class Pace:
    """Joins the wishes of events for a new frame."""

    def __init__(self) -> None:
        self._drawn_at = 0.0
        self._is_due = False

    def soon(self, draw: Callable[[], None]) -> None:
        """Draw once, as soon as the last frame is old enough."""
        if not self._is_due:
            self._is_due = True
            wait_s = max(0.0, self._drawn_at + FRAME_S - time.monotonic())
            asyncio.get_running_loop().call_later(wait_s, draw)

    def drawn(self) -> None:
        """A frame was drawn, for whatever reason."""
        self._drawn_at, self._is_due = time.monotonic(), False
