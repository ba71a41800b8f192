"""What each op does to a session: one plain function per op.

None of them waits. What it puts and the answer to the submission become one commit; a rejection is
raised before anything was put.
"""

from msgspec import structs

from tiller_daemon.errors import RejectionError
from tiller_daemon.session.active_turn import ActiveTurn, Main
from tiller_daemon.session.attachments import check_shown, refer_files
from tiller_daemon.session.checks import check_input, check_settings, check_workspace, handed_back
from tiller_daemon.session.commands import expand_input
from tiller_daemon.session.freeze import FrozenTurn, freeze_context, merge_settings, with_grants
from tiller_daemon.session.requests import Reply
from tiller_daemon.session.reverting import files_kept
from tiller_daemon.session.state import Pending, SessionState
from tiller_daemon.session.title import Titling, first_title
from tiller_daemon.session.trust import (
    configuration_for,
    warning_of_trust,
    warning_of_unheld_hooks,
)
from tiller_daemon.turn.context import TurnContext
from tiller_daemon.turn.history import History
from tiller_daemon.turn.loop import run_compaction, run_turn
from tiller_daemon.turn.user_command import TOOL, UserCommand
from tiller_protocol.answers import AnyResult, Queued, Started, Steered
from tiller_protocol.events import (
    AnyBody,
    HistoryReverted,
    ItemCompleted,
    ItemStarted,
    QueueChanged,
    SessionArchived,
    SessionConfigured,
    SessionTitled,
    StatusChanged,
    TurnStarted,
    WarningRaised,
)
from tiller_protocol.ids import ItemId
from tiller_protocol.items import Delivery, QueuedInput, UserMessage
from tiller_protocol.ops import (
    Answer,
    Compact,
    Interrupt,
    QueueEdit,
    Revert,
    SessionArchive,
    SessionConfigure,
    Shell,
    Unrevert,
    UserInput,
)
from tiller_protocol.settings import TurnOverrides
from tiller_protocol.snapshot import find_mark


def handle(state: SessionState, pending: Pending) -> AnyResult | None:
    """Do what the op asks; returns what the answer holds beyond yes. Raises `RejectionError`."""
    match pending.op:
        case UserInput() as op:
            return _take_input(state, op, pending)
        case Interrupt() as op:
            _interrupt(state, op)
        case Answer() as op:
            _answer_request(state, op, pending)
        case QueueEdit() as op:
            _edit_queue(state, op, pending)
        case SessionConfigure() as op:
            check_settings(state.services, state.outbox.snapshot.workspace, op.settings)
            settings = merge_settings(state.outbox.settle().settings, op.settings)
            state.put(pending, SessionConfigured(settings))
        case SessionArchive() as op:
            state.put(pending, SessionArchived(op.archived))
            if op.archived:
                state.background.cancel_all()
        case Compact():
            return _compact(state, pending)
        case Revert() as op:
            return _revert(state, op, pending)
        case Unrevert():
            return _unrevert(state, pending)
        case Shell() as op:
            return _run_user_command(state, op, pending)
        case _ as op:
            raise AssertionError(f"{type(op).__name__} is not for a session's loop")
    return None


def overloaded(pending: Pending) -> RejectionError:
    """The rejection when too much waits; input is handed back in it."""
    data = handed_back(pending.op) if isinstance(pending.op, UserInput) else {}
    return RejectionError("overloaded", "Too much waits in this session. Try again later.", data)


def _take_input(state: SessionState, op: UserInput, pending: Pending) -> AnyResult | None:
    check_input(op)
    if op.no_reply and op.delivery == "queue":
        message = "What is queued gets a reply: leave out `no_reply`, or `queue`."
        raise RejectionError("bad_message", message)
    meant = op
    if pending.sub_agent_run is None:
        meant = expand_input(state.services, state.outbox.snapshot, op)
    turn = state.turn
    files = refer_files(state.services, state.outbox.snapshot, meant)
    given = QueuedInput(
        state.services.new_id(), meant.text, "queue", pending.images, files, pending.client
    )
    if turn is None:
        return _input_at_rest(state, op, given, meant.overrides, pending)
    if not turn.steerable:
        message = (
            "What runs is a compaction or your own command; that can't be steered. "
            "Your input is in `data`."
        )
        raise RejectionError("turn_not_steerable", message, handed_back(op))
    if op.expected_turn_id not in (None, turn.turn_id):
        raise _mismatch(turn, op.expected_turn_id)
    match op.delivery:
        case "start":
            raise _busy(turn)
        case "queue":
            _enqueue(state, given, pending)
            return Queued(given.id, len(state.queue.queue) - 1)
        case "steer" | "auto":
            check_shown(op, turn.model)
            _enqueue(state, _as(given, "steer"), pending)
            return Steered(turn.turn_id, given.id)


