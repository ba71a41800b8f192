"""Decides how often to draw: as often as eyes can distinguish, and as the terminal can follow.

Text may take long to reach the terminal, as ssh and the kernel buffer text that a slow link can't
carry yet. So each frame ends with a request for the terminal's status. While a request is
unanswered, events draw no further frame. Keys draw a few more, as the user waits for their effect.
"""

import asyncio
import time
from collections.abc import Callable

FRAME_S = 1 / 30
"""Shortest time between two frames for events: nobody could see more frames."""

FRAMES_IN_FLIGHT_MAX = 4
"""Maximum number of unanswered frames for keys: enough for 13 keys a second with 300 ms latency."""

ANSWER_TIMEOUT_S = 2.0
"""Time after which an answer counts as lost, so that the next frame is drawn without it."""


class Pace:
    """Decides when frames are drawn. `draw` draws a frame if `may_draw`, and then calls `drawn`."""

    def __init__(self, draw: Callable[[], None], seen: Callable[[], None]) -> None:
        """`seen` is called when, as far as is known, the terminal shows all frames drawn so far."""
        self.asks = False
        """Whether frames ask for the terminal's status: from its first answer on."""
        self._draw = draw
        self._seen = seen
        self._drawn_at = 0.0
        self._due: asyncio.TimerHandle | None = None
        self._in_flight = 0
        """Number of frames that the terminal has not answered."""
        self._timeout: asyncio.TimerHandle | None = None
        self._all_answered = asyncio.Event()
        self._is_for_key = False
        self._is_postponed = False
        """Whether a frame was wanted but could not be drawn."""
        self._settles = False

    def begin(self) -> None:
        """Note a request for the status, at first or after another program had the terminal."""
        self.asks = self._settles = False
        self._asked()

    def answered(self) -> None:
        """Note that the terminal has answered, so it shows one more frame."""
        self.asks = not self._settles
        self._arrived(max(0, self._in_flight - 1))

    async def settle(self) -> None:
        """Stop asking, and return when all answers have arrived: other programs would read them."""
        self.asks, self._settles = False, True
        await self._all_answered.wait()

    def key_came(self) -> None:
        """Note that the next frame shows the effect of a key."""
        self._is_for_key = True

    def may_draw(self) -> bool:
        """Whether a frame may be drawn now; otherwise, it will be drawn as soon as possible."""
        most = FRAMES_IN_FLIGHT_MAX if self._is_for_key else 1
        self._is_postponed = self.asks and self._in_flight >= most
        return not self._is_postponed

    def soon(self) -> None:
        """Draw one frame, as soon as the last frame is old enough."""
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(self._wait_s, self._draw_due)

    async def rest(self) -> None:
        """Return when the last frame is old enough for the next one."""
        await asyncio.sleep(self._wait_s)

    def drawn(self) -> None:
        """Note that a frame was drawn, for whatever reason."""
        self._drawn_at = time.monotonic()
        self._is_for_key = False
        self.stop()

    def written(self, *, asked: bool) -> None:
        """Note that the frame was written, with a request for the status if `asked`."""
        if asked:
            self._asked()
        elif not self._in_flight:
            self._seen()

    def stop(self) -> None:
        """Cancel the frame that `soon` has planned."""
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _asked(self) -> None:
        self._in_flight += 1
        self._all_answered.clear()
        if self._timeout is not None:
            self._timeout.cancel()
        loop = asyncio.get_running_loop()
        self._timeout = loop.call_later(ANSWER_TIMEOUT_S, self._arrived, 0)

    def _draw_due(self) -> None:
        self._due = None
        self._draw()

    def _arrived(self, left: int) -> None:
        self._in_flight = left
        if not left:
            self._seen()
            self._all_answered.set()
            if self._timeout is not None:
                self._timeout.cancel()
        if self._is_postponed:
            self.soon()

    @property
    def _wait_s(self) -> float:
        return max(0.0, self._drawn_at + FRAME_S - time.monotonic())
