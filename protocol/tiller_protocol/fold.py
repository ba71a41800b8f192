"""The only interpretation of events: `fold` applies an event to a snapshot.

The daemon folds events while it writes them, a frontend while it reads them; both get the same
result. Nothing here does I/O or reads a clock.
"""

from typing import assert_never

from msgspec import structs

from tiller_protocol.events import (
    AnyBody,
    BackgroundChanged,
    ErrorRaised,
    Event,
    HistoryCompacted,
    HistoryReverted,
    ItemCompleted,
    ItemDelta,
    ItemStarted,
    PlanUpdated,
    QueueChanged,
    RequestOpened,
    RequestResolved,
    SessionArchived,
    SessionConfigured,
    SessionCreated,
    SessionSeen,
    SessionTitled,
    StatusChanged,
    StepEnded,
    StepStarted,
    ToolCallUpdated,
    TurnEnded,
    TurnStarted,
    WarningRaised,
)
from tiller_protocol.items import (
    AssistantMessage,
    Item,
    Notice,
    Patch,
    Reasoning,
    SubAgent,
    ToolCall,
    Usage,
)
from tiller_protocol.settings import TurnChoices
from tiller_protocol.snapshot import (
    Mark,
    Reverted,
    Snapshot,
    find_mark,
    last_words,
    note_items,
    note_patch,
)
from tiller_protocol.turns import RESUMED, OpenTurn, add_cost, is_continued


class SequenceGap(ValueError):
    """An event is not the next one after the snapshot: events in between are missing."""


def fold(snapshot: Snapshot, event: Event) -> None:
    """Apply the next event to `snapshot`, in place; raises `SequenceGap` if events are missing."""
    if event.seq != snapshot.seq + 1:
        raise SequenceGap(f"event {event.seq} does not follow {snapshot.seq}")
    _apply(snapshot, event.body, event)
    snapshot.seq = event.seq
    if isinstance(event.body, (TurnEnded, RequestOpened)):
        snapshot.wants_user = event.seq
    # To look at a session, to rename it or to archive it is no activity in it.
    if not isinstance(event.body, (SessionArchived, SessionSeen, SessionTitled)):
        snapshot.updated_at = event.time


def fold_replayed(snapshot: Snapshot, event: Event) -> None:
    """Like `fold`, but for a replay, which may omit deltas of items that have completed."""
    snapshot.seq = event.seq - 1
    fold(snapshot, event)


def _apply(snapshot: Snapshot, body: AnyBody, event: Event) -> None:
    match body:
        case ItemDelta():
            _extend_item(snapshot, body)
        case ItemStarted():
            snapshot.items.append(body.item)
            snapshot.open_items.append(body.item.id)
            _record_resumption(snapshot, body.item, event.time)
        case ItemCompleted():
            position = _position(snapshot, body.item.id)
            snapshot.items[position] = body.item
            snapshot.open_items.remove(body.item.id)
            _record_completed(snapshot, body.item, position)
        case ToolCallUpdated():
            _update_call(snapshot, body, event.time)
        case StatusChanged():
            snapshot.status = body.status
        case QueueChanged():
            snapshot.queue = body.queue
        case TurnStarted():
            snapshot.turn = OpenTurn(event.turn_id or "", event.time, body.context)
            snapshot.turns += 1
            snapshot.context_window = body.context.context_window
            snapshot.reverted = []
            _mark(snapshot, 0, event.time, body.choices)
        case TurnEnded():
            _end_turn(snapshot, body)
        case StepStarted():
            _begin_step(snapshot, body, event.time)
        case StepEnded():
            _end_step(snapshot, body)
        case RequestOpened():
            snapshot.requests.append(body.request)
        case RequestResolved():
            snapshot.requests = [r for r in snapshot.requests if r.id != body.request_id]
        case PlanUpdated():
            snapshot.plan = body.plan
        case BackgroundChanged():
            _change_background(snapshot, body)
        case (
            SessionCreated()
            | SessionConfigured()
            | SessionTitled()
            | SessionArchived()
            | SessionSeen()
        ):
            _change_session(snapshot, body, event.time)
        case HistoryCompacted():
            snapshot.pruned.extend(body.pruned)
            snapshot.context_tokens, snapshot.context_items = body.tokens_after, 0
            _add_usage(snapshot, body.usage, body.cost)
        case HistoryReverted():
            _unrevert(snapshot) if body.undone else _revert(snapshot, body)
            snapshot.last_outcome = None
            note_items(snapshot)
        case WarningRaised() | ErrorRaised():
            pass
        case _:
            assert_never(body)


