"""How often frames are drawn: as often as they can be told apart, and as the terminal takes them.

What is written to a terminal may be on its way for long: ssh and the kernel keep what a slow link
does not carry yet. So behind each frame the terminal is asked for its status. Until it has
answered, events draw no other frame, and keys only a few, as their effect is waited for.
"""

import asyncio
import time
from collections.abc import Callable

FRAME_S = 1 / 30
"""Shortest time between two frames that events make; more can't be told apart."""

ON_THEIR_WAY_MAX = 4
"""Frames without an answer at which keys wait, too: at 300 ms, typing 13 keys a second."""

PATIENCE_S = 2.0
"""After so long without an answer a frame is drawn all the same: it may have been lost."""


class Pace:
    """Joins the wishes for a new frame. `draw` makes one if `may_draw`, and calls `drawn`."""

    def __init__(self, draw: Callable[[], None]) -> None:
        self.asks = False
        """Whether frames ask for an answer: once the terminal has given one."""
        self._draw = draw
        self._drawn_at = 0.0
        self._due: asyncio.TimerHandle | None = None
        self._on_their_way = 0
        """Frames that the terminal has not answered."""
        self._given_up: asyncio.TimerHandle | None = None
        self._all_answered = asyncio.Event()
        self._is_for_key = False
        self._is_wanted = False
        """Whether a frame could not be drawn when it was wanted."""
        self._settles = False

    def begin(self) -> None:
        """The terminal was asked for the first time, or anew after another program had it."""
        self.asks = self._settles = False
        self.asked()

    def asked(self) -> None:
        """The frame that was drawn asks for an answer."""
        self._on_their_way += 1
        self._all_answered.clear()
        if self._given_up is not None:
            self._given_up.cancel()
        self._given_up = asyncio.get_running_loop().call_later(PATIENCE_S, self._give_up)

    def answered(self) -> None:
        """The terminal has answered, so it shows one more frame."""
        self.asks = not self._settles
        self._arrived(max(0, self._on_their_way - 1))

    async def settle(self) -> None:
        """Ask for no more answers, and return when all have come: other programs want none."""
        self.asks, self._settles = False, True
        await self._all_answered.wait()

    def key_came(self) -> None:
        """The next frame shows what a key does."""
        self._is_for_key = True

    def may_draw(self) -> bool:
        """Whether a frame can be drawn now; if not, one is as soon as that changes."""
        most = ON_THEIR_WAY_MAX if self._is_for_key else 1
        self._is_wanted = self.asks and self._on_their_way >= most
        return not self._is_wanted

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
        self._is_for_key = False
        self.stop()

    def stop(self) -> None:
        """Draw no frame for what events have wished so far."""
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _draw_due(self) -> None:
        self._due = None
        self._draw()

    def _give_up(self) -> None:
        self._arrived(0)

    def _arrived(self, left: int) -> None:
        self._on_their_way = left
        if not left:
            self._all_answered.set()
            if self._given_up is not None:
                self._given_up.cancel()
        if self._is_wanted:
            self.soon()

    @property
    def _wait_s(self) -> float:
        return max(0.0, self._drawn_at + FRAME_S - time.monotonic())