def _input_at_rest(
    state: SessionState,
    op: UserInput,
    given: QueuedInput,
    overrides: TurnOverrides,
    pending: Pending,
) -> AnyResult | None:
    if op.delivery == "steer" or op.expected_turn_id is not None:
        message = "No turn is running, so there is nothing to steer. Your input is in `data`."
        raise RejectionError("no_active_turn", message, handed_back(op))
    if op.no_reply:
        message = _first_message(given)
        state.put(pending, ItemStarted(message), ItemCompleted(message))
        return None
    first = given
    if op.delivery == "queue" and state.queue.queue:
        state.queue.put(given)
        first = state.queue.take_follow_ups("one_at_a_time")[0]
    try:
        turn_id = _start_turn(state, first, overrides, pending)
    except RejectionError:
        state.queue.restore(state.outbox.settle().queue)
        raise
    return Started(turn_id) if first is given else Queued(given.id, len(state.queue.queue) - 1)


def _enqueue(state: SessionState, given: QueuedInput, pending: Pending) -> None:
    if state.queue.is_full:
        raise overloaded(pending)
    state.queue.put(given)
    state.put(pending, QueueChanged(state.queue.queue))


def _edit_queue(state: SessionState, op: QueueEdit, pending: Pending) -> None:
    position = state.queue.position(op.input_id)
    if position is None:
        message = f"Input {op.input_id} is not queued: it was taken, removed, or never there."
        raise RejectionError("not_found", message)
    match op.action:
        case "edit":
            check_input(UserInput(op.session_id, op.text))
            state.queue.edit(position, op.text)
        case "remove":
            state.queue.remove(position)
        case "move":
            state.queue.move(position, op.position)
        case "promote":
            state.queue.promote(position)
    state.put(pending, QueueChanged(state.queue.queue))


def _start_turn(
    state: SessionState, first: QueuedInput, overrides: TurnOverrides, pending: Pending
) -> str:
    snapshot = state.outbox.settle()
    check_workspace(snapshot.workspace)
    sub_agent_run = pending.sub_agent_run
    inherited = sub_agent_run.inherited if sub_agent_run else None
    frozen = freeze_context(state.services, snapshot, overrides, inherited)
    if isinstance(pending.op, UserInput):
        check_shown(pending.op, frozen.model)
    context = frozen.context
    message = _first_message(first)
    history = History([*snapshot.items, message], snapshot.pruned)
    bodies: list[AnyBody] = [TurnStarted(context.shown()), StatusChanged("busy")]
    if state.queue.queue != snapshot.queue:
        bodies.append(QueueChanged(state.queue.queue))
    bodies += [ItemStarted(message), ItemCompleted(message)]
    titling = None
    if not snapshot.title:
        state.put(pending, SessionTitled(first_title(first.text)))
        if sub_agent_run is None:
            titling = Titling(
                state.services, state.outbox, frozen.model, context.before.steps, first.text
            )
    bodies += _warning_of_configuration(state)
    bodies += _warnings_of_servers(state)
    bodies += _warning_of_no_sandbox(state, context)
    bodies += warning_of_trust(state.services, snapshot.workspace, state.projects_told)
    bodies += _warning_of_refused(state, frozen.refused)
    state.put(pending, *bodies, turn_id=context.turn_id)
    turn = ActiveTurn(frozen, run_turn, state.parts, titling=titling, sub_agent_run=sub_agent_run)
    state.begin(turn, history)
    return context.turn_id


def _warning_of_configuration(state: SessionState) -> list[AnyBody]:
    """That the configuration was changed and can't be read, once for each way."""
    problem = state.services.user.problem()
    if problem == state.told_of_problem:
        return []
    state.told_of_problem = problem
    kept = "The configuration has changed; what was read before stays in use, for it has a mistake"
    return [WarningRaised("configuration", f"{kept}: {problem}")] if problem else []


def _warnings_of_servers(state: SessionState) -> list[AnyBody]:
    """What the session was not told yet of servers that have no tools to offer."""
    problems = state.services.tools.servers.problems()
    new = {name: why for name, why in problems.items() if name not in state.servers_told}
    state.servers_told.update(new)
    return [
        WarningRaised("mcp_server", f"The MCP server {name} can't be used: {why}.")
        for name, why in new.items()
    ]


def _warning_of_no_sandbox(state: SessionState, context: TurnContext) -> list[AnyBody]:
    """That nothing holds the session's commands, which is said once."""
    confiner = state.services.commands.confiner
    if state.told_of_no_sandbox or not confiner.must_ask(context.permissions.sandbox):
        return []
    state.told_of_no_sandbox = True
    found = confiner.search_result()
    why = found.problem or found.instead
    message = (
        f"Commands can't be held to `{context.permissions.sandbox.mode}`, so that each one that "
        f"does more than read is asked about: {why}."
    )
    configuration = configuration_for(state.services, context.workspace)
    message += warning_of_unheld_hooks(configuration)
    return [WarningRaised("no_sandbox", message)]


