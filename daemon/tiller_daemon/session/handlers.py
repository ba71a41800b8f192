"""The handlers: one plain function per op of a session.

No handler is async, so its events and the answer to its submission are one commit. A handler that
rejects its op raises before it puts any event into the outbox.
"""

from functools import partial

from msgspec import structs

from tiller_daemon.errors import RejectionError
from tiller_daemon.session.background.delivering import deliver_end
from tiller_daemon.session.context.freeze import cleared_settings, freeze_context
from tiller_daemon.session.context.model_choice import (
    continued_choices,
    merge_choices,
    without_foreign_variant,
)
from tiller_daemon.session.inputs.attachments import check_image_support, file_references
from tiller_daemon.session.inputs.slash_commands import (
    ExpandedInput,
    edited_sub_agents,
    expand_input,
)
from tiller_daemon.session.inputs.validation import (
    check_input,
    check_overrides,
    check_settings,
    check_workspace,
    input_data,
)
from tiller_daemon.session.reverting import files_kept_warnings
from tiller_daemon.session.rules import answer_request, revoke_session_rule
from tiller_daemon.session.session_end import notify_session_end
from tiller_daemon.session.state import (
    PendingSubmission,
    SessionState,
    SetUp,
    SubAgentEnded,
    SubAgentPrompt,
)
from tiller_daemon.session.turns.active_turn import ActiveTurn
from tiller_daemon.session.turns.starting import first_message, start_turn, start_without_input
from tiller_daemon.session.turns.title import given_title
from tiller_daemon.turn.decisions import is_answered
from tiller_daemon.turn.loop import run_compaction
from tiller_daemon.turn.user_command import TOOL, run_user_command
from tiller_protocol.answers import AnyResult, Queued, Steered
from tiller_protocol.events import (
    HistoryReverted,
    ItemCompleted,
    ItemStarted,
    SessionArchived,
    SessionConfigured,
    SessionSeen,
    SessionTitled,
)
from tiller_protocol.items import QueuedInput
from tiller_protocol.ops import (
    Answer,
    Compact,
    Interrupt,
    QueueEdit,
    Revert,
    RuleRevoke,
    SessionArchive,
    SessionConfigure,
    SessionMarkSeen,
    Shell,
    TurnContinue,
    Unrevert,
    UserInput,
)
from tiller_protocol.settings import TurnChoices, TurnOverrides
from tiller_protocol.snapshot import find_mark


def handle(state: SessionState, pending: PendingSubmission) -> AnyResult | None:
    """Apply an op and return the result for its answer, if any; raises `RejectionError`."""
    match pending.op:
        case SubAgentEnded(task):
            deliver_end(state, pending, task)
        case SubAgentPrompt(_, op) | (UserInput() as op):
            return _take_input(state, op, pending)
        case Interrupt() as op:
            _interrupt(state, op)
        case Answer() as op:
            answer_request(state, op, pending)
        case QueueEdit() as op:
            return _edit_queue(state, op, pending)
        case TurnContinue() as op:
            return _continue(state, op, pending)
        case SessionConfigure() as op:
            _configure(state, op, pending)
        case RuleRevoke() as op:
            revoke_session_rule(state, op, pending)
        case SessionMarkSeen() as op:
            now = state.outbox.fold_pending()
            # Nothing else would change, and a frontend may say it again and again.
            if op.until >= now.wants_user > now.seen:
                state.put(pending, SessionSeen(min(op.until, now.seq)))
        case SessionArchive() as op:
            if op.archived and state.turn:
                raise _busy(state.turn)
            ends = op.archived and not state.outbox.fold_pending().archived
            state.put(pending, SessionArchived(op.archived))
            if ends:
                notify_session_end(state.services, state.outbox, "archived")
            if op.archived:
                # An archived session is out of sight, so nothing should keep running in it.
                state.background.cancel_all()
                state.tasks.cancel_all()
        case Compact() | Revert() | Unrevert() if state.turn:
            raise _busy(state.turn)
        case Compact() as op:
            return _compact(state, op, pending)
        case Revert() as op:
            return _revert(state, op, pending)
        case Unrevert():
            return _unrevert(state, pending)
        case Shell() as op:
            return _run_user_command(state, op.command, pending)
        case SetUp(command, place):
            return _run_user_command(state, command, pending, place=place)
        case _ as op:
            raise AssertionError(f"{type(op).__name__} has no handler in a session")
    return None


