"""Closes a turn: computes the events that end it and everything in it that is still open. Pure.

The same function closes a turn that completed, was interrupted, failed, crashed, or was found
unfinished in the log after the daemon was killed. It reads only the snapshot, which has every open
item, request and step, and the output so far of running calls.
"""

from collections.abc import Callable

from msgspec import structs

from tiller_daemon.turn.changed_files import changed_files
from tiller_daemon.turn.context import Ending
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.events import (
    AnyBody,
    ErrorRaised,
    ItemCompleted,
    ItemStarted,
    RequestResolved,
    StepEnded,
    ToolCallUpdated,
    TurnEnded,
)
from tiller_protocol.ids import ItemId
from tiller_protocol.items import (
    AssistantMessage,
    Item,
    Notice,
    Patch,
    Reasoning,
    ToolCall,
    ToolErrorKind,
    Usage,
)
from tiller_protocol.snapshot import Snapshot, find_mark
from tiller_protocol.turns import RESUMED, OpenTurn, add_cost

INTERRUPTED_NOTICE = (
    "This turn was interrupted. Commands that were running were stopped and may have done part of "
    "their work. Check before you rely on anything, and follow the user's next message."
)
CUT_OFF_NOTICE = (
    "{cause} during this turn. Calls without a result may have done all, part or none of their "
    "work and were not repeated. Check before you rely on anything."
)
LOST_OUTPUT = (
    "{cause} while this call was running. It may have done all, part or none of its work, and was "
    "not repeated."
)
RESUMED_NOTICE = (
    "The daemon stopped during this turn and has restarted. Continue what you were doing. Calls "
    "without a result may have done all, part or none of their work and were not repeated. "
    "Background commands were ended. Check before you rely on anything."
)
RESUMABLE = "\nThe sub-agent's session is {session_id}. To continue from there, `resume` it."
PARTIAL_OUTPUT_CHARS_MAX = 48_000
"""How many characters from the end of an unfinished call's output the model gets; these are about
12,000 tokens."""

DAEMON_STOPPED = ErrorInfo(
    "daemon_stopped", "The daemon stopped during this turn. Continue the turn, or send a message."
)

LOG_FAILED = "store"
"""Code of the error for a log that could not be written."""


def cause_of(reason: ErrorInfo | None) -> str:
    """Return the beginning of a sentence that says why work was cut off; by default, by a stop."""
    if reason and reason.code == LOG_FAILED:
        return "The daemon could not write its log"
    return "The daemon stopped"


FATAL = frozenset({"authentication", "quota", "not_found", "bad_request", "context_full"})
"""Codes of errors that would also end the next turn, unless the user changes something first."""


def closing_bodies(
    snapshot: Snapshot,
    ending: Ending,
    now: float,
    new_id: Callable[[], str],
    *,
    step_usage: Usage = Usage(),  # noqa: B008 - frozen
    cost: float | None = None,
    lost: bool = False,
    unrecorded: bool = False,
    branch: str = "",
) -> tuple[AnyBody, ...]:
    """Return events that end the open turn of `snapshot`, `turn_ended` last; none without a turn.

    `now` is Unix seconds. `step_usage` is the usage of an open step's response as far as it is
    known, and `cost` its cost. `lost` is for a turn found in the log, where the fate of running
    calls is unknown. `unrecorded` says that the last step may have changed files that are not known
    yet. `branch` is the git branch that is checked out now.
    """
    turn = snapshot.turn
    if turn is None:
        return ()
    files, more_files = changed_files(_items_of_turn(snapshot, turn))
    more_files = more_files or unrecorded or (lost and _may_have_written(snapshot))
    lost_by = cause_of(ending.error) if lost else ""
    bodies = _errors(ending) + _close_requests_and_items(snapshot, now, new_id, lost_by)
    is_interrupted = ending.outcome == "interrupted"
    if turn.step_open:
        reason = "interrupted" if is_interrupted else "error"
        bodies.append(StepEnded(turn.step, reason, step_usage, cost))
    else:
        step_usage, cost = Usage(), None
    if is_interrupted:
        text = CUT_OFF_NOTICE.format(cause=lost_by) if lost else INTERRUPTED_NOTICE
        bodies += notice_events("interrupted", text, new_id())
    ended = TurnEnded(
        outcome=ending.outcome,
        steps=turn.steps_ended + turn.step_open,
        usage=turn.usage.plus(step_usage),
        duration_s=turn.worked_s(now),
        last_message=ending.last_message or turn.last_message,
        cost=add_cost(turn.cost, cost),
        error=ending.error,
        files=files,
        more_files=more_files,
        queued=len(snapshot.queue),
        context_tokens=snapshot.context_tokens,
        context_window=turn.context.context_window,
        branch=branch,
    )
    return (*bodies, ended)


