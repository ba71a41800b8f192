"""Loads a session from the log, and closes a turn that a crash or kill left unfinished."""

from collections.abc import Callable
from typing import NamedTuple

from tiller_daemon.session.background.listing import lost_entries
from tiller_daemon.session.inputs.input_queue import InputQueue
from tiller_daemon.session.sub_agents.background_tasks import lost_notices
from tiller_daemon.store.base import Log, LogError
from tiller_daemon.turn.closing import DAEMON_STOPPED, cause_of, closing_bodies
from tiller_daemon.turn.context import Ending
from tiller_protocol.codec import decode_event
from tiller_protocol.errors import BadMessage, ErrorInfo
from tiller_protocol.events import (
    AnyBody,
    BackgroundChanged,
    Event,
    SessionCreated,
    StatusChanged,
)
from tiller_protocol.fold import SequenceGap, fold
from tiller_protocol.snapshot import Snapshot, fork_base

LOAD_EVENTS_MAX = 5_000
LOAD_BYTES_MAX = 8 * 1024 * 1024
"""Limits of one read from the log while a session is loaded."""


async def load_snapshot(log: Log, session_id: str, upto: int | None = None) -> Snapshot:
    """Fold a session's events, up to number `upto` if given; a fork begins with its parent's.

    Raises `LogError("corrupt")` for an unreadable event.
    """
    snapshot = Snapshot(session_id)
    while bodies := await log.events(session_id, snapshot.seq, LOAD_EVENTS_MAX, LOAD_BYTES_MAX):
        for body in bodies:
            try:
                event = decode_event(body)
                # The first event shows whether the session is a fork.
                if event.seq == 1:
                    snapshot = await _beginning(log, event)
                if upto is not None and event.seq > upto:
                    return snapshot
                fold(snapshot, event)
            # A session must not silently lack a part of its history because of a damaged event.
            except (BadMessage, SequenceGap, KeyError, ValueError) as error:
                raise LogError(
                    "corrupt",
                    f"Session {session_id} can't be read after event {snapshot.seq} in {log.path}: "
                    f"{error}. Other sessions are not affected.",
                ) from error
    return snapshot


async def _beginning(log: Log, first: Event) -> Snapshot:
    """Return an empty snapshot or, for a fork, the history that it shares with its parent."""
    body = first.body
    if not isinstance(body, SessionCreated) or body.parent_id is None:
        return Snapshot(first.session_id)
    return fork_base(await load_snapshot(log, body.parent_id, body.parent_seq), first.session_id)


class Recovery(NamedTuple):
    """The events that close a session's unfinished turn and background work in the log."""

    turn_id: str | None
    """The open turn, if any."""
    of_turn: tuple[AnyBody, ...]
    """Events that close this turn."""
    of_session: tuple[AnyBody, ...]
    """Events that belong to no turn and come after the turn's events."""


def recovery_of(
    snapshot: Snapshot, new_id: Callable[[], str], reason: ErrorInfo = DAEMON_STOPPED
) -> Recovery | None:
    """Return events that close an unfinished turn and background work; None if nothing is open.

    Steering that the turn had not taken goes back to the queue. Running calls and background
    work become `lost` and are never run again. The turn ends at the time of its last event.
    """
    lost = lost_entries(snapshot)
    of_session: list[AnyBody] = [] if lost is None else [BackgroundChanged(lost)]
    of_session += lost_notices(snapshot, new_id, cause_of(reason))
    if snapshot.turn is None:
        return Recovery(None, (), tuple(of_session)) if of_session else None
    ending = Ending("interrupted", reason)
    of_turn = closing_bodies(snapshot, ending, snapshot.updated_at, new_id, lost=True)
    # Work on a copy, as the session takes over the queue from the log afterwards.
    queue = InputQueue(snapshot.queue)
    queue.hand_back()
    if queue.queue:
        of_session.append(queue.changed())
    return Recovery(snapshot.turn.turn_id, of_turn, (*of_session, StatusChanged("idle")))
