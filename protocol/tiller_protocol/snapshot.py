"""The state of a session: `Snapshot`, and `fold`, the only interpretation of events.

The daemon folds while it writes, a frontend while it reads; both get the same result. Nothing here
does I/O or reads a clock.
"""

from typing import Annotated, assert_never

from msgspec import Struct, structs

from tiller_protocol.doc import doc
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
    Outcome,
    PlanUpdated,
    QueueChanged,
    RequestOpened,
    RequestResolved,
    SessionArchived,
    SessionConfigured,
    SessionCreated,
    SessionTitled,
    StatusChanged,
    StatusName,
    StepEnded,
    StepStarted,
    ToolCallUpdated,
    TurnEnded,
    TurnStarted,
    WarningRaised,
)
from tiller_protocol.items import (
    AssistantMessage,
    BackgroundCommand,
    Item,
    Notice,
    Patch,
    PlanEntry,
    QueuedInput,
    Reasoning,
    Request,
    SubAgent,
    ToolCall,
    Usage,
)
from tiller_protocol.settings import Settings
from tiller_protocol.turns import RESUMED, OpenTurn, add_cost, is_continued


class Mark(Struct, frozen=True, omit_defaults=True):
    """A point to which history can be reverted: before a turn, or before one of its steps."""

    turn_id: Annotated[str, doc("The turn.")]
    seq: Annotated[int, doc("The last event before this point.")]
    items: Annotated[int, doc("Number of items before this point.")]
    step: Annotated[int, doc("0: before the turn, else before this step.")] = 0
    agent: Annotated[str, doc("The agent of the turn.")] = ""
    read_only: Annotated[bool, doc("Whether that agent could only read.")] = False


class Reverted(Struct, frozen=True, omit_defaults=True):
    """What a revert removed from history."""

    position: Annotated[int, doc("Number of items that were left.")]
    items: Annotated[tuple[Item, ...], doc("What was removed after them.")]
    marks: Annotated[tuple[Mark, ...], doc("The marks in what was removed.")]
    conflicts: Annotated[tuple[str, ...], doc("Files that were left as they were.")] = ()


class Snapshot(Struct, omit_defaults=True):
    """A session at `seq`. Mutable: `fold` applies the next event in place."""

    session_id: Annotated[str, doc("The session.")]
    seq: Annotated[int, doc("The last event that is included; 0: none.")] = 0
    workspace: Annotated[str, doc("Absolute path.")] = ""
    settings: Annotated[Settings, doc("Settings of the next turn.")] = Settings()
    title: Annotated[str, doc("One line; empty if it has none yet.")] = ""
    archived: Annotated[bool, doc("Whether it is archived.")] = False
    created_at: Annotated[float, doc("Unix seconds.")] = 0.0
    updated_at: Annotated[float, doc("Unix seconds of the last event.")] = 0.0
    status: Annotated[StatusName, doc("What it is doing now.")] = "idle"
    items: Annotated[list[Item], doc("History, in the order in which items started.")] = []
    open_items: Annotated[list[str], doc("Ids of items that have not completed.")] = []
    requests: Annotated[list[Request], doc("Open requests, oldest first.")] = []
    queue: Annotated[tuple[QueuedInput, ...], doc("Queued inputs, next one first.")] = ()
    plan: Annotated[tuple[PlanEntry, ...], doc("The model's plan.")] = ()
    background: Annotated[
        tuple[BackgroundCommand, ...], doc("Background commands: running, and latest ended ones.")
    ] = ()
    pruned: Annotated[list[str], doc("Ids of calls whose output is no longer sent.")] = []
    marks: Annotated[list[Mark], doc("Where turns and steps began, oldest first.")] = []
    reverted: Annotated[
        list[Reverted], doc("Reverts since the last turn, which can be undone; latest last.")
    ] = []
    context_tokens: Annotated[
        int,
        doc(
            "Size of the first `context_items` items, as the provider counted it; 0 if it has not "
            "counted since history got shorter."
        ),
    ] = 0
    context_items: Annotated[int, doc("Number of items in `context_tokens`.")] = 0
    turn: Annotated[OpenTurn | None, doc("The running turn, if any.")] = None
    last_outcome: Annotated[
        Outcome | None,
        doc("How the latest turn that asked the model ended; absent: none has since a revert."),
    ] = None
    turns: Annotated[int, doc("Number of turns so far.")] = 0
    steps: Annotated[int, doc("Model requests of all turns, without sub-agents.")] = 0
    usage: Annotated[Usage, doc("Tokens of all turns, with titles, summaries and sub-agents.")] = (
        Usage()
    )
    cost: Annotated[
        float | None,
        doc("US dollars for `usage`, as far as prices are known; absent: none is known."),
    ] = None
    unpriced: Annotated[int, doc("Requests that `cost` lacks, without sub-agents.")] = 0
    worked_s: Annotated[float, doc("Seconds of all turns that have ended.")] = 0.0
    delegated_steps: Annotated[int, doc("Model requests of sub-agents.")] = 0
    parent_id: Annotated[str | None, doc("For a fork: the session that it branches from.")] = None
    owner_id: Annotated[str | None, doc("For a sub-agent: the session that it works for.")] = None
    owner_item_id: Annotated[str | None, doc("For a sub-agent: the call that started it.")] = None


