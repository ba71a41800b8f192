"""The events of one session, each once and in order, for a loop with several event sources."""

import time

from tiller_client.connecting.connection import DaemonConnection
from tiller_client.errors import NoDaemon, RejectedError
from tiller_client.following.catchup import Follower, ReplayedEvents
from tiller_client.following.watch import (
    RESTART_S,
    SHUTDOWN_RETRY_S,
    SILENCE_BUSY_S,
    SILENCE_IDLE_S,
    Subscription,
)
from tiller_protocol.answers import ReplayResult


class Following(Subscription):
    """Follows a session after a given event.

    If the daemon is stopped while the session is idle, this waits until someone starts it again.
    """

    def __init__(self, connection: DaemonConnection, session_id: str) -> None:
        """Subscribe; `begin` sets the event to start after."""
        super().__init__(connection, session_id)
        self._retry_at = 0.0
        self._was_connected = True

    def begin(self, after: int) -> None:
        """Start after this event, with a replay."""
        self._follower = Follower(self.connection.hello.log_id, after)

    @property
    def sources(self) -> list[int]:
        """The descriptors to wait for."""
        return self._socket.sources

    def wait_s_max(self, *, busy: bool) -> float:
        """The longest time until the next `take`."""
        if not self.caught_up and self._may_replay(busy=busy):
            return max(0.0, self._retry_at - time.monotonic())
        return min(self._socket.wait_s_max, SILENCE_BUSY_S if busy else SILENCE_IDLE_S)

    def suspect_gap(self) -> None:
        """Require a replay; `caught_up` is false until it has been taken."""
        self._follower.suspect_gap()

    def take(self, *, busy: bool) -> ReplayedEvents:
        """Return the next events, without waiting for any; `busy` if someone waits for a turn.

        Raises the same errors as `DaemonConnection.submit` if a replay fails.
        """
        live = self._take_live(busy=busy)
        self._note_connection()
        if self.caught_up or not self._may_replay(busy=busy):
            return ReplayedEvents(live)
        replayed = self._replay(busy=busy)
        return ReplayedEvents([*live, *replayed.events], replayed.started_over)

    def _may_replay(self, *, busy: bool) -> bool:
        """Whether to ask for a replay: an idle session does not start a daemon that was stopped."""
        return busy or self.connected

    def _note_connection(self) -> None:
        before, self._was_connected = self._was_connected, self.connected
        if before != self._was_connected:
            self._retry_at = 0.0 if self._was_connected else time.monotonic() + RESTART_S

    def _replay(self, *, busy: bool) -> ReplayedEvents:
        if time.monotonic() < self._retry_at:
            return ReplayedEvents([])
        ask = self.connection.ask if busy else self.connection.look
        try:
            result = ask(self._follower.replay(self.session_id), ReplayResult)
        except NoDaemon:
            self._retry_at = time.monotonic() + RESTART_S
            return ReplayedEvents([])
        except RejectedError as error:
            if error.is_cut_off:
                self._last_event_at = self._replayed_at = time.monotonic()
                self._follower.take_cut_off()
            if error.code != "shutting_down":
                raise
            self._retry_at = time.monotonic() + SHUTDOWN_RETRY_S
            return ReplayedEvents([])
        self._last_event_at = self._replayed_at = time.monotonic()
        return self._follower.take_replay(result, self.connection.hello.log_id)