def _change_session(
    snapshot: Snapshot,
    body: SessionCreated | SessionConfigured | SessionTitled | SessionArchived | SessionSeen,
    time: float,
) -> None:
    match body:
        case SessionCreated():
            _create(snapshot, body, time)
        case SessionConfigured():
            snapshot.settings = body.settings
            snapshot.workspace = body.workspace or snapshot.workspace
        case SessionTitled():
            snapshot.title = body.title
            _add_usage(snapshot, body.usage, body.cost)
        case SessionArchived():
            snapshot.archived = body.archived
        case SessionSeen():
            snapshot.seen = max(snapshot.seen, body.until)
        case _:
            assert_never(body)


def _create(snapshot: Snapshot, body: SessionCreated, time: float) -> None:
    snapshot.workspace = body.workspace
    snapshot.settings = body.settings
    snapshot.parent_id = body.parent_id
    snapshot.parent_turns = sum(mark.step == 0 for mark in snapshot.marks)
    snapshot.owner_id = body.owner_id
    snapshot.owner_item_id = body.owner_item_id
    snapshot.worktree = body.worktree
    snapshot.created_at = time


def _end_turn(snapshot: Snapshot, body: TurnEnded) -> None:
    # Compactions and the user's own commands have no step.
    if snapshot.turn and snapshot.turn.step:
        snapshot.last_outcome = body.outcome
    if snapshot.turn:
        index = find_mark(snapshot, snapshot.turn.turn_id, 0)
        if index is not None:
            snapshot.marks[index] = structs.replace(
                snapshot.marks[index],
                duration_s=body.duration_s,
                outcome=body.outcome,
                error=body.error,
            )
    snapshot.turn = None
    snapshot.worked_s += body.duration_s
    snapshot.branch = body.branch or snapshot.branch


def _mark(snapshot: Snapshot, step: int, time: float, choices: TurnChoices | None = None) -> None:
    if turn := snapshot.turn:
        context, items = turn.context, len(snapshot.items)
        mark = Mark(
            turn.turn_id, snapshot.seq, items, step, context.agent, context.read_only, time,
            choices=choices, model=context.model,
        )  # fmt: skip
        snapshot.marks.append(mark)


def _revert(snapshot: Snapshot, body: HistoryReverted) -> None:
    index = find_mark(snapshot, body.before_turn, body.before_step)
    if index is None:
        raise KeyError(f"turn {body.before_turn} is not in history")
    position = snapshot.marks[index].items
    items, marks = tuple(snapshot.items[position:]), tuple(snapshot.marks[index:])
    del snapshot.items[position:], snapshot.marks[index:]
    snapshot.reverted = [*snapshot.reverted, Reverted(position, items, marks, body.conflicts)]
    snapshot.context_tokens = snapshot.context_items = 0


def _unrevert(snapshot: Snapshot) -> None:
    *snapshot.reverted, last = snapshot.reverted
    # Items added since the revert (messages without a reply) stay, after the restored items.
    snapshot.items[last.position : last.position] = last.items
    snapshot.marks += last.marks
    snapshot.context_tokens = snapshot.context_items = 0


def _position(snapshot: Snapshot, item_id: str) -> int:
    """The index of an item; searches from the end, where open items are."""
    for index in range(len(snapshot.items) - 1, -1, -1):
        if snapshot.items[index].id == item_id:
            return index
    raise KeyError(f"no item {item_id}")


def _extend_item(snapshot: Snapshot, body: ItemDelta) -> None:
    index = _position(snapshot, body.item_id)
    item = snapshot.items[index]
    if isinstance(item, (AssistantMessage, Reasoning)):
        snapshot.items[index] = structs.replace(item, text=item.text + body.delta)
    elif isinstance(item, ToolCall):
        field = "arguments" if body.channel == "arguments" else "output"
        longer = getattr(item, field) + body.delta
        snapshot.items[index] = structs.replace(item, **{field: longer})