def _warning_of_refused(state: SessionState, refused: tuple[str, ...]) -> list[AnyBody]:
    """What the session was not told yet of documents that its prompts leave out."""
    new = [one for one in refused if one not in state.refused_told]
    state.refused_told.update(new)
    if not new:
        return []
    message = f"Left out of what the model is told, and not read: {'; '.join(new)}."
    return [WarningRaised("document_refused", message)]


def _compact(state: SessionState, pending: Pending) -> AnyResult:
    if state.turn:
        raise _busy(state.turn)
    snapshot = state.outbox.settle()
    if not snapshot.items:
        raise RejectionError("empty_input", "There is nothing to compact yet.")
    frozen = freeze_context(state.services, snapshot, TurnOverrides())
    return _start_without_input(state, frozen, run_compaction, pending)


def _revert(state: SessionState, op: Revert, pending: Pending) -> AnyResult:
    if state.turn:
        raise _busy(state.turn)
    assert pending.files
    snapshot = state.outbox.settle()
    found = find_mark(snapshot, op.turn_id, op.step or 0)
    assert found is not None
    reverted = HistoryReverted(
        snapshot.marks[found].seq,
        conflicts=pending.files.conflicts,
        before_turn=op.turn_id,
        before_step=op.step or 0,
    )
    state.parts.files.instructions_sent.clear()
    state.put(pending, reverted, *files_kept(pending.files))
    return pending.files


def _unrevert(state: SessionState, pending: Pending) -> AnyResult:
    if state.turn:
        raise _busy(state.turn)
    assert pending.files
    conflicts = pending.files.conflicts
    back = HistoryReverted(state.outbox.settle().seq, undone=True, conflicts=conflicts)
    state.put(pending, back, *files_kept(pending.files))
    return pending.files


def _start_without_input(
    state: SessionState, frozen: FrozenTurn, main: Main, pending: Pending
) -> AnyResult:
    snapshot = state.outbox.settle()
    bodies = (TurnStarted(frozen.context.shown()), StatusChanged("busy"))
    state.put(pending, *bodies, turn_id=frozen.context.turn_id)
    history = History(snapshot.items, snapshot.pruned)
    state.begin(ActiveTurn(frozen, main, state.parts, steerable=False), history)
    return Started(frozen.context.turn_id)


def _run_user_command(state: SessionState, op: Shell, pending: Pending) -> AnyResult:
    check_input(UserInput(op.session_id, op.command))
    if state.turn:
        raise _busy(state.turn)
    snapshot = state.outbox.settle()
    check_workspace(snapshot.workspace)
    frozen = freeze_context(state.services, snapshot, TurnOverrides(tools=(TOOL,)))
    return _start_without_input(state, frozen, UserCommand(op.command), pending)


def _interrupt(state: SessionState, op: Interrupt) -> None:
    if op.background_id is not None:
        if not state.background.cancel(op.background_id):
            message = f"No background command {op.background_id} runs in this session."
            raise RejectionError("not_found", message)
        return
    if state.turn is None or state.turn.is_over:
        raise RejectionError("no_active_turn", "No turn is running, so none was interrupted.")
    if op.turn_id not in (None, state.turn.turn_id):
        raise _mismatch(state.turn, op.turn_id)
    state.turn.interrupt()


def _answer_request(state: SessionState, op: Answer, pending: Pending) -> None:
    grants = state.requests.answer(op.request_id, Reply(op.decision, op.text, pending.client))
    if grants:
        state.put(pending, SessionConfigured(with_grants(state.outbox.settle().settings, grants)))
        if state.turn:
            state.turn.grant(grants)


def _first_message(given: QueuedInput) -> UserMessage:
    return UserMessage(
        ItemId(given.id), given.text, "start", given.images, given.files, given.client
    )


def _as(given: QueuedInput, delivery: Delivery) -> QueuedInput:
    return structs.replace(given, delivery=delivery)


def _busy(turn: ActiveTurn) -> RejectionError:
    return RejectionError(
        "busy",
        "A turn is running. Steer it, queue your input, or wait until it ends.",
        {"turn_id": turn.turn_id},
    )


def _mismatch(turn: ActiveTurn, expected: str | None) -> RejectionError:
    return RejectionError(
        "expected_turn_mismatch",
        f"The running turn is {turn.turn_id}, not {expected}.",
        {"turn_id": turn.turn_id},
    )
