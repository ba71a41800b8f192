"""How often frames are drawn: as often as they can be told apart, and as the terminal takes them.

What is written to a terminal may take long to get there: ssh and the kernel buffer what a slow
link can't carry yet. So each frame ends with a request for the terminal's status. While one is
unanswered, events draw no other frame. Keys draw a few more, as the user waits to see them.
"""

import asyncio
import time
from collections.abc import Callable

FRAME_S = 1 / 30
"""Shortest time between two frames that events cause; more can't be told apart."""

FRAMES_IN_FLIGHT_MAX = 4
"""Maximum number of unanswered frames when a key draws: at 300 ms, typing 13 keys a second."""

ANSWER_TIMEOUT_S = 2.0
"""After so long an answer counts as lost, and the next frame is drawn without it."""


class Pace:
    """Decides when frames are drawn. `draw` makes one if `may_draw`, and calls `drawn`."""

    def __init__(
        self,
        draw: Callable[[], None],
        seen: Callable[[], None],
        *,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        """`seen` is called when the terminal shows all frames drawn so far, as far as is known."""
        self.asks = False
        """Whether frames ask for the status: from the terminal's first answer on."""
        self._draw = draw
        self._seen = seen
        self._answer_timeout_s = answer_timeout_s
        self._drawn_at = 0.0
        self._due: asyncio.TimerHandle | None = None
        self._in_flight = 0
        """Number of frames that the terminal has not answered."""
        self._timeout: asyncio.TimerHandle | None = None
        self._all_answered = asyncio.Event()
        self._is_for_key = False
        self._is_postponed = False
        """Whether a frame was asked for and could not be drawn."""
        self._settles = False

    def begin(self) -> None:
        """The terminal was asked for the first time, or again after another program had it."""
        self.asks = self._settles = False
        self._asked()

    def answered(self) -> None:
        """The terminal has answered, so it shows one more frame."""
        self.asks = not self._settles
        self._arrived(max(0, self._in_flight - 1))

    async def settle(self) -> None:
        """Stop asking, and return when all answers are here: other programs would read them."""
        self.asks, self._settles = False, True
        await self._all_answered.wait()

    def key_came(self) -> None:
        """The next frame shows the effect of a key."""
        self._is_for_key = True

    def may_draw(self) -> bool:
        """Whether a frame may be drawn now; if not, one is drawn as soon as it may."""
        most = FRAMES_IN_FLIGHT_MAX if self._is_for_key else 1
        self._is_postponed = self.asks and self._in_flight >= most
        return not self._is_postponed

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

    def written(self, *, asked: bool) -> None:
        """The frame is on its way, with a request for the status behind it if `asked`."""
        if asked:
            self._asked()
        elif not self._in_flight:
            self._seen()

    def stop(self) -> None:
        """Cancel the frame that events have asked for."""
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _asked(self) -> None:
        self._in_flight += 1
        self._all_answered.clear()
        if self._timeout is not None:
            self._timeout.cancel()
        self._timeout = asyncio.get_running_loop().call_later(
            self._answer_timeout_s, self._time_out
        )

    def _draw_due(self) -> None:
        self._due = None
        self._draw()

    def _time_out(self) -> None:
        self._arrived(0)

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
