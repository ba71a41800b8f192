"""Events: everything that has happened in a session, numbered 1, 2, 3 … by `seq`.

Events are published once they are in the log. `lifecycle` defines their order, and `fold` the
resulting state.
"""

from typing import Annotated, Literal

from msgspec import Struct

from tiller_protocol.doc import doc
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.items import (
    Allowed,
    Background,
    Effect,
    FileChange,
    Item,
    PlanEntry,
    QueuedInput,
    Request,
    Resolution,
    SubAgent,
    ToolCallState,
    ToolErrorKind,
    Usage,
    UsdCost,
)
from tiller_protocol.settings import Settings, TurnChoices, TurnContextShown

Outcome = Literal["completed", "interrupted", "failed", "blocked", "limit_reached"]
Channel = Literal["text", "arguments", "output"]
StreamedItemType = Literal["assistant_message", "reasoning", "tool_call"]
FinishReason = Literal[
    "stop",
    "tool_calls",
    "length",
    "content_filter",
    "paused",
    "interrupted",
    "error",
    "unknown",
]
StatusName = Literal["idle", "busy", "retry", "waiting"]


class Body(Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """Base of all event bodies; the tag is the field `type`."""


class SessionCreated(Body, frozen=True, tag="session_created"):
    """The first event of a session."""

    workspace: Annotated[str, doc("Absolute path of the workspace.")]
    settings: Annotated[Settings, doc("The initial settings.")]
    parent_id: Annotated[str | None, doc("For a fork: the session that it branches from.")] = None
    parent_seq: Annotated[int | None, doc("For a fork: `seq` of the last shared event.")] = None
    owner_id: Annotated[str | None, doc("For a sub-agent: the session that it works for.")] = None
    owner_item_id: Annotated[str | None, doc("For a sub-agent: the call that started it.")] = None
    worktree: Annotated[str, doc("Name of the worktree around the workspace; may be empty.")] = ""


class SessionConfigured(Body, frozen=True, tag="session_configured"):
    """The settings or the workspace have changed."""

    settings: Annotated[Settings, doc("All settings, as they apply from the next turn on.")]
    workspace: Annotated[str | None, doc("The new workspace; absent if it is the same.")] = None


class SessionTitled(Body, frozen=True, tag="session_titled"):
    """The session has a new title."""

    title: Annotated[str, doc("The new title, in one line.")]
    usage: Annotated[Usage, doc("Tokens that a model used to write the title.")] = Usage()
    cost: UsdCost = None


class SessionArchived(Body, frozen=True, tag="session_archived"):
    """The session was archived or taken out of the archive."""

    archived: Annotated[bool, doc("Whether the session is archived now.")]


class SessionSeen(Body, frozen=True, tag="session_seen"):
    """A user has seen the session, in any frontend."""

    until: Annotated[int, doc("`seq` of the last event that the user has seen.")]


class StatusChanged(Body, frozen=True, tag="status_changed"):
    """The session is now idle, busy, about to retry a model request, or waiting for an answer."""

    status: Annotated[StatusName, doc("What the session is doing now.")]
    attempt: Annotated[int | None, doc("For `retry`: the next attempt's number, 2 or more.")] = None
    limit: Annotated[
        int | None,
        doc("For `retry`: maximum number of attempts; absent if only the time is limited."),
    ] = None
    delay_s: Annotated[float | None, doc("For `retry`: seconds until the next attempt.")] = None
    cause: Annotated[
        str,
        doc("For `retry`: why the last attempt failed. For other states: the present activity."),
    ] = ""
    request_id: Annotated[str | None, doc("For `waiting`: the open request.")] = None


class QueueChanged(Body, frozen=True, tag="queue_changed"):
    """The queue has changed."""

    queue: Annotated[tuple[QueuedInput, ...], doc("All queued inputs, next one first.")]
    waits: Annotated[
        bool,
        doc("Whether the inputs wait until `turn_continue`, `promote` or new input starts a turn."),
    ] = False


class TurnStarted(Body, frozen=True, tag="turn_started"):
    """A turn begins."""

    context: Annotated[TurnContextShown, doc("Context that is the same for the whole turn.")]
    choices: Annotated[
        TurnChoices | None,
        doc(
            "Choices for this turn; `turn_continue` uses them again. Absent if the turn asks no "
            "model for an answer."
        ),
    ] = None


class TurnEnded(Body, frozen=True, tag="turn_ended"):
    """A turn has ended. None of its processes, tasks or requests is left."""

    outcome: Annotated[Outcome, doc("How the turn ended.")]
    steps: Annotated[int, doc("Number of model requests, not counting those of sub-agents.")]
    usage: Annotated[Usage, doc("Tokens of the turn, including sub-agents.")]
    duration_s: Annotated[
        float,
        doc("Duration by a monotonic clock, in seconds, not counting time when no daemon ran."),
    ]
    last_message: Annotated[str, doc("The model's final message; empty if there is none.")] = ""
    cost: UsdCost = None
    error: Annotated[ErrorInfo | None, doc("Explains `outcome`; absent if not needed.")] = None
    files: Annotated[
        tuple[FileChange, ...],
        doc("Files that the turn changed; their line counts are sums over the turn's patches."),
    ] = ()
    more_files: Annotated[bool, doc("Whether files that are not listed may have changed, too.")] = (
        False
    )
    queued: Annotated[
        int,
        doc(
            "Number of inputs that wait until `turn_continue`, `promote` or new input starts "
            "a turn."
        ),
    ] = 0
    context_tokens: Annotated[
        int, doc("Tokens in the history, by the provider's last count; 0 if there is no count.")
    ] = 0
    context_window: Annotated[int, doc("Context window of the model in tokens; 0 if unknown.")] = 0
    branch: Annotated[
        str, doc("The branch, or `commit …` if none is checked out; empty without a repository.")
    ] = ""


class StepStarted(Body, frozen=True, tag="step_started"):
    """A step begins. The daemon now sends the step's model request."""

    step: Annotated[int, doc("The step's number in the turn, counting from 1.")]


class StepEnded(Body, frozen=True, tag="step_ended"):
    """The step's response and its tool calls have ended."""

    step: Annotated[int, doc("The step's number in the turn, counting from 1.")]
    finish_reason: Annotated[FinishReason, doc("Why the response ended.")]
    usage: Annotated[Usage, doc("Tokens of the model request and its response.")]
    cost: UsdCost = None
    time_to_first_token_s: Annotated[
        float | None, doc("Seconds until the model's first output; absent if there was no output.")
    ] = None


class ItemStarted(Body, frozen=True, tag="item_started"):
    """A new item. In history, items have the order of their `item_started` events."""

    item: Annotated[Item, doc("The item, with its content so far.")]


class ItemDelta(Body, frozen=True, tag="item_delta"):
    """The next piece of an item's text, arguments or output."""

    item_id: Annotated[str, doc("Id of an open item.")]
    channel: Annotated[Channel, doc("The part of the item to which the delta is appended.")]
    delta: Annotated[str, doc("The next piece of text; the log may join several pieces into one.")]
    item_type: Annotated[
        StreamedItemType | None, doc("The item's `type`; absent in logs of older versions.")
    ] = None


class ItemCompleted(Body, frozen=True, tag="item_completed"):
    """An item is complete. Of parallel tool calls, the call that ends first is completed first."""

    item: Annotated[Item, doc("The whole item, which replaces the text from deltas.")]


class ToolCallUpdated(Body, frozen=True, tag="tool_call_updated"):
    """A tool call has a new state. The final state comes before `item_completed`."""

    item_id: Annotated[str, doc("Id of the tool call.")]
    state: Annotated[ToolCallState, doc("The new state.")]
    error_kind: Annotated[
        ToolErrorKind | None, doc("Kind of the error; present exactly when `state` is `error`.")
    ] = None
    title: Annotated[str, doc("The new title. Empty if unchanged.")] = ""
    sub_agent: Annotated[
        SubAgent | None,
        doc(
            "The sub-agent and its totals; sent when the sub-agent begins, and after each of "
            "its steps."
        ),
    ] = None
    rewritten_arguments: Annotated[
        str,
        doc("All arguments, as changed by a hook, in JSON text. Empty if no hook changed them."),
    ] = ""
    effect: Annotated[
        Effect | None,
        doc("Whether the call only reads, or can also write. Sent when the call begins to run."),
    ] = None
    allowed: Annotated[
        tuple[Allowed, ...],
        doc(
            "Reasons why the call is allowed to run. Sent when the call begins to run. Empty in "
            "updates that do not change the reasons."
        ),
    ] = ()


class RequestOpened(Body, frozen=True, tag="request_opened"):
    """The turn, or one of its calls, waits for the user's answer."""

    request: Annotated[Request, doc("The request to answer.")]


class RequestResolved(Body, frozen=True, tag="request_resolved"):
    """A request was answered, or no longer needs an answer."""

    request_id: Annotated[str, doc("Id of the request.")]
    resolution: Annotated[Resolution, doc("The answer; `cancelled` if none is needed any more.")]
    by: Annotated[str, doc("Name of the frontend that answered; empty if a rule decided.")] = ""
    text: Annotated[str, doc("For `answer`: the reply. For `reject`: the reason, if any.")] = ""


class PlanUpdated(Body, frozen=True, tag="plan_updated"):
    """The model has changed its plan."""

    plan: Annotated[tuple[PlanEntry, ...], doc("The whole plan.")]


class BackgroundChanged(Body, frozen=True, tag="background_changed"):
    """The session's background commands or sub-agents have changed."""

    background: Background


class HistoryCompacted(Body, frozen=True, tag="history_compacted"):
    """The model now gets a shorter history. The log still contains everything."""

    tokens_before: Annotated[int, doc("Estimated size of history before this event, in tokens.")]
    tokens_after: Annotated[int, doc("Estimated size of history after this event, in tokens.")]
    item_id: Annotated[
        str | None,
        doc("Id of the compaction item that replaces earlier history; absent after pruning."),
    ] = None
    pruned: Annotated[
        tuple[str, ...], doc("Ids of calls whose output is no longer sent to the model.")
    ] = ()
    usage: Annotated[Usage, doc("Tokens that a model used to write the summary.")] = Usage()
    cost: UsdCost = None


class HistoryReverted(Body, frozen=True, tag="history_reverted"):
    """A revert has restored history and files, or has been undone."""

    to_seq: Annotated[int, doc("For a revert: `seq` of the event that history went back to.")]
    undone: Annotated[
        bool, doc("Whether this event undoes the last revert, so that the removed history is back.")
    ] = False
    conflicts: Annotated[tuple[str, ...], doc("Files that were not restored.")] = ()
    before_turn: Annotated[str, doc("Id of the turn that was reverted; empty if `undone`.")] = ""
    before_step: Annotated[int, doc("The first step that was reverted; 0 for the whole turn.")] = 0
    restored: Annotated[int, doc("Number of files that were restored or removed.")] = 0


class WarningRaised(Body, frozen=True, tag="warning"):
    """A warning for the user. Work continues."""

    code: Annotated[str, doc("Code of the warning, for programs.")]
    message: Annotated[str, doc("What happened, in whole sentences for people.")]
    fatal: Annotated[bool, doc("Always false.")] = False


class ErrorRaised(Body, frozen=True, tag="error"):
    """Something failed."""

    code: Annotated[str, doc("Code of the error, for programs.")]
    message: Annotated[str, doc("What happened, in whole sentences for people.")]
    fatal: Annotated[bool, doc("Whether turns keep failing until the user acts.")] = False


AnyBody = (
    SessionCreated
    | SessionConfigured
    | SessionTitled
    | SessionArchived
    | SessionSeen
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
    """One numbered event of a session."""

    seq: Annotated[int, doc("The event's number in the session: 1, 2, 3 … without gaps.")]
    session_id: Annotated[str, doc("The session.")]
    time: Annotated[float, doc("Time of the event in Unix seconds.")]
    body: Annotated[AnyBody, doc("What happened.")]
    turn_id: Annotated[str | None, doc("Id of the turn that the event belongs to, if any.")] = None
    submission_id: Annotated[str | None, doc("The submission that caused the event, if any.")] = (
        None
    )


LIFECYCLE_TOPIC = "daemon"
"""The topic under which the life-cycle events of all sessions are published, too."""

LIFECYCLE_BODIES = (
    SessionCreated,
    SessionConfigured,
    SessionTitled,
    SessionArchived,
    SessionSeen,
    StatusChanged,
    TurnStarted,
    TurnEnded,
    RequestOpened,
    RequestResolved,
)
"""The events published under `LIFECYCLE_TOPIC`, too."""
