"""The state of a session, as `fold` computes it from the session's events."""

from msgspec import Struct

from tiller_protocol.events import (
    StatusName,
)
from tiller_protocol.items import (
    BackgroundCommand,
    Item,
    PlanEntry,
    QueuedInput,
    Request,
    Usage,
)
from tiller_protocol.settings import Settings
from tiller_protocol.turns import OpenTurn


class Mark(Struct, frozen=True, omit_defaults=True):
    """Where history can be cut: before step `step` of a turn, or with 0 before the turn.

    `seq` is the last event before it, `items` the number of items.
    """

    turn_id: str
    seq: int
    items: int
    step: int = 0


class Reverted(Struct, frozen=True, omit_defaults=True):
    """What a revert took away, after the first `position` items.

    `conflicts` are files that it left as they were.
    """

    position: int
    items: tuple[Item, ...]
    marks: tuple[Mark, ...]
    conflicts: tuple[str, ...] = ()


class Snapshot(Struct, omit_defaults=True):
    """A session at `seq`. Mutable: `fold` moves it on by one event.

    `open_items` are the ids of items that have started and not completed; `steps` counts the model
    requests of the whole session. The provider counted `context_tokens` for the first
    `context_items` items; 0 when it has not counted since history got shorter. The output of the
    calls in `pruned` is not sent any more. `worked_s` is the time of all turns that ended. `usage`
    and `cost` count titles, summaries and sub-agents too; `unpriced` are requests of the session
    itself whose price was not known, `delegated_steps` the model requests of sub-agents. `marks`
    say where turns and steps began, `reverted` is what was taken away since the last turn, the last
    one last.
    """

    session_id: str
    seq: int = 0
    workspace: str = ""
    settings: Settings = Settings()
    title: str = ""
    archived: bool = False
    created_at: float = 0.0
    updated_at: float = 0.0
    status: StatusName = "idle"
    items: list[Item] = []
    open_items: list[str] = []
    requests: list[Request] = []
    queue: tuple[QueuedInput, ...] = ()
    plan: tuple[PlanEntry, ...] = ()
    background: tuple[BackgroundCommand, ...] = ()
    pruned: list[str] = []
    marks: list[Mark] = []
    reverted: list[Reverted] = []
    context_tokens: int = 0
    context_items: int = 0
    turn: OpenTurn | None = None
    turns: int = 0
    steps: int = 0
    usage: Usage = Usage()
    cost: float | None = None
    unpriced: int = 0
    worked_s: float = 0.0
    delegated_steps: int = 0
    parent_id: str | None = None
    owner_id: str | None = None
    owner_item_id: str | None = None
