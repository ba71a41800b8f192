"""Delivers a background sub-agent's report: as steering, by starting a turn, or as a notice.

The sub-agent's end and its report go to the outbox without a checkpoint in between, so they are one
commit.
"""

from msgspec import structs

from tiller_daemon.errors import RejectionError
from tiller_daemon.session.inputs.input_queue import CLIENT
from tiller_daemon.session.state import PendingSubmission, SessionState
from tiller_daemon.session.sub_agents.background_tasks import BackgroundTask, report_text
from tiller_daemon.session.turns.starting import start_turn
from tiller_daemon.turn.closing import notice_events
from tiller_protocol.events import WarningRaised
from tiller_protocol.items import QueuedInput, UserMessage
from tiller_protocol.settings import TurnChoices
from tiller_protocol.snapshot import Snapshot

TURNS_MAX = 20
"""How many turns in a row reports may start without a message from the user. A model that keeps
starting sub-agents would otherwise go on for ever."""

REPORT_WAITS = (
    "The report of the background sub-agent {id} stays in the input queue, because {why}. "
    "Continue the session, or send a message."
)


def deliver_end(state: SessionState, pending: PendingSubmission, task: BackgroundTask) -> None:
    """Record the end of a background sub-agent, and deliver its report to the model."""
    state.tasks.record_end(task)
    if task.silent:
        return
    new_id = state.services.new_id()
    report = QueuedInput(new_id, report_text(task), "queue", client=CLIENT)
    if state.turn:
        # A turn that takes no input would have deferred the submission.
        state.queue.put(structs.replace(report, delivery="steer"))
        state.put(pending, state.queue.changed())
    elif task.cancelled or not state.tasks.starts_turns:
        # Nobody asked for a turn, so the next one gets the report.
        state.put(pending, *notice_events("background_ended", report_text(task), new_id))
    elif why := _start(state, pending, report):
        state.queue.put(report)
        message = REPORT_WAITS.format(id=task.listed.id, why=why)
        state.put(pending, state.queue.changed(), WarningRaised("report_waits", message))


def _start(state: SessionState, pending: PendingSubmission, report: QueuedInput) -> str:
    """Start a turn with a report; return why that is not possible, or an empty text."""
    if state.queue.queue:
        # An interrupt or a failure left this input, which must wait until the user says so.
        return "other input is already waiting there"
    if _turns_since_user(state.outbox.fold_pending()) >= TURNS_MAX:
        return f"reports have started {TURNS_MAX} turns in a row"
    try:
        start_turn(state, report, TurnChoices(), pending)
    except RejectionError as rejection:
        return f"no turn could start ({rejection.message.rstrip('.')})"
    return ""


def _turns_since_user(snapshot: Snapshot) -> int:
    """Return how many turns were started by reports since the user's latest message."""
    count = 0
    for item in reversed(snapshot.items):
        if isinstance(item, UserMessage):
            if item.client != CLIENT:
                break
            count += item.delivery == "start"
    return count
