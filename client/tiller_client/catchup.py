"""Following a session without a gap, as a state machine: no socket, no clock (G2).

Live events may be lost, doubled or late. What is not newer than the last event delivered is
dropped; a jump, a reconnection or a silence asks for a replay; a replay is taken as it comes. The
caller subscribes first, then does what `wanted` says until it says nothing.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tiller_protocol.answers import ReplayResult
from tiller_protocol.events import Event


class ReplayedEvents(NamedTuple):
    """Events that are next, in order. `started_over`: the log is another one; begin anew."""

    events: list[Event]
    started_over: bool = False


class Follower:
    """Where one frontend is in one session's log.

    `last` is the `seq` up to which everything was delivered, `head` the highest one known of.
    """

    def __init__(self, log_id: str, after: int = 0) -> None:
        """Begin after the event `after`; 0 begins with the first."""
        self.last = after
        self.head = after
        self._log_id = log_id
        self._gap_suspected = True

    @property
    def wanted(self) -> int | None:
        """The `after` of the replay to ask for now, or `None` when live events are enough."""
        return self.last if self._gap_suspected or self.head > self.last else None

    def suspect_gap(self) -> None:
        """Something may have been missed: after a silence, a reconnection, a stop."""
        self._gap_suspected = True

    def take_live(self, events: Iterable[Event]) -> list[Event]:
        """Take published events; returns those that are next."""
        next_ones: list[Event] = []
        for event in events:
            if event.seq == self.last + 1:
                self.last = event.seq
                next_ones.append(event)
            self.head = max(self.head, event.seq)
        return next_ones

    def take_replay(self, result: ReplayResult, log_id: str) -> ReplayedEvents:
        """Take the answer to a replay of `wanted`, given by the daemon whose log is `log_id`.

        A replay may leave out deltas of items long completed, so it is `upto` that says how far it
        reaches. One that does not get on is not asked for again before the next doubt or jump. A
        log that is another one, or that ends before `last`, is followed from its start.
        """
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
