"""Going on with a turn that ran when the daemon stopped, if the user's configuration says so.

The turn keeps its id, its context and what it has spent, and takes its next step. Nothing that was
under way is repeated: a call without a result is `lost`, a request is cancelled.
"""

from tiller_daemon.errors import RejectionError
from tiller_daemon.session.active_turn import ActiveTurn
from tiller_daemon.session.background import lost_commands
from tiller_daemon.session.freeze import freeze_again
from tiller_daemon.session.state import SessionState
from tiller_daemon.turn.closing import DAEMON_STOPPED, resuming_bodies
from tiller_daemon.turn.history import History
from tiller_daemon.turn.loop import run_turn
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.events import BackgroundChanged, StatusChanged
from tiller_protocol.items import UserMessage
from tiller_protocol.snapshot import Snapshot

RESUMES_MAX = 3
"""How often one turn is resumed: it may be what brings the daemon down."""

RESUMED_TOO_OFTEN = (
    f"The daemon stopped {RESUMES_MAX + 1} times while this turn ran, so it was not resumed again. "
    "Send a message to go on."
)
NOT_RESUMABLE = "The daemon stopped while this turn ran, and it can't go on: {problem}"


def may_be_resumed(snapshot: Snapshot) -> bool:
    """Whether a session has a turn that can go on when the daemon has stopped in it.

    A summary or an own command of the user can't; a sub-agent's turn is for a call that is lost.
    """
    turn = snapshot.turn
    if turn is None or snapshot.owner_id:
        return False
    begin = next(mark.items for mark in snapshot.marks if mark.turn_id == turn.turn_id)
    return any(isinstance(item, UserMessage) for item in snapshot.items[begin : begin + 1])


def resume(state: SessionState) -> ErrorInfo | None:
    """Begin the open turn of a session that was just loaded again, if it can be resumed.

    Returns None when it was begun; otherwise why it can't be, and nothing was put.
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
    lost = lost_commands(snapshot)
    if lost is not None:
        state.outbox.put(BackgroundChanged(lost))
    snapshot = state.outbox.fold_pending()
    state.begin(ActiveTurn(frozen, run_turn, state.parts), History(snapshot.items, snapshot.pruned))
    return None
