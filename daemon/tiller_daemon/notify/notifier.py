"""Takes the events of all sessions for the rules in `[[notify]]`; does nothing without a rule."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import structlog
import trio

from tiller_daemon.config import Notify
from tiller_daemon.store.base import Log
from tiller_protocol.codec import decode_event
from tiller_protocol.events import LIFECYCLE_TOPIC

if TYPE_CHECKING:
    from tiller_daemon.notify.delivery import Target

log = structlog.get_logger()

EVENTS_MAX: Final = 10_000
"""How many events may wait while the log is slow; the oldest are dropped."""

AFTER_DEFECT_S: Final = 60.0
"""How long to wait after a defect here, which must not end the daemon."""


class Notifier:
    """Tells the user what happens while nobody looks. `run` does the work; `note` never waits."""

    def __init__(
        self,
        rules: Callable[[], Sequence[Notify]],
        target_of: "Callable[[Notify], Target]",
        sessions: Log,
        secrets: Callable[[], Sequence[str]],
    ) -> None:
        """`rules` returns the rules in use now, and `secrets` what must not be sent anywhere."""
        self._rules = rules
        self._parts = (target_of, sessions, secrets)
        self._events: deque[bytes] = deque(maxlen=EVENTS_MAX)
        self._noted = trio.Event()
        self._has_begun = False

    def note(self, topic: str, event: bytes) -> None:
        """Take an event of any session; see `session.outbox.publish_to`."""
        if topic == LIFECYCLE_TOPIC and (self._has_begun or self._rules()):
            self._events.append(event)
            self._noted.set()

    async def run(self, quiet_s: Callable[[], float | None]) -> None:
        """Tell the user what there is to tell, until cancelled.

        `quiet_s` returns for how many seconds nobody has looked at a frontend, or None.
        """
        await self._noted.wait()
        self._has_begun = True
        # Most daemons have no rules, and start sooner without this.
        from tiller_daemon.notify.telling import Telling

        telling = Telling(*self._parts)
        async with trio.open_nursery() as nursery:
            while True:
                self._noted = trio.Event()
                try:
                    telling.apply(self._rules(), nursery)
                    while self._events:
                        await telling.take(decode_event(self._events.popleft()))
                    next_s = await telling.tell(quiet_s())
                except Exception:
                    log.exception("notifier_crashed")
                    next_s = AFTER_DEFECT_S
                with trio.move_on_after(next_s):
                    await self._noted.wait()
