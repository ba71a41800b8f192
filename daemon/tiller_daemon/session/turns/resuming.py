"""Resumes a turn that was running when the daemon stopped, if the configuration says so.

The setting is `resume = "auto"`. The turn keeps its id, its context and its spending, and takes its
next step. Nothing is repeated: calls without a result become `lost`, and open requests are
cancelled.
"""

from tiller_daemon.errors import RejectionError
from tiller_daemon.session.context.freeze import freeze_again
from tiller_daemon.session.state import SessionState
from tiller_daemon.session.sub_agents.background_tasks import lost_bodies
from tiller_daemon.session.turns.active_turn import ActiveTurn
from tiller_daemon.session.turns.starting import CONTINUED
from tiller_daemon.turn.closing import DAEMON_STOPPED, cause_of, resuming_bodies
from tiller_daemon.turn.history import History
from tiller_daemon.turn.loop import run_turn
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.events import StatusChanged
from tiller_protocol.items import Notice, UserMessage
from tiller_protocol.snapshot import Snapshot

RESUMES_MAX = 3
"""How often one turn is resumed. The limit matters if the turn itself makes the daemon crash."""

RESUMED_TOO_OFTEN = (
    f"The daemon stopped {RESUMES_MAX + 1} times during this turn, so the turn was not resumed "
    "again. Continue the turn, or send a message."
)
NOT_RESUMABLE = "The daemon stopped while this turn ran. The turn can't be resumed: {problem}"


def may_be_resumed(snapshot: Snapshot) -> bool:
    """Whether the session has an unfinished turn that can be resumed.

    Compactions and the user's own commands can't be resumed. Neither can a sub-agent's turn, since
    the call that waited for it is lost.
    """
    turn = snapshot.turn
    if turn is None or snapshot.owner_id:
        return False
    begin = next(mark.items for mark in snapshot.marks if mark.turn_id == turn.turn_id)
    # Only turns of the model begin with a user's message, or with the notice in its place.
    return any(
        isinstance(item, UserMessage) or (isinstance(item, Notice) and item.code == CONTINUED)
        for item in snapshot.items[begin : begin + 1]
    )


def resume(state: SessionState) -> ErrorInfo | None:
    """Resume the open turn of a session that was just loaded, if possible.

    Returns None if the turn was resumed. Otherwise returns the reason, and puts no event.
    """
    services, snapshot = state.services, state.outbox.fold_pending()
    turn = snapshot.turn
    if turn is None or not may_be_resumed(snapshot):
        return DAEMON_STOPPED
    if turn.resumed >= RESUMES_MAX:
        return ErrorInfo(DAEMON_STOPPED.code, RESUMED_TOO_OFTEN)
    try:
        frozen = freeze_again(services, snapshot, turn)
    except RejectionError as error:
        return ErrorInfo(DAEMON_STOPPED.code, NOT_RESUMABLE.format(problem=error.message))
    bodies = resuming_bodies(snapshot, services.time(), services.new_id)
    state.outbox.put(*bodies, StatusChanged("busy"), turn_id=turn.turn_id)
    if lost := lost_bodies(snapshot, services.new_id, cause_of(DAEMON_STOPPED)):
        state.outbox.put(*lost)
    # The history must include the items that `resuming_bodies` closed.
    snapshot = state.outbox.fold_pending()
    history = History(snapshot.items, snapshot.pruned)
    state.begin(ActiveTurn(frozen, run_turn, state.parts, history))
    return None
