"""Follows a session's events without a gap, as a state machine without socket or clock.

Live events may be lost, duplicated or late. Events that were delivered before are dropped; a gap, a
reconnection or a silence requires a replay. The caller subscribes first, then asks for the replay
that `wanted` names, until it is `None`.
"""

import os
from collections.abc import Iterable
from typing import NamedTuple

from tiller_protocol.answers import ReplayResult
from tiller_protocol.events import Event
from tiller_protocol.ops import FOLLOW_LEASE_S, Replay

RENEW_S = FOLLOW_LEASE_S / 4
"""Longest time between two replays, so that this frontend counts as one that follows."""

FRONTEND_ID = os.urandom(8).hex()
"""This process, among those that follow a session."""


class ReplayedEvents(NamedTuple):
    """The next events, in order; with `started_over` the log is new and followed from its start."""

    events: list[Event]
    started_over: bool = False


class Follower:
    """The position of one frontend in one session's log.

    Everything up to the `seq` `last` was delivered; `head` is the highest `seq` that is known.
    """

    def __init__(self, log_id: str, after: int = 0) -> None:
        """Start after the event `after`; 0 starts with the first event."""
        self.last = after
        self.head = after
        self.others: tuple[str, ...] = ()
        """Names of the other frontends that follow the session, as of the last replay."""
        self._log_id = log_id
        self._gap_suspected = True

    @property
    def wanted(self) -> int | None:
        """`after` of the replay to ask for now; `None` if live events are enough."""
        return self.last if self._gap_suspected or self.head > self.last else None

    def replay(self, session_id: str) -> Replay:
        """The replay to ask for if one is wanted."""
        return Replay(session_id, self.last, follower=FRONTEND_ID)

    def suspect_gap(self) -> None:
        """Require a replay: events may be lost after a silence, a reconnection or a stop."""
        self._gap_suspected = True

    def take_live(self, events: Iterable[Event]) -> list[Event]:
        """Process published events; returns those to deliver next."""
        next_ones: list[Event] = []
        for event in events:
            if event.seq == self.last + 1:
                self.last = event.seq
                next_ones.append(event)
            self.head = max(self.head, event.seq)
        return next_ones

    def take_replay(self, result: ReplayResult, log_id: str) -> ReplayedEvents:
        """Process the answer to a replay of `wanted` by the daemon whose log is `log_id`.

        A replay may omit deltas of items completed long ago, so `upto` defines how far it reaches.
        After a replay without progress, the next one waits for another gap or `suspect_gap`. A
        different log, or one that ends before `last`, is followed from its start.
        """
        self.others = result.followers
        if log_id != self._log_id or result.head < self.last:
            self._log_id = log_id
            self.last = self.head = 0
            self._gap_suspected = True
            return ReplayedEvents([], started_over=True)
        next_ones = [event for event in result.events if event.seq > self.last]
        progressed = result.upto > self.last
        self.last = max(self.last, result.upto)
        self.head = result.head if progressed else self.last
        self._gap_suspected = False
        return ReplayedEvents(next_ones)
