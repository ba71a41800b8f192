"""Events: everything that happened in a session, numbered 1, 2, 3 … by `seq`.

An event is published after it is in the log. `lifecycle` defines their order, `fold` the state
that they add up to.
"""

from typing import Annotated, Any, Literal

from msgspec import Struct

from tiller_protocol.doc import doc
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.items import (
    Allowed,
    BackgroundCommand,
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
from tiller_protocol.settings import Approve, Budget, FollowUps, SandboxMode, Settings, TurnChoices

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

    workspace: Annotated[str, doc("Absolute path.")]
    settings: Annotated[Settings, doc("Settings to begin with.")]
    parent_id: Annotated[str | None, doc("For a fork: the session that it branches from.")] = None
    parent_seq: Annotated[int | None, doc("For a fork: the last `seq` shared with it.")] = None
    owner_id: Annotated[str | None, doc("For a sub-agent: the session that it works for.")] = None
    owner_item_id: Annotated[str | None, doc("For a sub-agent: the call that started it.")] = None


class SessionConfigured(Body, frozen=True, tag="session_configured"):
    """The settings have changed."""

    settings: Annotated[Settings, doc("All settings, from the next turn on.")]


class SessionTitled(Body, frozen=True, tag="session_titled"):
    """The session has a new title."""

    title: Annotated[str, doc("One line.")]
    usage: Annotated[Usage, doc("What a model used to write the title.")] = Usage()
    cost: UsdCost = None


class SessionArchived(Body, frozen=True, tag="session_archived"):
    """The session was archived, or taken out of the archive."""

    archived: Annotated[bool, doc("False: it was taken out of the archive.")]


class StatusChanged(Body, frozen=True, tag="status_changed"):
    """The session became idle or busy, retries a model request, or waits for an answer."""

    status: Annotated[StatusName, doc("What the session is doing now.")]
    attempt: Annotated[int | None, doc("For `retry`: which attempt comes next.")] = None
    limit: Annotated[
        int | None, doc("For `retry`: the number of attempts; absent if only time limits them.")
    ] = None
    delay_s: Annotated[float | None, doc("For `retry`: seconds until that attempt.")] = None
    cause: Annotated[
        str, doc("For `retry`: why the last attempt failed; else what it is busy with.")
    ] = ""
    request_id: Annotated[str | None, doc("For `waiting`: the open request.")] = None


class QueueChanged(Body, frozen=True, tag="queue_changed"):
    """The queue has changed."""

    queue: Annotated[tuple[QueuedInput, ...], doc("All queued inputs, next one first.")]
    waits: Annotated[
        bool,
        doc("No turn takes them by itself: `turn_continue`, `promote` or new input starts one."),
    ] = False


class TurnContextShown(Struct, frozen=True, omit_defaults=True):
    """The context of a turn as frontends see it: everything except secrets."""

    workspace: Annotated[str, doc("Absolute path.")]
    agent: Annotated[str, doc("Name of the agent.")]
    model: Annotated[str, doc("`provider/model`.")]
    variant: Annotated[str, doc("Empty: none.")]
    approve: Annotated[Approve, doc("What happens where no rule decides about a call.")]
    max_steps: Annotated[int, doc("Maximum number of model requests in the turn.")]
    tools: Annotated[tuple[str, ...], doc("Names of the tools that the model is offered.")]
    context_window: Annotated[int, doc("Tokens.")]
    turn_budget: Annotated[Budget, doc("Limit for this turn.")] = Budget()
    session_budget: Annotated[Budget, doc("Limit for the whole session.")] = Budget()
    output_schema: Annotated[
        dict[str, Any] | None, doc("JSON Schema of the final message, if any.")
    ] = None
    system_prompt: Annotated[str, doc("As it is sent to the model.")] = ""
    sandbox: Annotated[SandboxMode, doc("What commands may do.")] = "full_access"
    follow_ups: Annotated[FollowUps, doc("How queued input is taken.")] = "one_at_a_time"
    read_only: Annotated[bool, doc("The agent can't write, whatever the rules say.")] = False
    write_paths: Annotated[
        tuple[str, ...] | None,
        doc("Of a sub-agent's turn: the only places that it may change, if its task declared any."),
    ] = None


class TurnStarted(Body, frozen=True, tag="turn_started"):
    """A turn begins."""

    context: Annotated[TurnContextShown, doc("Does not change until the turn ends.")]
    choices: Annotated[
        TurnChoices | None,
        doc(
            "Choices for this turn, which `turn_continue` takes over; absent if the turn asks no "
            "model for an answer."
        ),
    ] = None


class TurnEnded(Body, frozen=True, tag="turn_ended"):
    """The last event of a turn: none of its processes, tasks or requests is left."""

    outcome: Annotated[Outcome, doc("How it ended.")]
    steps: Annotated[int, doc("Model requests of the turn, without sub-agents.")]
    usage: Annotated[Usage, doc("Tokens of the turn, sub-agents included.")]
    duration_s: Annotated[
        float, doc("Seconds of a clock that never jumps, without those in which no daemon ran.")
    ]
    last_message: Annotated[str, doc("The model's final message; empty if there is none.")] = ""
    cost: UsdCost = None
    error: Annotated[ErrorInfo | None, doc("Present if `outcome` needs an explanation.")] = None
    files: Annotated[
        tuple[FileChange, ...],
        doc("Files that the turn changed. Their line counts add up the turn's patches."),
    ] = ()
    more_files: Annotated[
        bool,
        doc("More may have changed: some are not listed, or a step's changes are not known yet."),
    ] = False
    queued: Annotated[
        int,
        doc("Inputs that wait; none of them starts a turn before `turn_continue` or new input."),
    ] = 0
    context_tokens: Annotated[
        int, doc("Size of the history as the provider counted it last; 0 if it has not.")
    ] = 0
    context_window: Annotated[int, doc("Tokens that the model takes; 0: unknown.")] = 0
    branch: Annotated[
        str,
        doc("What is checked out in the workspace: a branch, or `commit …`; empty: no repository."),
    ] = ""


class StepStarted(Body, frozen=True, tag="step_started"):
    """A model request goes out."""

    step: Annotated[int, doc("Counts from 1 within the turn.")]


class StepEnded(Body, frozen=True, tag="step_ended"):
    """The step's response and its tool calls are over."""

    step: Annotated[int, doc("Counts from 1 within the turn.")]
    finish_reason: Annotated[FinishReason, doc("Why the response ended.")]
    usage: Annotated[Usage, doc("Tokens of the request and its response.")]
    cost: UsdCost = None
    time_to_first_token_s: Annotated[
        float | None, doc("Seconds; absent if the model sent nothing.")
    ] = None


class ItemStarted(Body, frozen=True, tag="item_started"):
    """An item enters history, in the order of these events."""

    item: Annotated[Item, doc("Its content so far.")]


class ItemDelta(Body, frozen=True, tag="item_delta"):
    """The next piece of an item's text, arguments or output."""

    item_id: Annotated[str, doc("An open item.")]
    channel: Annotated[Channel, doc("What the delta is appended to.")]
    delta: Annotated[str, doc("The next piece; the log may join several into one.")]
    item_type: Annotated[
        StreamedItemType | None, doc("The item's `type`; absent in logs of older versions.")
    ] = None


class ItemCompleted(Body, frozen=True, tag="item_completed"):
    """An item is complete. Tool calls complete in the order in which they finish."""

    item: Annotated[Item, doc("The whole item; replaces what deltas added up to.")]


class ToolCallUpdated(Body, frozen=True, tag="tool_call_updated"):
    """A call changed its state; sent before `item_completed` when the state is final."""

    item_id: Annotated[str, doc("The tool call.")]
    state: Annotated[ToolCallState, doc("The new state.")]
    error_kind: Annotated[ToolErrorKind | None, doc("Present exactly when `state` is `error`.")] = (
        None
    )
    title: Annotated[str, doc("New title; empty: unchanged.")] = ""
    sub_agent: Annotated[
        SubAgent | None,
        doc("Present when a sub-agent has begun, and after each of its steps, with its totals."),
    ] = None
    rewritten_arguments: Annotated[
        str, doc("JSON text of the arguments that a hook put in place of the model's; empty: none.")
    ] = ""
    effect: Annotated[
        Effect | None, doc("Whether it may change anything; sent when it begins to run.")
    ] = None
    allowed: Annotated[
        tuple[Allowed, ...], doc("Why it may run; sent when it begins to run. Empty: unchanged.")
    ] = ()


class RequestOpened(Body, frozen=True, tag="request_opened"):
    """The turn, or one of its calls, waits for the user's answer."""

    request: Annotated[Request, doc("What is asked.")]


class RequestResolved(Body, frozen=True, tag="request_resolved"):
    """A request was answered, or is no longer open for another reason."""

    request_id: Annotated[str, doc("The request.")]
    resolution: Annotated[Resolution, doc("`cancelled`: no answer is needed any more.")]
    by: Annotated[str, doc("Name of the frontend that answered; empty: a rule did.")] = ""
    text: Annotated[str, doc("The reply, or feedback for the model.")] = ""


class PlanUpdated(Body, frozen=True, tag="plan_updated"):
    """The model changed its plan."""

    plan: Annotated[tuple[PlanEntry, ...], doc("The whole plan.")]


class BackgroundChanged(Body, frozen=True, tag="background_changed"):
    """The background commands and sub-agents of the session have changed."""

    background: Annotated[
        tuple[BackgroundCommand, ...], doc("All that run, and the latest that have ended.")
    ]


class HistoryCompacted(Body, frozen=True, tag="history_compacted"):
    """The history that the model gets is shorter now; the log keeps all of it."""

    tokens_before: Annotated[int, doc("Estimated size before, in tokens.")]
    tokens_after: Annotated[int, doc("Estimated size afterwards, in tokens.")]
    item_id: Annotated[
        str | None, doc("The compaction item that replaces earlier history; absent if pruned.")
    ] = None
    pruned: Annotated[tuple[str, ...], doc("Calls whose output is no longer sent.")] = ()
    usage: Annotated[Usage, doc("What the summary used.")] = Usage()
    cost: UsdCost = None


class HistoryReverted(Body, frozen=True, tag="history_reverted"):
    """History and files were taken back to before a turn or a step, or a revert was undone."""

    to_seq: Annotated[int, doc("For a revert: history is as it was at this event.")]
    undone: Annotated[bool, doc("The last revert was undone: its history is back.")] = False
    conflicts: Annotated[
        tuple[str, ...], doc("Files that something else has changed; left as they are.")
    ] = ()
    before_turn: Annotated[str, doc("The turn that was undone; empty if `undone`.")] = ""
    before_step: Annotated[int, doc("The first step that was undone; 0: the whole turn.")] = 0


class WarningRaised(Body, frozen=True, tag="warning"):
    """Something that the user should know; work goes on."""

    code: Annotated[str, doc("What happened, for programs.")]
    message: Annotated[str, doc("Sentences for people.")]
    fatal: Annotated[bool, doc("Always false.")] = False


class ErrorRaised(Body, frozen=True, tag="error"):
    """Something failed."""

    code: Annotated[str, doc("What happened, for programs.")]
    message: Annotated[str, doc("Sentences for people.")]
    fatal: Annotated[bool, doc("The session can't go on without help.")] = False


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
    """One numbered event of a session."""

    seq: Annotated[int, doc("Counts from 1 within the session, without gaps.")]
    session_id: Annotated[str, doc("The session.")]
    time: Annotated[float, doc("Unix seconds.")]
    body: Annotated[AnyBody, doc("What happened.")]
    turn_id: Annotated[str | None, doc("The turn it belongs to, if any.")] = None
    submission_id: Annotated[str | None, doc("The submission that caused it, if any.")] = None


LIFECYCLE_TOPIC = "daemon"
"""Topic under which the life-cycle events of all sessions are published as well."""

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