def _configure(state: SessionState, op: SessionConfigure, pending: PendingSubmission) -> None:
    snapshot = state.outbox.fold_pending()
    titled = () if op.title is None else (SessionTitled(given_title(op.title)),)
    kept = cleared_settings(snapshot.settings, op.clear)
    settings = merge_choices(kept, op.settings)
    if op.settings.model and op.settings.variant is None:
        # A variant that was chosen for another model.
        settings = without_foreign_variant(state.services, settings)
    if op.workspace is not None:
        check_workspace(op.workspace)
        if state.turn:
            raise _busy(state.turn)
    check_settings(state.services, op.workspace or snapshot.workspace, op.settings, settings)
    configured = (SessionConfigured(settings, op.workspace),)
    if titled and settings == snapshot.settings and op.workspace is None:
        configured = ()
    state.put(pending, *titled, *configured)


def overloaded(pending: PendingSubmission) -> RejectionError:
    """Return the rejection for a full queue, with the rejected input in its `data`."""
    data = input_data(pending.op) if isinstance(pending.op, UserInput) else {}
    return RejectionError("overloaded", "The queue of this session is full. Try again later.", data)


def _take_input(state: SessionState, op: UserInput, pending: PendingSubmission) -> AnyResult | None:
    check_input(op)
    if op.no_reply and op.delivery == "queue":
        message = "Queued input always gets a reply, so leave out `no_reply` or `queue`."
        raise RejectionError("bad_message", message)
    expanded, sub_agents = ExpandedInput(op)
    # A model writes sub-agents' prompts, but only users may call commands and agents by name.
    if not isinstance(pending.op, SubAgentPrompt):
        expanded, sub_agents = expand_input(
            state.services, state.outbox.snapshot, op, pending.content
        )
    turn = state.turn
    # Check the files before any event is put into the outbox, since this may reject the input.
    files = file_references(state.services, state.outbox.snapshot, expanded)
    queued = QueuedInput(
        state.services.new_id(),
        expanded.text,
        "queue",
        pending.images,
        files,
        pending.client,
        () if op.no_reply else sub_agents,
    )
    if turn is None:
        return _input_while_idle(state, op, queued, expanded.overrides, pending)
    if not turn.steerable:
        message = (
            "A compaction or your own command is running and can't be steered. Wait until it ends, "
            "then send the input again. The input is in `data`."
        )
        raise RejectionError("turn_not_steerable", message, input_data(op))
    if op.expected_turn_id not in (None, turn.turn_id):
        # The frontend acted on an outdated view, so steering another turn would surprise its user.
        raise _mismatch(turn, op.expected_turn_id)
    match op.delivery:
        case "start":
            raise _busy(turn, "Steer it, queue your input, or wait until it ends.")
        case "queue":
            _enqueue(state, queued, pending)
            return Queued(queued.id, len(state.queue.queue) - 1)
        case "steer" | "auto":
            check_image_support(op, pending.images, turn.model)
            _enqueue(state, structs.replace(queued, delivery="steer"), pending)
            return Steered(turn.turn_id, queued.id)


def _input_while_idle(
    state: SessionState,
    op: UserInput,
    queued: QueuedInput,
    overrides: TurnOverrides,
    pending: PendingSubmission,
) -> AnyResult | None:
    if op.delivery == "steer" or op.expected_turn_id is not None:
        message = "No turn is running, so there is nothing to steer. Send a new message instead."
        raise RejectionError("no_active_turn", message, input_data(op))
    if op.no_reply:
        message = first_message(queued)
        state.put(pending, ItemStarted(message), ItemCompleted(message))
        return None
    first, choices = queued, TurnChoices(overrides, op.system)
    if op.delivery != "start" and state.queue.queue:
        # Older input goes first, and the choices for this input's turn don't apply to it.
        choices = TurnChoices()
        if not state.queue.has_bytes_for(queued):
            raise overloaded(pending)
        state.queue.put(queued)
        first = state.queue.take_follow_ups("one_at_a_time")[0]
    started = start_turn(state, first, choices, pending)
    return started if first is queued else Queued(queued.id, len(state.queue.queue) - 1)


def _enqueue(state: SessionState, queued: QueuedInput, pending: PendingSubmission) -> None:
    if state.queue.is_full or not state.queue.has_bytes_for(queued):
        raise overloaded(pending)
    state.queue.put(queued)
    state.put(pending, state.queue.changed())


def _edit_queue(state: SessionState, op: QueueEdit, pending: PendingSubmission) -> AnyResult | None:
    position = state.queue.position(op.input_id)
    if position is None:
        message = f"Input {op.input_id} is not in the queue. A turn may have taken it already."
        raise RejectionError("not_found", message)
    match op.action:
        case "edit":
            # Edited text must pass the same checks as new input.
            check_input(UserInput(op.session_id, op.text))
            before = state.queue.queue[position]
            agents = edited_sub_agents(state.services, state.outbox.snapshot, before, op.text)
            edited = structs.replace(before, text=op.text, sub_agents=agents)
            if not state.queue.has_bytes_for(edited):
                raise overloaded(pending)
            state.queue.edit(position, edited)
        case "remove":
            state.queue.take(position)
        case "move":
            state.queue.move(position, op.position)
        case "promote":
            if state.turn is None:
                return start_turn(state, state.queue.take(position), TurnChoices(), pending)
            state.queue.promote(position)
    state.put(pending, state.queue.changed())
    return None


