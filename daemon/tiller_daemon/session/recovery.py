"""Loads a session from the log, and closes a turn that a crash or kill left unfinished."""

from collections.abc import Callable

from tiller_daemon.session.inputs.input_queue import InputQueue
from tiller_daemon.session.sub_agents.background_tasks import lost_bodies
from tiller_daemon.store.base import Log, LogError
from tiller_daemon.turn.closing import cause_of, closing_bodies
from tiller_daemon.turn.context import Ending
from tiller_protocol.codec import decode_event
from tiller_protocol.errors import BadMessage, ErrorInfo
from tiller_protocol.events import AnyBody, Event, SessionCreated, StatusChanged
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
                    f"Session {session_id} in {log.path} can't be read beyond event "
                    f"{snapshot.seq}: {error}. Other sessions are not affected.",
                ) from error
    return snapshot


async def _beginning(log: Log, first: Event) -> Snapshot:
    """Return an empty snapshot or, for a fork, the history that it shares with its parent."""
    body = first.body
    if not isinstance(body, SessionCreated) or body.parent_id is None:
        return Snapshot(first.session_id)
    return fork_base(await load_snapshot(log, body.parent_id, body.parent_seq), first.session_id)


def recovery_of(
    snapshot: Snapshot, queue: InputQueue, new_id: Callable[[], str], reason: ErrorInfo
) -> tuple[tuple[AnyBody, ...], list[AnyBody]]:
    """Return the events that close an unfinished turn, and the session's events that follow.

    Steering that the turn had not taken goes back to `queue`. Running calls and background work
    become `lost` and are never run again. The turn ends at the time of its last event.
    """
    of_session = lost_bodies(snapshot, new_id, cause_of(reason))
    if snapshot.turn is None:
        return (), of_session
    ending = Ending("interrupted", reason)
    of_turn = closing_bodies(snapshot, ending, snapshot.updated_at, new_id, lost=True)
    queue.hand_back()
    if queue.queue:
        of_session.append(queue.changed())
    return of_turn, [*of_session, StatusChanged("idle")]
