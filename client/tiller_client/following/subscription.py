"""The events of one session, each once and in order, for any loop that waits with `select`."""

import time
from collections.abc import Callable, Sequence

from tiller_client.connecting.connection import DaemonConnection
from tiller_client.connecting.sockets import EventSocket
from tiller_client.errors import NoDaemon, RejectedError
from tiller_client.following.catchup import RENEW_S, Follower, ReplayedEvents
from tiller_protocol.answers import ReplayResult
from tiller_protocol.events import Event
from tiller_protocol.ops import Replay

SILENCE_BUSY_S = 1.0
"""Silence during a turn after which to ask for a replay, as the last event may be lost."""

SILENCE_IDLE_S = 5.0
"""The same limit while no turn is running: the first event of the next turn may be lost."""

RESTART_S = 1.0
"""Time after a lost connection during which somebody else may restart the daemon."""

SHUTDOWN_RETRY_S = 0.2

Ask = Callable[[Replay, type[ReplayResult]], ReplayResult]
"""Submits the op of a replay, like `DaemonConnection.look`."""


class Subscription:
    """Follows a session: call `take` when a source is readable or `wait_s_max` has passed."""

    def __init__(self, connection: DaemonConnection, session_id: str, after: int = 0) -> None:
        """Subscribe; the events after number `after` are wanted."""
        self.connection = connection
        self.session_id = session_id
        self._follower = Follower(connection.hello.log_id, after)
        self._socket = EventSocket(connection.places, session_id)
        self._last_event_at = self._replayed_at = time.monotonic()
        self._retry_at = 0.0
        self._was_connected = self.connected

    def close(self) -> None:
        """Close the socket for events; the caller closes the connection."""
        self._socket.close()

    @property
    def sources(self) -> list[int]:
        """The descriptors to wait for."""
        return self._socket.sources

    @property
    def connected(self) -> bool:
        """Whether a daemon that sends events is connected, as far as is known."""
        return bool(self._socket.sources)

    @property
    def caught_up(self) -> bool:
        """Whether all events known to be in the log were delivered."""
        return self._follower.wanted is None

    @property
    def last(self) -> int:
        """The number of the last event delivered."""
        return self._follower.last

    @property
    def others(self) -> Sequence[str]:
        """Names of the other frontends that have the session open, as of some seconds ago."""
        return self._follower.others

    def suspect_gap(self) -> None:
        """Require a replay, which also updates `others`."""
        self._follower.suspect_gap()

    def wait_s_max(self, *, busy: bool) -> float:
        """The longest time until the next `take`."""
        if self.caught_up:
            return min(self._socket.wait_s_max, SILENCE_BUSY_S if busy else SILENCE_IDLE_S)
        return min(self._socket.wait_s_max, max(0.0, self._retry_at - time.monotonic()))

    def take(self, ask: Ask, *, busy: bool) -> ReplayedEvents:
        """Return the next events: from a replay, for which it may `ask`, or those that have come.

        `busy` says whether a turn is running. Raises the same errors as `ask`; some time after
        `NoDaemon`, it asks again.
        """
        if self.caught_up or time.monotonic() < self._retry_at:
            return ReplayedEvents(self._take_live(busy=busy))
        try:
            result = ask(self._follower.replay(self.session_id), ReplayResult)
        except NoDaemon:
            self._retry_at = time.monotonic() + RESTART_S
            raise
        except RejectedError as error:
            if error.is_cut_off:
                self._follower.take_cut_off()
            if error.code != "shutting_down":  # the next daemon will answer
                raise
            self._retry_at = time.monotonic() + SHUTDOWN_RETRY_S
            return ReplayedEvents([])
        finally:
            self._last_event_at = self._replayed_at = time.monotonic()
        return self._follower.take_replay(result, self.connection.hello.log_id)

    def _take_live(self, *, busy: bool) -> list[Event]:
        """Return the live events that are next; require a replay if others may be missing."""
        events = self._follower.take_live(self._socket.drain())
        now = time.monotonic()
        if events:
            self._last_event_at = now
        is_silent = now - self._last_event_at > (SILENCE_BUSY_S if busy else SILENCE_IDLE_S)
        was_connected, self._was_connected = self._was_connected, self.connected
        is_changed = was_connected != self.connected
        if is_changed:
            self._retry_at = 0.0 if self.connected else now + RESTART_S
        has_joined = self._socket.take_joined()
        if is_silent or is_changed or has_joined or now - self._replayed_at > RENEW_S:
            self._follower.suspect_gap()
        return events
