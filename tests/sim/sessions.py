"""What the properties of sessions share: answers that last, and where a session begins."""

from sim.player import Seen, SessionSeen
from tiller_protocol.answers import Accepted, AnyAnswer
from tiller_protocol.events import (
    SessionCreated,
)
from tiller_protocol.fold import fold
from tiller_protocol.snapshot import Snapshot, fork_base

PASSING = ("overloaded", "unavailable", "shutting_down")
"""Answers that say nothing about the op: sent again, it may have its effect."""


def lasting_answers(answers: list[AnyAnswer]) -> list[AnyAnswer]:
    """The answers that a re-send gets too."""
    return [a for a in answers if isinstance(a, Accepted) or a.code not in PASSING]


def beginning(session: SessionSeen, seen: Seen) -> Snapshot:
    """An empty snapshot, or what a fork shares with its parent."""
    created = session.log[0].body
    assert isinstance(created, SessionCreated)
    if created.parent_id is None:
        return Snapshot(session.session_id)
    parent = seen.sessions[created.parent_id]
    shared = beginning(parent, seen)
    for event in parent.log[: created.parent_seq]:
        fold(shared, event)
    return fork_base(shared, session.session_id)
