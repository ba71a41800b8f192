"""The events of one session, each once and in order, for programs with threads.

A `Feed` survives restarts of the daemon. It starts a daemon that has crashed. If the daemon was
stopped, the feed waits until a submission or the user starts it.
"""

import select
import threading
from collections import deque
from collections.abc import Sequence

from tiller_client.connecting.connection import DaemonConnection
from tiller_client.connecting.pool import ConnectionPool
from tiller_client.errors import NoDaemon, RejectedError, StartedOver
from tiller_client.following.watch import TICK_IDLE_S, Subscription, Wakeup
from tiller_protocol.events import Event, TurnEnded

RETRY_S = 0.2
"""Time between two attempts to connect while the daemon is stopped."""


class Feed:
    """A session's events after a given event. One thread calls `wait`; any thread may `close`."""

    def __init__(self, pool: ConnectionPool, session_id: str, after: int = 0) -> None:
        """Do not connect yet; `wait` subscribes."""
        self.session_id = session_id
        self.closed = False
        self.focus = False
        """Whether a person looks at this frontend now; the daemon is told within a second."""
        self._pool = pool
        self._after = after
        self._connection: DaemonConnection | None = None
        self._subscription: Subscription | None = None
        self._knows_all = False
        self._busy = False
        self._ready: deque[Event | StartedOver] = deque()
        self._wakeup = Wakeup()
        self._waiting = threading.Lock()
        self._closing = threading.Lock()
        self._is_waiting = False

    @property
    def caught_up(self) -> bool:
        """Whether all events known to be in the log were taken."""
        return self._knows_all and not self._ready

    @property
    def connected(self) -> bool:
        """Whether a daemon that sends events is connected, as far as is known."""
        return self._subscription is not None and self._subscription.connected

    @property
    def others(self) -> Sequence[str]:
        """Names of the other frontends that have the session open, as of some seconds ago."""
        return self._subscription.others if self._subscription else ()

    @property
    def last(self) -> int:
        """The number of the last event that the daemon has delivered."""
        return self._subscription.last if self._subscription else self._after

    def take(self) -> Event | None:
        """Return the next event if it has arrived; raises `StartedOver`."""
        event = self._ready.popleft() if self._ready else None
        if isinstance(event, StartedOver):
            raise event
        return event

    def wait(self) -> None:
        """Wait for events, at most about a second, if none are ready.

        Raises `RejectedError` if there is no such session or if its turn was cut off, and the
        errors of `DaemonConnection`.
        """
        with self._waiting:
            with self._closing:
                if self._ready or self.closed:
                    return
                self._is_waiting = True
            try:
                self._step()
            finally:
                with self._closing:
                    self._is_waiting = False
                    if self.closed:
                        self._close()

    def close(self) -> None:
        """End a `wait` in another thread, which then closes the sockets, or close them now."""
        with self._closing:
            if self.closed:
                return
            self.closed = True
            if self._is_waiting:
                self._wakeup.wake()
            else:
                self._close()

    def _step(self) -> None:
        try:
            subscription = self._subscription = self._subscription or self._subscribe()
            subscription.look(focus=self.focus)
            longest = min(TICK_IDLE_S, subscription.wait_s_max(busy=self._busy))
            wait_s = longest if subscription.connected else RETRY_S
            select.select([*subscription.sources, self._wakeup.fd], [], [], wait_s)
            taken = subscription.take(subscription.connection.look, busy=self._busy)
        except NoDaemon:
            self._knows_all = False
            if not self._pool.start_crashed():
                select.select([self._wakeup.fd], [], [], RETRY_S)
            return
        except RejectedError as error:
            self._busy = self._busy and not error.is_cut_off
            raise
        if taken.started_over:
            self._ready.append(
                StartedOver(
                    f"the daemon has a new event log; forget the events of {self.session_id}: "
                    "all are sent again, from the first one"
                )
            )
        self._ready.extend(taken.events)
        self._knows_all = subscription.caught_up
        if taken.events and taken.events[-1].turn_id:
            self._busy = not isinstance(taken.events[-1].body, TurnEnded)

    def _subscribe(self) -> Subscription:
        self._connection = self._connection or self._pool.connect(may_start=False)
        return Subscription(self._connection, self.session_id, self._after)

    def _close(self) -> None:
        self._wakeup.close()
        for opened in (self._subscription, self._connection):
            if opened:
                opened.close()