def _continue(state: SessionState, op: TurnContinue, pending: PendingSubmission) -> AnyResult:
    check_overrides(op.overrides)
    if state.turn:
        raise _busy(state.turn)
    snapshot = state.outbox.fold_pending()
    if state.queue.queue:
        # What the user wrote comes before another attempt at the old input.
        first = state.queue.take_follow_ups("one_at_a_time")[0]
        return start_turn(state, first, TurnChoices(op.overrides), pending)
    if is_answered(snapshot.items) and snapshot.last_outcome in (None, "completed"):
        message = (
            "There is nothing to continue: no input is waiting, and the model has answered. "
            "Send a message."
        )
        raise RejectionError("empty_input", message)
    choices = continued_choices(state.services, snapshot.marks, op.overrides)
    return start_turn(state, None, choices, pending)


def _compact(state: SessionState, op: Compact, pending: PendingSubmission) -> AnyResult:
    if op.instructions:
        check_input(UserInput(op.session_id, op.instructions))
    frozen = freeze_context(state.services, state.outbox.fold_pending(), TurnChoices())
    compact = partial(run_compaction, instructions=op.instructions)
    return start_without_input(state, frozen, compact, pending)


def _revert(state: SessionState, op: Revert, pending: PendingSubmission) -> AnyResult:
    assert pending.files
    snapshot = state.outbox.fold_pending()
    mark = find_mark(snapshot, op.turn_id, op.step or 0)
    assert mark is not None
    reverted = HistoryReverted(
        snapshot.marks[mark].seq,
        conflicts=pending.files.conflicts,
        before_turn=op.turn_id,
        before_step=op.step or 0,
        restored=len(pending.files.files),
    )
    # The reverted results may have contained the instructions of subdirectories.
    state.parts.files.instructions_sent.clear()
    state.put(pending, reverted, *files_kept_warnings(pending.files))
    return pending.files


def _unrevert(state: SessionState, pending: PendingSubmission) -> AnyResult:
    assert pending.files
    undone = HistoryReverted(
        state.outbox.fold_pending().seq,
        undone=True,
        conflicts=pending.files.conflicts,
        restored=len(pending.files.files),
    )
    state.put(pending, undone, *files_kept_warnings(pending.files))
    return pending.files


def _run_user_command(
    state: SessionState, command: str, pending: PendingSubmission, *, place: str = ""
) -> AnyResult:
    """Start a turn that runs a command: outside the sandbox, or in one for a `place`."""
    # A command goes into the history like a message, so the same limits apply.
    check_input(UserInput(state.outbox.snapshot.session_id, command))
    if state.turn:
        raise _busy(state.turn)
    snapshot = state.outbox.fold_pending()
    if place:
        snapshot = structs.replace(snapshot, workspace=place)
    check_workspace(snapshot.workspace, snapshot.session_id, snapshot.worktree)
    only_tool = TurnChoices(TurnOverrides(tools=(TOOL,)))
    frozen = freeze_context(state.services, snapshot, only_tool)
    run_command = partial(run_user_command, command, in_sandbox=bool(place))
    return start_without_input(state, frozen, run_command, pending)


def _interrupt(state: SessionState, op: Interrupt) -> None:
    if op.background_id is not None:
        name = op.background_id
        if not (state.background.cancel(name) or state.tasks.cancel(name)):
            message = f"No background command or sub-agent {name} is running in this session."
            raise RejectionError("not_found", message)
        return
    # For the user, a turn has ended once its end is in the log.
    if state.turn is None or state.turn.is_over:
        raise RejectionError(
            "no_active_turn", "No turn is running, so there is nothing to interrupt."
        )
    if op.turn_id not in (None, state.turn.turn_id):
        raise _mismatch(state.turn, op.turn_id)
    state.turn.interrupt()


def _busy(
    turn: ActiveTurn, advice: str = "Interrupt it first, or wait until it ends."
) -> RejectionError:
    return RejectionError("busy", f"A turn is running. {advice}", {"turn_id": turn.turn_id})


def _mismatch(turn: ActiveTurn, expected: str | None) -> RejectionError:
    return RejectionError(
        "expected_turn_mismatch",
        f"The running turn is {turn.turn_id}, not {expected}.",
        {"turn_id": turn.turn_id},
    )
