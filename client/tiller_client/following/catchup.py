"""Follows a session's events without gaps: a state machine that has no socket and no clock.

Live events may be lost, duplicated or late. Duplicates are dropped. A gap, a reconnection or a
silence requires a replay. The caller subscribes first, and then asks for replays after `wanted`
until `wanted` is `None`.
"""

import os
from collections.abc import Iterable
from typing import NamedTuple

from tiller_protocol.answers import ReplayResult
from tiller_protocol.events import Event
from tiller_protocol.ops import Replay
from tiller_protocol.sessions import FOLLOW_LEASE_S

RENEW_S = FOLLOW_LEASE_S / 4
"""Longest time between two replays, so that the daemon counts this frontend as a follower."""

FRONTEND_ID = os.urandom(8).hex()
"""Identifies this process among the followers of a session."""


def leaving(session_id: str) -> Replay:
    """Make the op that tells other frontends that this process has closed the session."""
    return Replay(session_id, limit=1, follower=FRONTEND_ID, leaves=True)


class ReplayedEvents(NamedTuple):
    """The next events, in order; `started_over`: they are from a new log, from its start on."""

    events: list[Event]
    started_over: bool = False


class Follower:
    """The position of one frontend in one session's log.

    The events up to number `last` were delivered; `head` is the highest known event number.
    """

    def __init__(self, log_id: str, after: int = 0) -> None:
        """Start after event number `after`; 0 starts with the first event."""
        self.last = after
        self.head = after
        self.others: tuple[str, ...] = ()
        """Names of the other frontends that follow the session, as of the last replay."""
        self.focus = False
        """Whether a person looks at this frontend now."""
        self._log_id = log_id
        self._gap_suspected = True

    @property
    def wanted(self) -> int | None:
        """The event number after which to ask for a replay; `None` if no replay is needed."""
        return self.last if self._gap_suspected or self.head > self.last else None

    def replay(self, session_id: str) -> Replay:
        """Make the op that asks for the next replay."""
        return Replay(session_id, self.last, follower=FRONTEND_ID, focus=self.focus)

    def suspect_gap(self) -> None:
        """Require a replay, as after a silence, a reconnection or a stop events may be missing."""
        self._gap_suspected = True

    def take_cut_off(self) -> None:
        """Process a replay whose events can't be stored yet; none is wanted until `suspect_gap`."""
        self.head = self.last
        self._gap_suspected = False

    def take_live(self, events: Iterable[Event]) -> list[Event]:
        """Process published events; return the events to deliver now."""
        next_ones: list[Event] = []
        for event in events:
            if event.seq == self.last + 1:
                self.last = event.seq
                next_ones.append(event)
            self.head = max(self.head, event.seq)
        return next_ones

    def take_replay(self, result: ReplayResult, log_id: str) -> ReplayedEvents:
        """Process the answer to `replay`, from the daemon whose log is `log_id`.

        A replay may omit deltas of items completed long ago, so `upto` tells how far it reaches.
        After a replay without progress, no replay is wanted until the next gap or `suspect_gap`. A
        different log, or a log that ends before `last`, is followed from its start.
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
