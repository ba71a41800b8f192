"""Starts a turn: makes the events that open it, and the `ActiveTurn` that the actor then runs.

A turn of the model starts with an input, or with a notice if there is no new input. A compaction
and the user's own command start without either.
"""

from tiller_daemon.errors import RejectionError
from tiller_daemon.session.context.freeze import FrozenTurn, freeze_context
from tiller_daemon.session.context.mode_reminder import mode_notices
from tiller_daemon.session.inputs.attachments import check_image_support, left_out
from tiller_daemon.session.inputs.validation import check_workspace
from tiller_daemon.session.state import PendingSubmission, SessionState, SubAgentPrompt
from tiller_daemon.session.turns.active_turn import ActiveTurn, Main
from tiller_daemon.session.turns.title import TitleRequest, first_title
from tiller_daemon.turn.decisions import last_user_text
from tiller_daemon.turn.history import History
from tiller_daemon.turn.loop import run_turn
from tiller_daemon.turn.user_tasks import task_calls
from tiller_protocol.answers import Started
from tiller_protocol.events import (
    AnyBody,
    ItemCompleted,
    ItemStarted,
    QueueChanged,
    SessionTitled,
    StatusChanged,
    TurnStarted,
)
from tiller_protocol.ids import ItemId
from tiller_protocol.items import Notice, QueuedInput, UserMessage
from tiller_protocol.ops import UserInput
from tiller_protocol.settings import TurnChoices

CONTINUED = "continued"
"""Code of the notice with which a turn begins instead of a message."""

CONTINUED_NOTICE = (
    "The user sends no new message, but asks you to go on from here. Check what has already been "
    "done, then continue with the latest task."
)


def start_turn(
    state: SessionState,
    first: QueuedInput | None,
    choices: TurnChoices,
    pending: PendingSubmission,
) -> Started:
    """Start a turn with the input `first`, or continue history if `first` is None.

    `first` is new or was taken from the queue.

    Raises `RejectionError`; then nothing has changed, and input that was taken is queued again.
    """
    try:
        return _start_turn(state, first, choices, pending)
    except RejectionError:
        state.queue.restore(state.outbox.fold_pending().queue)
        raise


def start_without_input(
    state: SessionState, frozen: FrozenTurn, main: Main, pending: PendingSubmission
) -> Started:
    """Start a turn that runs `main` and can't be steered by input."""
    snapshot = state.outbox.fold_pending()
    bodies = (TurnStarted(frozen.context.shown()), StatusChanged("busy"))
    state.put(pending, *bodies, turn_id=frozen.context.turn_id)
    earlier = state.services.histories.take(snapshot.session_id)
    history = History(snapshot.items, snapshot.pruned, earlier)
    state.begin(ActiveTurn(frozen, main, state.parts, history, steerable=False))
    return Started(frozen.context.turn_id)


def first_message(queued: QueuedInput) -> UserMessage:
    """Return the message of an input that starts a turn."""
    return UserMessage(
        ItemId(queued.id), queued.text, "start", queued.images, queued.files, queued.client
    )


def _start_turn(
    state: SessionState,
    first: QueuedInput | None,
    choices: TurnChoices,
    pending: PendingSubmission,
) -> Started:
    snapshot = state.outbox.fold_pending()
    check_workspace(snapshot.workspace, snapshot.session_id, snapshot.worktree)
    sub_agent_run = pending.op.run if isinstance(pending.op, SubAgentPrompt) else None
    inherited = sub_agent_run.inherited if sub_agent_run else None
    frozen = freeze_context(state.services, snapshot, choices, inherited)
    # Only new input can still be rejected; for queued input there is a warning.
    if isinstance(pending.op, UserInput) and first and first.images is pending.images:
        check_image_support(pending.op, pending.images, frozen.model)
    context = frozen.context
    if first:
        message = first_message(first)
    else:
        message = Notice(ItemId(state.services.new_id()), CONTINUED, CONTINUED_NOTICE)
    notices = mode_notices(snapshot, context, state.services.new_id)
    tasks = task_calls(first, state.services.new_id) if first else ()
    earlier = state.services.histories.take(snapshot.session_id)
    history = History([*snapshot.items, message, *notices, *tasks], snapshot.pruned, earlier)
    bodies: list[AnyBody] = [TurnStarted(context.shown(), choices), StatusChanged("busy")]
    if state.queue.queue != snapshot.queue:
        bodies.append(QueueChanged(state.queue.queue))
    for item in (message, *notices):
        bodies += [ItemStarted(item), ItemCompleted(item)]
    bodies += map(ItemStarted, tasks)
    bodies += [*left_out(bodies, frozen.model)]
    if not snapshot.title:
        text = last_user_text(history.items)
        # Set the first title at once, so that lists never show a session without a title.
        state.put(pending, SessionTitled(first_title(text)))
        if sub_agent_run is None:
            state.wanted_title.text = text
    title_request = None
    if state.wanted_title.text:
        title_request = TitleRequest(
            state.services, state.outbox, frozen.model, context.before.steps, state.wanted_title
        )
    bodies += state.warnings.due(frozen, snapshot, choices)
    state.put(pending, *bodies, turn_id=context.turn_id)
    turn = ActiveTurn(
        frozen,
        run_turn,
        state.parts,
        history,
        title_request=title_request,
        sub_agent_run=sub_agent_run,
    )
    state.begin(turn)
    return Started(context.turn_id)
