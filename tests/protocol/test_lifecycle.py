"""The life cycle: legal sessions pass, and every violation is detected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from protocol.histories import CONTEXT, USAGE, tell_session
from support.each import each
from tiller_protocol.events import (
    AnyBody,
    Event,
    ItemCompleted,
    ItemDelta,
    ItemStarted,
    RequestOpened,
    RequestResolved,
    SessionCreated,
    SessionTitled,
    StepEnded,
    StepStarted,
    ToolCallUpdated,
    TurnEnded,
    TurnStarted,
)
from tiller_protocol.ids import ItemId
from tiller_protocol.items import AssistantMessage, Request
from tiller_protocol.lifecycle import LifecycleState, LifecycleViolation, advance
from tiller_protocol.settings import Settings

SEEDS = st.integers(0, 2**32)
BEGIN: tuple[AnyBody, ...] = (SessionCreated("/w", Settings()),)
TURN = (*BEGIN, TurnStarted(CONTEXT))
STEP = (*TURN, StepStarted(1))
ITEM = ItemStarted(AssistantMessage(ItemId("i"), "", "streaming"))
DONE = ItemCompleted(AssistantMessage(ItemId("i"), "hi", "completed"))
REQUEST = RequestOpened(Request("r", "approval", "may I?"))
ENDED = TurnEnded("completed", 1, USAGE, 1.0)


def check(events: list[Event]) -> LifecycleState:
    state = LifecycleState()
    for event in events:
        advance(state, event)
    return state


def play(bodies: tuple[AnyBody, ...], turn_id: str = "t") -> LifecycleState:
    return check([Event(seq, "s", 0.0, body, turn_id) for seq, body in enumerate(bodies, 1)])


@given(SEEDS)
def test_a_legal_session_is_accepted(seed):
    assert check(tell_session(seed, 60)).seq >= 60


@given(SEEDS, st.data())
@pytest.mark.promise("G2")
def test_a_missing_a_doubled_or_a_swapped_event_is_found(seed, data):
    events = tell_session(seed, 40)
    at = data.draw(st.integers(0, len(events) - 2))
    change = data.draw(st.sampled_from(["drop", "double", "swap"]))
    if change == "drop":
        broken = [*events[:at], *events[at + 1 :]]
    elif change == "double":
        broken = [*events[: at + 1], *events[at:]]
    else:
        broken = [*events[:at], events[at + 1], events[at], *events[at + 2 :]]
    with pytest.raises(LifecycleViolation):
        check(broken)


@given(SEEDS, st.data())
@pytest.mark.promise("G7")
def test_an_ending_left_out_is_found_at_the_latest_with_the_turn(seed, data):
    endings = (StepEnded, ItemCompleted, RequestResolved)
    events = tell_session(seed, 80)
    turns = [event.seq for event in events if isinstance(event.body, TurnEnded)]
    inside = [
        event
        for event in events
        if isinstance(event.body, endings) and turns and event.turn_id and event.seq < turns[-1]
    ]
    if not inside:
        return
    left_out = data.draw(st.sampled_from(inside))
    others = [event for event in events if event is not left_out]
    with pytest.raises(LifecycleViolation):
        check([structs.replace(event, seq=seq) for seq, event in enumerate(others, 1)])


@each(
    ("before", "wrong"),
    [
        ((), SessionTitled("t")),
        ((), TurnStarted(CONTEXT)),
        (BEGIN, BEGIN[0]),
        (TURN, TurnStarted(CONTEXT)),
        ((*TURN, ENDED), TurnStarted(CONTEXT)),
        (BEGIN, ENDED),
        (STEP, ENDED),
        ((*TURN, ITEM), ENDED),
        ((*TURN, REQUEST), ENDED),
        (BEGIN, StepStarted(1)),
        (STEP, StepStarted(2)),
        (TURN, StepStarted(2)),
        ((*TURN, ITEM), StepStarted(1)),
        (TURN, StepEnded(1, "stop", USAGE)),
        (STEP, StepEnded(2, "stop", USAGE)),
        ((*STEP, ITEM), StepEnded(1, "stop", USAGE)),
        ((*STEP, ITEM), ITEM),
        ((*STEP, ITEM, DONE), ITEM),
        (STEP, DONE),
        ((*STEP, ITEM, DONE), DONE),
        (STEP, ItemDelta("i", "text", "x")),
        ((*STEP, ITEM, DONE), ItemDelta("i", "text", "x")),
        (STEP, ToolCallUpdated("i", "running")),
        (BEGIN, REQUEST),
        ((*TURN, REQUEST), REQUEST),
        ((*TURN, REQUEST, RequestResolved("r", "once")), REQUEST),
        (TURN, RequestResolved("r", "once")),
        ((*TURN, REQUEST, RequestResolved("r", "once")), RequestResolved("r", "reject")),
    ],
)
def test_each_violation_is_found_and_changes_nothing(before, wrong):
    state = play(before)
    kept = structs_of(state)
    with pytest.raises(LifecycleViolation):
        advance(state, Event(state.seq + 1, "s", 0.0, wrong, "t"))
    assert structs_of(state) == kept


def structs_of(state: LifecycleState) -> tuple[object, ...]:
    return (state.seq, state.turn_id, state.step, state.step_open, *map(sorted, _sets(state)))


def _sets(state: LifecycleState) -> tuple[set[str], set[str], set[str]]:
    return state.open_items, state.open_requests, state.used_ids


def test_an_ending_names_its_own_turn():
    state = play(TURN)
    with pytest.raises(LifecycleViolation):
        advance(state, Event(3, "s", 0.0, ENDED, "another"))
