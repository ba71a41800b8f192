"""The rules for the order of events in one session.

A session's log is one sequence that begins with `session_created`. At most one turn is open at a
time: `turn_started` opens it, `turn_ended` closes it. Steps are open only inside a turn, one at a
time. An item starts once and completes once, with its deltas and call updates in between. A tool
call reports its final state with `tool_call_updated` and then completes. A request opens once and
is resolved once, inside its turn. When a turn ends, none of its steps, items or requests is open.
Events about the session itself (`queue_changed`, `session_titled` …) may happen at any time.

`PRECONDITIONS` lists the conditions for each event; `advance` checks and applies one event. The
daemon's tests and simulation check its log this way; a frontend can do so at any time.
"""

from dataclasses import dataclass, field

from tiller_protocol.events import (
    AnyBody,
    Event,
    HistoryReverted,
    ItemCompleted,
    ItemDelta,
    ItemStarted,
    RequestOpened,
    RequestResolved,
    SessionCreated,
    StepEnded,
    StepStarted,
    ToolCallUpdated,
    TurnEnded,
    TurnStarted,
)


class LifecycleViolation(ValueError):
    """An event came at a point where the life cycle does not allow it."""


@dataclass
class LifecycleState:
    """The open turn, step, items and requests of a session after the events so far."""

    seq: int = 0
    """The `seq` of the last event; 0 before the first event."""
    turn_id: str | None = None
    """The id of the open turn, if any."""
    step: int = 0
    """The latest step of the turn, counted from 1; 0 before the first step."""
    step_open: bool = False
    """Whether the latest step has not ended yet."""
    open_items: set[str] = field(default_factory=set[str])
    """Ids of items that have started and not completed."""
    open_requests: set[str] = field(default_factory=set[str])
    """Ids of requests that wait for an answer."""
    used_ids: set[str] = field(default_factory=set[str])
    """The ids of all turns, items and requests so far; none can be used again."""


PRECONDITIONS: dict[type[AnyBody], tuple[str, ...]] = {
    TurnStarted: ("no_turn", "new_turn_id"),
    TurnEnded: ("in_turn", "no_step", "no_open_items", "no_open_requests"),
    StepStarted: ("in_turn", "no_step", "next_step", "no_open_items"),
    StepEnded: ("in_turn", "in_step", "same_step", "no_open_items"),
    ItemStarted: ("new_item",),
    ItemDelta: ("open_item",),
    ItemCompleted: ("open_item",),
    ToolCallUpdated: ("open_item",),
    RequestOpened: ("in_turn", "new_request"),
    RequestResolved: ("open_request",),
    HistoryReverted: ("no_turn",),
}
"""Conditions by event; other events may come at any time after the first event."""


def advance(state: LifecycleState, event: Event) -> None:
    """Check one event, then update `state` in place; raises `LifecycleViolation`."""
    if event.seq != state.seq + 1:
        raise LifecycleViolation(f"seq {event.seq} after {state.seq}")
    if (event.seq == 1) != isinstance(event.body, SessionCreated):
        raise LifecycleViolation("the first event, and no other, must be session_created")
    for condition in PRECONDITIONS.get(type(event.body), ()):
        if not _is_met(condition, state, event):
            name = type(event.body).__name__
            raise LifecycleViolation(f"event {event.seq} ({name}) violates {condition}: {state}")
    _move(state, event)
    state.seq = event.seq


def _is_met(condition: str, state: LifecycleState, event: Event) -> bool:
    subject = _subject(event.body)
    match condition:
        case "no_turn":
            return state.turn_id is None
        case "new_turn_id":
            return event.turn_id is not None and event.turn_id not in state.used_ids
        case "in_turn":
            return state.turn_id is not None and event.turn_id == state.turn_id
        case "no_step":
            return not state.step_open
        case "in_step":
            return state.step_open
        case "next_step":
            return isinstance(event.body, StepStarted) and event.body.step == state.step + 1
        case "same_step":
            return isinstance(event.body, StepEnded) and event.body.step == state.step
        case "no_open_items":
            return not state.open_items
        case "no_open_requests":
            return not state.open_requests
        case "new_item" | "new_request":
            return subject not in state.used_ids
        case "open_item":
            return subject in state.open_items
        case "open_request":
            return subject in state.open_requests
        case _:
            raise AssertionError(f"unknown precondition {condition}")


def _subject(body: AnyBody) -> str:
    """The id of the item or request that an event is about; empty for other events."""
    match body:
        case ItemStarted() | ItemCompleted():
            return body.item.id
        case ItemDelta() | ToolCallUpdated():
            return body.item_id
        case RequestOpened():
            return body.request.id
        case RequestResolved():
            return body.request_id
        case _:
            return ""


def _move(state: LifecycleState, event: Event) -> None:
    body, subject = event.body, _subject(event.body)
    match body:
        case TurnStarted():
            state.turn_id, state.step = event.turn_id, 0
            state.used_ids.add(event.turn_id or "")
        case TurnEnded():
            state.turn_id = None
        case StepStarted():
            state.step, state.step_open = body.step, True
        case StepEnded():
            state.step_open = False
        case ItemStarted():
            state.open_items.add(subject)
            state.used_ids.add(subject)
        case ItemCompleted():
            state.open_items.discard(subject)
        case RequestOpened():
            state.open_requests.add(subject)
            state.used_ids.add(subject)
        case RequestResolved():
            state.open_requests.discard(subject)
        case _:
            pass