def fork_base(parent: Snapshot, session_id: str) -> Snapshot:
    """Return what a fork shares with `parent`: history, settings and title, but nothing open.

    The events of the fork, beginning with its `session_created`, are folded onto it.
    """
    items = [_closed(item) if item.id in parent.open_items else item for item in parent.items]
    return Snapshot(
        session_id,
        settings=parent.settings,
        title=parent.title,
        items=items,
        plan=parent.plan,
        pruned=list(parent.pruned),
        marks=list(parent.marks),
        context_tokens=parent.context_tokens,
        context_items=parent.context_items,
        steps=parent.steps,
    )


def _closed(item: Item) -> Item:
    if isinstance(item, (AssistantMessage, Reasoning)):
        return structs.replace(item, state="interrupted")
    if isinstance(item, ToolCall):
        return structs.replace(
            item, state="error", error_kind="aborted", output="not finished when forked"
        )
    return item


class SequenceGap(ValueError):
    """An event does not follow the snapshot: events in between are missing."""


def fold(snapshot: Snapshot, event: Event) -> None:
    """Apply the next event to `snapshot`, in place; raises `SequenceGap` if one is missing."""
    if event.seq != snapshot.seq + 1:
        raise SequenceGap(f"event {event.seq} does not follow {snapshot.seq}")
    _apply(snapshot, event.body, event)
    snapshot.seq = event.seq
    snapshot.updated_at = event.time


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
            _record_last_message(snapshot, body.item, position)
        case ToolCallUpdated():
            _update_call(snapshot, body, event.time)
        case StatusChanged():
            snapshot.status = body.status
        case QueueChanged():
            snapshot.queue = body.queue
        case TurnStarted():
            snapshot.turn = OpenTurn(event.turn_id or "", event.time, body.context)
            snapshot.turns += 1
            snapshot.reverted = []
            _mark(snapshot, 0)
        case TurnEnded():
            _end_turn(snapshot, body)
        case StepStarted():
            _begin_step(snapshot, body)
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
        case SessionCreated():
            _create(snapshot, body, event.time)
        case SessionConfigured():
            snapshot.settings = body.settings
        case SessionTitled():
            snapshot.title = body.title
            _add_usage(snapshot, body.usage, body.cost)
        case SessionArchived():
            snapshot.archived = body.archived
        case HistoryCompacted():
            snapshot.pruned.extend(body.pruned)
            snapshot.context_tokens = snapshot.context_items = 0
            _add_usage(snapshot, body.usage, body.cost)
        case HistoryReverted():
            _unrevert(snapshot) if body.undone else _revert(snapshot, body)
            snapshot.last_outcome = None
        case WarningRaised() | ErrorRaised():
            pass
        case _:
            assert_never(body)


def _create(snapshot: Snapshot, body: SessionCreated, time: float) -> None:
    snapshot.workspace = body.workspace
    snapshot.settings = body.settings
    snapshot.parent_id = body.parent_id
    snapshot.owner_id = body.owner_id
    snapshot.owner_item_id = body.owner_item_id
    snapshot.created_at = time


def _end_turn(snapshot: Snapshot, body: TurnEnded) -> None:
    # Compactions and the user's own commands have no step.
    if snapshot.turn and snapshot.turn.step:
        snapshot.last_outcome = body.outcome
    snapshot.turn = None
    snapshot.worked_s += body.duration_s


def _mark(snapshot: Snapshot, step: int) -> None:
    if turn := snapshot.turn:
        agent, read_only = turn.context.agent, turn.context.read_only
        mark = Mark(turn.turn_id, snapshot.seq, len(snapshot.items), step, agent, read_only)
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
    # Items that came after the revert (messages without a reply) stay, after the restored ones.
    snapshot.items[last.position : last.position] = last.items
    snapshot.marks += last.marks
    snapshot.context_tokens = snapshot.context_items = 0


def find_mark(snapshot: Snapshot, turn_id: str, step: int) -> int | None:
    """Index of the mark before a turn (`step` 0) or a step of it; `None` if there is none."""
    marks = enumerate(snapshot.marks)
    return next((n for n, mark in marks if (mark.turn_id, mark.step) == (turn_id, step)), None)


def _position(snapshot: Snapshot, item_id: str) -> int:
    """Index of an item; searches from the end, where open items are."""
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
    """Add what a sub-agent has spent since its previous update, which had totals as well."""
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


def _record_last_message(snapshot: Snapshot, item: Item, position: int) -> None:
    if snapshot.turn and isinstance(item, AssistantMessage) and item.state != "discarded":
        before = snapshot.turn.last_message if is_continued(snapshot.items, position) else ""
        snapshot.turn.last_message = before + item.text


def _record_resumption(snapshot: Snapshot, item: Item, time: float) -> None:
    if snapshot.turn and isinstance(item, Notice) and item.code == RESUMED:
        snapshot.turn.resumed += 1
        snapshot.turn.away_s += max(0.0, time - snapshot.updated_at)


def _begin_step(snapshot: Snapshot, body: StepStarted) -> None:
    snapshot.steps += 1
    if snapshot.turn:
        _mark(snapshot, body.step)
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
    """Index of the first call of the last response.

    The provider counted the response without the output of its calls, so they count separately.
    """
    position = len(snapshot.items)
    if position and isinstance(snapshot.items[position - 1], Patch):
        position -= 1  # models never get a patch
    while position and _is_call_of(snapshot.items[position - 1], snapshot.steps - 1):
        position -= 1
    return position


def _is_call_of(item: Item, ordinal: int) -> bool:
    return isinstance(item, ToolCall) and item.ordinal == ordinal and not item.by_provider
