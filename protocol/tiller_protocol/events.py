"""Events: everything that happened in a session, numbered 1, 2, 3 … by `seq`.

An event is published after it is in the log. `lifecycle` says which may follow which, `snapshot`
what they add up to.
"""

from typing import Literal

from msgspec import Struct

from tiller_protocol.errors import ErrorInfo
from tiller_protocol.items import (
    BackgroundCommand,
    Item,
    PlanEntry,
    QueuedInput,
    Request,
    Resolution,
    SubAgent,
    ToolCallState,
    ToolErrorKind,
    Usage,
)
from tiller_protocol.settings import Settings, TurnContextShown

Outcome = Literal["completed", "interrupted", "failed", "blocked", "limit_reached"]
Channel = Literal["text", "arguments", "output"]
FinishReason = Literal[
    "stop", "tool_calls", "length", "content_filter", "interrupted", "error", "unknown"
]
StatusName = Literal["idle", "busy", "retry", "waiting"]


class Body(Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """Base of all event bodies; the tag is the field `type`."""


class SessionCreated(Body, frozen=True, tag="session_created"):
    """The first event of a session. A fork names its parent and the `seq` it shares up to.

    A sub-agent's session names the session it works for, and the call that asked for it.
    """

    workspace: str
    settings: Settings
    parent_id: str | None = None
    parent_seq: int | None = None
    owner_id: str | None = None
    owner_item_id: str | None = None


class SessionConfigured(Body, frozen=True, tag="session_configured"):
    """The settings as they are from the next turn on, whole."""

    settings: Settings


class SessionTitled(Body, frozen=True, tag="session_titled"):
    """The session has a new title; `usage` is what a model took to find it, `cost` in dollars."""

    title: str
    usage: Usage = Usage()
    cost: float | None = None


class SessionArchived(Body, frozen=True, tag="session_archived"):
    """The session was put away, or taken back."""

    archived: bool


class StatusChanged(Body, frozen=True, tag="status_changed"):
    """`retry` says which attempt of how many comes after `delay_s`; `waiting` names the request."""

    status: StatusName
    attempt: int | None = None
    limit: int | None = None
    delay_s: float | None = None
    cause: str = ""
    request_id: str | None = None


class QueueChanged(Body, frozen=True, tag="queue_changed"):
    """The queued inputs, whole, next one first."""

    queue: tuple[QueuedInput, ...]


class TurnStarted(Body, frozen=True, tag="turn_started"):
    """A turn begins; nothing in `context` changes until it ends."""

    context: TurnContextShown


class TurnEnded(Body, frozen=True, tag="turn_ended"):
    """The last event of a turn: no process, task or request of it is alive any more."""

    outcome: Outcome
    steps: int
    usage: Usage
    duration_s: float
    last_message: str = ""
    cost: float | None = None
    error: ErrorInfo | None = None


class StepStarted(Body, frozen=True, tag="step_started"):
    """One model request goes out. `step` counts from 1 within the turn."""

    step: int


class StepEnded(Body, frozen=True, tag="step_ended"):
    """The step's response and its tool calls are over."""

    step: int
    finish_reason: FinishReason
    usage: Usage
    cost: float | None = None
    time_to_first_token_s: float | None = None


class ItemStarted(Body, frozen=True, tag="item_started"):
    """An item enters history; its place there is this event's place."""

    item: Item


class ItemDelta(Body, frozen=True, tag="item_delta"):
    """The next piece of an item's text, arguments or output. Pieces may be joined on the way."""

    item_id: str
    channel: Channel
    delta: str


class ItemCompleted(Body, frozen=True, tag="item_completed"):
    """The item, whole. Tool calls complete in the order in which they finish."""

    item: Item


class ToolCallUpdated(Body, frozen=True, tag="tool_call_updated"):
    """A call's state; sent before `item_completed` when the state is final.

    `sub_agent` comes when a sub-agent has begun and after each of its steps, with its sums.
    """

    item_id: str
    state: ToolCallState
    error_kind: ToolErrorKind | None = None
    title: str = ""
    sub_agent: SubAgent | None = None


class RequestOpened(Body, frozen=True, tag="request_opened"):
    """The turn, or one call of it, waits for an answer of the user."""

    request: Request


class RequestResolved(Body, frozen=True, tag="request_resolved"):
    """Somebody answered (`by` is the frontend's name), a rule did (`by` empty), or it ended."""

    request_id: str
    resolution: Resolution
    by: str = ""
    text: str = ""


class PlanUpdated(Body, frozen=True, tag="plan_updated"):
    """The plan, whole."""

    plan: tuple[PlanEntry, ...]


class BackgroundChanged(Body, frozen=True, tag="background_changed"):
    """The background commands of the session, whole: those that run and the last that ended."""

    background: tuple[BackgroundCommand, ...]


class HistoryCompacted(Body, frozen=True, tag="history_compacted"):
    """History got shorter for the model; the log keeps all of it.

    Either the compaction item `item_id` stands for what came before it, or the output of the calls
    in `pruned` is not sent any more. `usage` is what the summary took, `cost` in US dollars.
    """

    tokens_before: int
    tokens_after: int
    item_id: str | None = None
    pruned: tuple[str, ...] = ()
    usage: Usage = Usage()
    cost: float | None = None


class HistoryReverted(Body, frozen=True, tag="history_reverted"):
    """History is as it was at event `to_seq`, before a turn or before a step of it.

    With `undone` the last such event is taken back. `conflicts` are files that were left as they
    are.
    """

    to_seq: int
    undone: bool = False
    conflicts: tuple[str, ...] = ()
    before_turn: str = ""
    before_step: int = 0


class WarningRaised(Body, frozen=True, tag="warning"):
    """Something the user should know; the work goes on."""

    code: str
    message: str
    fatal: bool = False


class ErrorRaised(Body, frozen=True, tag="error"):
    """Something failed. `fatal` means that the session can't go on by itself."""

    code: str
    message: str
    fatal: bool = False


AnyBody = (
    SessionCreated
    | SessionConfigured
    | SessionTitled
    | SessionArchived
    | StatusChanged
    | QueueChanged
    | TurnStarted
    | TurnEnded
    | StepStarted
    | StepEnded
    | ItemStarted
    | ItemDelta
    | ItemCompleted
    | ToolCallUpdated
    | RequestOpened
    | RequestResolved
    | PlanUpdated
    | BackgroundChanged
    | HistoryCompacted
    | HistoryReverted
    | WarningRaised
    | ErrorRaised
)


class Event(Struct, frozen=True, omit_defaults=True):
    """One numbered event. `submission_id` names the cause, `time` is Unix seconds."""

    seq: int
    session_id: str
    time: float
    body: AnyBody
    turn_id: str | None = None
    submission_id: str | None = None


LIFECYCLE_TOPIC = "daemon"
"""Topic under which the life-cycle events of every session are published as well."""

LIFECYCLE_BODIES = (
    SessionCreated,
    SessionConfigured,
    SessionTitled,
    SessionArchived,
    StatusChanged,
    TurnStarted,
    TurnEnded,
    RequestOpened,
    RequestResolved,
)
"""The bodies published under `LIFECYCLE_TOPIC`."""
