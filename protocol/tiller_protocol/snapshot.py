"""The state of a session: `Snapshot`, its summary, and the part that a fork shares with its parent.

`fold` says how events change it.
"""

from typing import Annotated

from msgspec import Struct, structs

from tiller_protocol.doc import doc
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.events import (
    Outcome,
    StatusName,
)
from tiller_protocol.items import (
    AssistantMessage,
    BackgroundCommand,
    Item,
    PlanEntry,
    QueuedInput,
    Reasoning,
    Request,
    ToolCall,
    Usage,
    UsdCost,
)
from tiller_protocol.settings import Settings, TurnChoices
from tiller_protocol.turns import OpenTurn


class Mark(Struct, frozen=True, omit_defaults=True):
    """A point to which history can be reverted: before a turn, or before one of its steps."""

    turn_id: Annotated[str, doc("The turn.")]
    seq: Annotated[int, doc("The last event before this point.")]
    items: Annotated[int, doc("Number of items before this point.")]
    step: Annotated[int, doc("0: before the turn, else before this step.")] = 0
    agent: Annotated[str, doc("The agent of the turn.")] = ""
    read_only: Annotated[bool, doc("Whether that agent could only read.")] = False
    at: Annotated[float, doc("Unix seconds when the turn or step began.")] = 0.0
    duration_s: Annotated[
        float | None,
        doc("Seconds that an ended turn took, without the time when no daemon ran."),
    ] = None
    choices: Annotated[
        TurnChoices | None, doc("As in `turn_started`; absent for steps as well.")
    ] = None
    model: Annotated[str, doc("The model of the turn, as `provider/model`.")] = ""
    outcome: Annotated[Outcome | None, doc("How an ended turn ended.")] = None
    error: Annotated[ErrorInfo | None, doc("Why it ended so, as in `turn_ended`.")] = None


class Reverted(Struct, frozen=True, omit_defaults=True):
    """What a revert removed from history."""

    position: Annotated[int, doc("Number of items that stayed.")]
    items: Annotated[tuple[Item, ...], doc("The items removed after them.")]
    marks: Annotated[tuple[Mark, ...], doc("The marks of the removed items.")]
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
        tuple[BackgroundCommand, ...],
        doc("Background commands: running ones, and the latest that ended."),
    ] = ()
    pruned: Annotated[list[str], doc("Ids of calls whose output is no longer sent.")] = []
    marks: Annotated[list[Mark], doc("Where turns and steps began, oldest first.")] = []
    reverted: Annotated[
        list[Reverted], doc("Reverts since the last turn, which can be undone; latest last.")
    ] = []
    context_tokens: Annotated[
        int,
        doc(
            "Tokens of the first `context_items` items, as counted by the provider; 0 if there is "
            "no count since history got shorter."
        ),
    ] = 0
    context_items: Annotated[int, doc("Number of items that `context_tokens` covers.")] = 0
    context_window: Annotated[
        int, doc("Context window of the latest turn's model, in tokens; 0: there was no turn.")
    ] = 0
    branch: Annotated[str, doc("From the latest `turn_ended` that has one.")] = ""
    turn: Annotated[OpenTurn | None, doc("The running turn, if any.")] = None
    last_outcome: Annotated[
        Outcome | None,
        doc("How the latest turn of the model ended; absent before the first, and after a revert."),
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
    unpriced: Annotated[int, doc("Requests not included in `cost`, without sub-agents.")] = 0
    worked_s: Annotated[float, doc("Seconds of all turns that have ended.")] = 0.0
    delegated_steps: Annotated[int, doc("Model requests of sub-agents.")] = 0
    parent_id: Annotated[str | None, doc("For a fork: the session that it branches from.")] = None
    parent_turns: Annotated[int, doc("For a fork: number of turns shared with its parent.")] = 0
    owner_id: Annotated[str | None, doc("For a sub-agent: the session that it works for.")] = None
    owner_item_id: Annotated[str | None, doc("For a sub-agent: the call that started it.")] = None


class SessionSummary(Struct, frozen=True, omit_defaults=True):
    """One entry of a list of sessions."""

    session_id: Annotated[str, doc("The session.")]
    workspace: Annotated[str, doc("Absolute path.")]
    created_at: Annotated[float, doc("Unix seconds.")]
    updated_at: Annotated[float, doc("Unix seconds of the last event.")]
    head: Annotated[int, doc("`seq` of the last event.")]
    status: Annotated[StatusName, doc("What it is doing now.")] = "idle"
    title: Annotated[str, doc("One line; empty if it has none yet.")] = ""
    archived: Annotated[bool, doc("Whether it is archived.")] = False
    turns: Annotated[int, doc("Number of turns so far.")] = 0
    cost: UsdCost = None
    requests: Annotated[tuple[Request, ...], doc("Open requests, oldest first.")] = ()
    parent_id: Annotated[str | None, doc("For a fork: the session that it branches from.")] = None
    parent_turns: Annotated[int, doc("For a fork: number of turns shared with its parent.")] = 0
    context_tokens: Annotated[int, doc("As in `snapshot`.")] = 0
    context_window: Annotated[int, doc("As in `snapshot`.")] = 0
    branch: Annotated[str, doc("As in `snapshot`.")] = ""


def find_mark(snapshot: Snapshot, turn_id: str, step: int) -> int | None:
    """Index of the mark before a turn (`step` 0) or a step of it; `None` if there is none."""
    marks = enumerate(snapshot.marks)
    return next((n for n, mark in marks if (mark.turn_id, mark.step) == (turn_id, step)), None)


def fork_base(parent: Snapshot, session_id: str) -> Snapshot:
    """Return the part of `parent` that a fork shares: history, settings, title, but nothing open.

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