def _update_call(snapshot: Snapshot, body: ToolCallUpdated, time: float) -> None:
    index = _position(snapshot, body.item_id)
    item = snapshot.items[index]
    if isinstance(item, ToolCall):
        begins = body.state == "running" and item.state != "running"
        snapshot.items[index] = structs.replace(
            item,
            state=body.state,
            error_kind=body.error_kind,
            effect=body.effect or item.effect,
            allowed=body.allowed or item.allowed,
            title=body.title or item.title,
            started_at=time if begins else item.started_at,
            sub_agent=body.sub_agent or item.sub_agent,
            rewritten_arguments=body.rewritten_arguments or item.rewritten_arguments,
        )
        if body.sub_agent:
            _count_sub_agent(snapshot, item.sub_agent, body.sub_agent)


def _change_background(snapshot: Snapshot, body: BackgroundChanged) -> None:
    before = {entry.id: entry.sub_agent for entry in snapshot.background}
    for entry in body.background:
        if entry.sub_agent:
            _count_sub_agent(snapshot, before.get(entry.id), entry.sub_agent)
    snapshot.background = body.background


def _count_sub_agent(snapshot: Snapshot, before: SubAgent | None, now: SubAgent) -> None:
    """Add a sub-agent's usage since its previous update; both updates have totals."""
    before = before or SubAgent(now.session_id, now.agent)
    usage = now.usage.minus(before.usage)
    cost = None if now.cost is None else now.cost - (before.cost or 0.0)
    steps = now.steps - before.steps
    snapshot.usage = snapshot.usage.plus(usage)
    snapshot.cost = add_cost(snapshot.cost, cost)
    snapshot.delegated_steps += steps
    if snapshot.turn:
        snapshot.turn.usage = snapshot.turn.usage.plus(usage)
        snapshot.turn.cost = add_cost(snapshot.turn.cost, cost)
        snapshot.turn.delegated_steps += steps


def _record_completed(snapshot: Snapshot, item: Item, position: int) -> None:
    if isinstance(item, Patch):
        note_patch(snapshot, item)
    if not isinstance(item, AssistantMessage) or item.state == "discarded":
        return
    snapshot.last_line = last_words(item.text) or snapshot.last_line
    if snapshot.turn:
        before = snapshot.turn.last_message if is_continued(snapshot.items, position) else ""
        snapshot.turn.last_message = before + item.text


def _record_resumption(snapshot: Snapshot, item: Item, time: float) -> None:
    if snapshot.turn and isinstance(item, Notice) and item.code == RESUMED:
        snapshot.turn.resumed += 1
        snapshot.turn.away_s += max(0.0, time - snapshot.updated_at)


def _begin_step(snapshot: Snapshot, body: StepStarted, time: float) -> None:
    snapshot.steps += 1
    if snapshot.turn:
        _mark(snapshot, body.step, time)
        snapshot.turn.step = body.step
        snapshot.turn.step_open = True


def _add_usage(snapshot: Snapshot, usage: Usage, cost: float | None) -> None:
    snapshot.usage = snapshot.usage.plus(usage)
    snapshot.cost = add_cost(snapshot.cost, cost)
    snapshot.unpriced += cost is None and usage != Usage()


def _end_step(snapshot: Snapshot, body: StepEnded) -> None:
    _add_usage(snapshot, body.usage, body.cost)
    if body.usage.input_tokens:
        snapshot.context_tokens = body.usage.input_tokens + body.usage.output_tokens
        snapshot.context_items = _first_call_of_last_step(snapshot)
    if snapshot.turn:
        snapshot.turn.step_open = False
        snapshot.turn.steps_ended += 1
        snapshot.turn.usage = snapshot.turn.usage.plus(body.usage)
        snapshot.turn.cost = add_cost(snapshot.turn.cost, body.cost)


def _first_call_of_last_step(snapshot: Snapshot) -> int:
    """The index of the first call of the last response.

    The provider has counted the response, but not yet the output of its calls.
    """
    position = len(snapshot.items)
    if position and isinstance(snapshot.items[position - 1], Patch):
        position -= 1  # a patch is never sent to a model
    while position and _is_call_of(snapshot.items[position - 1], snapshot.steps - 1):
        position -= 1
    return position


def _is_call_of(item: Item, ordinal: int) -> bool:
    return isinstance(item, ToolCall) and item.ordinal == ordinal and not item.by_provider