def resuming_bodies(
    snapshot: Snapshot, now: float, new_id: Callable[[], str]
) -> tuple[AnyBody, ...]:
    """Return events after which an open turn found in the log can take its next step.

    The notice comes first, so that its time shows how long the daemon was down.
    """
    bodies = [*notice_events(RESUMED, RESUMED_NOTICE, new_id())]
    bodies += _close_requests_and_items(snapshot, now, new_id, cause_of(None))
    if snapshot.turn and snapshot.turn.step_open:
        bodies.append(StepEnded(snapshot.turn.step, "interrupted", Usage(), None))
    return tuple(bodies)


def notice_events(code: str, text: str, item_id: str) -> tuple[AnyBody, AnyBody]:
    """Return the events that put a notice into history."""
    notice = Notice(ItemId(item_id), code, text)
    return ItemStarted(notice), ItemCompleted(notice)


def _errors(ending: Ending) -> list[AnyBody]:
    """Return the event for an error; none for a turn that a user, a rule or a limit ended."""
    error = ending.error
    if error is None or (ending.outcome != "failed" and error.code != LOG_FAILED):
        return []
    return [ErrorRaised(error.code, error.message, error.code in FATAL)]


def _close_requests_and_items(
    snapshot: Snapshot, now: float, new_id: Callable[[], str], lost_by: str
) -> list[AnyBody]:
    """Return events that close open requests and items; `lost_by` says why running calls are lost.

    If it is empty, the calls are not lost but aborted.
    """
    bodies: list[AnyBody] = [RequestResolved(r.id, "cancelled") for r in snapshot.requests]
    for item in snapshot.items:
        if item.id in snapshot.open_items:
            bodies += _close_item(item, now, lost_by)
    if lost_by and _may_have_written(snapshot):
        # A patch without trees, as the changes of the step are unknown.
        patch = Patch(ItemId(new_id()), ())
        bodies += [ItemStarted(patch), ItemCompleted(patch)]
    return bodies


def _items_of_turn(snapshot: Snapshot, turn: OpenTurn) -> list[Item]:
    index = find_mark(snapshot, turn.turn_id, 0)
    return [] if index is None else snapshot.items[snapshot.marks[index].items :]


def _may_have_written(snapshot: Snapshot) -> bool:
    """Whether the last step began to write and has not recorded its changes."""
    last = snapshot.items[snapshot.marks[-1].items :]
    return any(
        isinstance(item, ToolCall) and item.effect == "write" and item.started_at for item in last
    ) and not any(isinstance(item, Patch) for item in last)


def _close_item(item: Item, now: float, lost_by: str) -> list[AnyBody]:
    match item:
        case AssistantMessage() | Reasoning():
            return [ItemCompleted(structs.replace(item, state="interrupted"))]
        case ToolCall():
            return _close_call(item, now, lost_by)
        case _:
            return [ItemCompleted(item)]


def _close_call(call: ToolCall, now: float, lost_by: str) -> list[AnyBody]:
    kind: ToolErrorKind
    if call.started_at is None:
        kind, output = "aborted", "aborted before it ran"
    elif lost_by:
        kind, output = "lost", LOST_OUTPUT.format(cause=lost_by)
    else:
        kind, output = "aborted", f"aborted after {max(0.0, now - call.started_at):.1f} s"
    if call.sub_agent:
        # The sub-agent's session stays, so the model can go on with it.
        output += RESUMABLE.format(session_id=call.sub_agent.session_id)
    if call.output:
        output += f"\nOutput so far:\n{call.output[-PARTIAL_OUTPUT_CHARS_MAX:]}"
    closed = structs.replace(
        call,
        state="error",
        error_kind=kind,
        output=output,
        duration_s=None if lost_by or call.started_at is None else max(0.0, now - call.started_at),
    )
    return [ToolCallUpdated(call.id, "error", kind), ItemCompleted(closed)]
