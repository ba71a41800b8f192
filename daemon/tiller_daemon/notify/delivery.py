"""Brings messages to one target, one after the other, and tries again after a failure."""

from collections.abc import Sequence
from typing import Final, Protocol

import structlog
import trio

from tiller_daemon.notify.messages import Message

log = structlog.get_logger()

ATTEMPT_S: Final = 20.0
"""How long one attempt may take."""

PAUSES_S: Final[Sequence[float]] = (2.0, 10.0, 60.0)
"""The pauses after failed attempts; after one more attempt, the message is dropped and logged."""

WAITING_MAX: Final = 100
"""How many sessions may wait for a target; the oldest are dropped first."""


class TargetProblem(Exception):
    """A target did not take a message; the message is a clause with the reason."""

    def __init__(self, reason: str, *, final: bool = False) -> None:
        """`final` means that another attempt would fail, too."""
        super().__init__(reason)
        self.final = final


class Target(Protocol):
    """Where messages are shown."""

    async def show(self, message: Message, shown: str) -> str:
        """Show a message instead of the one `shown` before; raises `TargetProblem`.

        Returns a name by which to replace or withdraw the message; empty if that is not possible.
        """
        ...

    async def withdraw(self, shown: str) -> None:
        """Remove a message; raises `TargetProblem`."""
        ...


class Delivery:
    """The messages for one target. `run` delivers what was given to `put`."""

    def __init__(self, target: Target, name: str) -> None:
        """`name` is the target's name in the daemon's log."""
        self._target = target
        self._name = name
        self._wanted: dict[str, Message | None] = {}
        """By session, what the target has to show; None means nothing any more."""
        self._shown: dict[str, str] = {}
        """By session, the target's name for what it shows."""
        self._news = trio.Event()

    def put(self, session_id: str, message: Message | None) -> None:
        """Let the target show this message about the session and no other one, or none."""
        self._wanted.pop(session_id, None)
        self._wanted[session_id] = message
        if len(self._wanted) > WAITING_MAX:
            dropped = next(iter(self._wanted))
            del self._wanted[dropped]
            log.warning("notification_dropped", target=self._name, session_id=dropped)
        self._news.set()

    async def run(self) -> None:
        """Deliver messages until cancelled."""
        while True:
            await self._news.wait()
            self._news = trio.Event()
            while self._wanted:
                session_id = next(iter(self._wanted))
                await self._deliver(session_id, self._wanted.pop(session_id))

    async def _deliver(self, session_id: str, message: Message | None) -> None:
        """Bring the target up to date, unless a newer message comes meanwhile."""
        for attempt, pause_s in enumerate((*PAUSES_S, None)):
            try:
                with trio.fail_after(ATTEMPT_S):
                    await self._attempt(session_id, message)
                return
            except trio.TooSlowError:
                problem = TargetProblem(f"it did not answer within {ATTEMPT_S:g} s")
            except TargetProblem as error:
                problem = error
            except Exception:
                log.exception("notification_crashed", target=self._name)
                return
            if problem.final or pause_s is None or not attempt:
                log.warning("notification_failed", target=self._name, reason=str(problem))
            if problem.final or pause_s is None or session_id in self._wanted:
                return
            await trio.sleep(pause_s)
            if session_id in self._wanted:
                return

    async def _attempt(self, session_id: str, message: Message | None) -> None:
        shown = self._shown.get(session_id, "")
        if message is None:
            if shown:
                await self._target.withdraw(shown)
            self._shown.pop(session_id, None)
        elif name := await self._target.show(message, shown):
            self._shown[session_id] = name
