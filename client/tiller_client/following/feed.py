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
from tiller_client.errors import NoDaemon
from tiller_client.following.watch import Wakeup, Watch, WatchUpdate
from tiller_protocol.events import TurnEnded

RETRY_S = 0.2
"""Time between two attempts to connect while the daemon is stopped."""


class Feed:
    """A session's events after a given event. One thread calls `wait`; any thread may `close`."""

    def __init__(self, pool: ConnectionPool, session_id: str, after: int = 0) -> None:
        """Do not connect yet; `wait` subscribes."""
        self.session_id = session_id
        self.caught_up = False
        """Whether all events known to be in the log were taken or are ready."""
        self._pool = pool
        self._after = after
        self._connection: DaemonConnection | None = None
        self._watch: Watch | None = None
        self._busy = False
        self._ready: deque[WatchUpdate] = deque()
        self._wakeup = Wakeup()
        self._released = False
        self._waiting = threading.Lock()
        self._closing = threading.Lock()
        self.closed = False

    @property
    def connected(self) -> bool:
        """Whether a daemon that sends events is connected, as far as is known."""
        return self._watch is not None and self._watch.connected

    @property
    def others(self) -> Sequence[str]:
        """Names of the other frontends that have the session open, as of some seconds ago."""
        return self._watch.others if self._watch else ()

    @property
    def last(self) -> int:
        """The number of the last event that the daemon has delivered."""
        return self._watch.last if self._watch else self._after

    def take(self) -> WatchUpdate | None:
        """Return the next events, or that the daemon has a new log; `None` if nothing is ready."""
        return self._ready.popleft() if self._ready else None

    def wait(self) -> None:
        """Wait for events, at most about a second, if none are ready.

        Raises `RejectedError` if there is no such session or if its turn was cut off, and the
        errors of `DaemonConnection`.
        """
        try:
            with self._waiting:
                if not self._ready and not self.closed:
                    self._step()
        finally:
            if self.closed:
                self._release()

    def close(self) -> None:
        """End a `wait` in another thread, and close the sockets once no thread waits."""
        with self._closing:
            if self.closed:
                return
            self.closed = True
            self._wakeup.wake()
        self._release()

    def _step(self) -> None:
        try:
            self._watch = self._watch or self._subscribe()
            update = self._watch.wait(busy=self._busy)
        except NoDaemon:
            self.caught_up = False
            self._await_daemon()
            return
        if update.cut_off:
            self._busy = False
            raise update.cut_off
        self.caught_up = self._watch.caught_up
        if update.events or update.started_over:
            self._ready.append(update)
        if update.events and update.events[-1].turn_id:
            self._busy = not isinstance(update.events[-1].body, TurnEnded)

    def _subscribe(self) -> Watch:
        self._connection = self._connection or self._pool.connect(may_start=False)
        return Watch(self._connection, self.session_id, self._wakeup, self._after)

    def _await_daemon(self) -> None:
        if self._pool.start_crashed():
            return
        select.select([self._wakeup.fd], [], [], RETRY_S)
        self._wakeup.take()

    def _release(self) -> None:
        """Close the sockets, unless a thread waits, which then closes them."""
        if not self._waiting.acquire(blocking=False):
            return
        try:
            with self._closing:
                if self._released:
                    return
                self._released = True
                self._wakeup.close()
            for opened in (self._watch, self._connection):
                if opened:
                    opened.close()
        finally:
            self._waiting.release()
