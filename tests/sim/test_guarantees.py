"""G1 to G11 as properties: random programs of several frontends against a random scripted model.

One run of a program is checked for every guarantee that it can break, so each test below draws its
own programs and names the guarantee it stands for. `TILLER_PROGRAMS` sets how many are drawn.
"""

import os
from collections import Counter

from hypothesis import HealthCheck, given, settings
from msgspec import structs

from sim.program import Program, Seen, play, programs
from support.dialect import check_chat_body
from tiller_daemon.models.openai_chat_request import build_body
from tiller_protocol.answers import Accepted, Queued, Started, Steered
from tiller_protocol.events import (
    ItemCompleted,
    RequestOpened,
    RequestResolved,
    StatusChanged,
    TurnEnded,
    TurnStarted,
)
from tiller_protocol.items import ToolCall, UserMessage
from tiller_protocol.lifecycle import LifecycleState, advance
from tiller_protocol.ops import UserInput
from tiller_protocol.snapshot import Snapshot, fold

PROGRAMS = int(os.environ.get("TILLER_PROGRAMS", "60"))

many = settings(
    max_examples=PROGRAMS,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@many
@given(programs())
def test_g1_log_first_nothing_is_published_before_it_is_committed(program: Program) -> None:
    seen = play(program)
    assert seen.published_too_early == []
    logged = {event.seq: event for event in seen.log}
    assert all(logged[event.seq] == event for event in seen.published)


@many
@given(programs())
def test_g2_gap_free_every_frontend_sees_all_events_once_in_order(program: Program) -> None:
    seen = play(program)
    assert [event.seq for event in seen.log] == list(range(1, len(seen.log) + 1))
    for delivered in seen.followers:
        assert delivered == seen.log


@many
@given(programs())
def test_g3_submit_once_a_resend_gets_the_same_answer_and_no_second_effect(
    program: Program,
) -> None:
    seen = play(program)
    for submission_id, answers in seen.answers.items():
        if isinstance(seen.ops[submission_id], UserInput):
            kept = [a for a in answers if not _passing(a)]
            assert all(a == kept[0] for a in kept), submission_id
    for text, count in _deliveries(seen).items():
        assert count == 1, text


@many
@given(programs())
def test_g4_valid_history_every_request_is_valid_in_the_providers_dialect(
    program: Program,
) -> None:
    seen = play(program)
    for request in seen.requests:
        for item in request.items:
            if isinstance(item, ToolCall):
                assert item.state in ("completed", "error")
        check_chat_body(build_body(request))


@many
@given(programs())
def test_g5_one_turn_a_session_has_at_most_one_active_turn(program: Program) -> None:
    active = 0
    for event in play(program).log:
        active += isinstance(event.body, TurnStarted)
        active -= isinstance(event.body, TurnEnded)
        assert active in (0, 1)


@many
@given(programs(kills=False))
def test_g6_frozen_context_a_turn_sees_one_configuration(program: Program) -> None:
    seen = play(program)
    allowed: dict[str, int] = {}
    steps: Counter[str] = Counter()
    for event in seen.log:
        if isinstance(event.body, TurnStarted):
            allowed[event.turn_id or ""] = event.body.context.max_steps
        if isinstance(event.body, TurnEnded):
            steps[event.turn_id or ""] = event.body.steps
    assert all(steps[turn] <= allowed[turn] for turn in steps)
    systems = {(r.session_id, r.system) for r in seen.requests}
    assert len(systems) <= 1


@many
@given(programs())
def test_g7_one_ending_for_each_turn_step_item_and_request(program: Program) -> None:
    state = LifecycleState()
    for event in play(program).log:
        advance(state, event)
    assert state.turn_id is None
    assert not state.open_items
    assert not state.open_requests


@many
@given(programs())
def test_g8_no_survivors_when_turn_ended_is_published(program: Program) -> None:
    assert play(program).alive_at_turn_end == []


@many
@given(programs(kills=False))
def test_g9_lock_writes_run_alone_and_results_come_in_call_order(program: Program) -> None:
    seen = play(program)
    for call_id, effect, began, ended in seen.spans:
        for other_id, _, other_began, other_ended in seen.spans:
            if call_id != other_id and effect == "write":
                assert ended <= other_began or other_ended <= began
    order = [e.body.item.id for e in seen.log if type(e.body).__name__ == "ItemStarted"]
    for request in seen.requests:
        places = [order.index(i.id) for i in request.items if isinstance(i, ToolCall)]
        assert places == sorted(places)


@many
@given(programs())
def test_g10_steering_is_delivered_or_handed_back_and_never_twice(program: Program) -> None:
    seen = play(program)
    deliveries = _deliveries(seen)
    for submission_id, op in seen.ops.items():
        for answer in seen.answers.get(submission_id, [])[:1]:
            if not isinstance(op, UserInput):
                continue
            if isinstance(answer, Accepted):
                assert op.no_reply or isinstance(answer.result, Started | Steered | Queued)
                assert deliveries[op.text] == 1
            elif answer.code == "no_active_turn":
                assert answer.data["input"]["text"] == op.text
                assert deliveries[op.text] == 0
            else:
                assert deliveries[op.text] == 0


@many
@given(programs())
def test_g11_recovery_a_rebuilt_session_is_the_same_and_nothing_runs_twice(
    program: Program,
) -> None:
    seen = play(program)
    assert seen.snapshot is not None
    assert seen.rebuilt is not None
    assert structs.asdict(seen.rebuilt) == structs.asdict(seen.snapshot)
    folded = Snapshot(seen.snapshot.session_id)
    for event in seen.log:
        fold(folded, event)
    assert folded == seen.snapshot
    assert max(Counter(seen.begun).values(), default=0) <= 1


@many
@given(programs())
def test_no_turn_is_ended_by_a_defect(program: Program) -> None:
    errors = [e.body.error for e in play(program).log if isinstance(e.body, TurnEnded)]
    assert not [error for error in errors if error and error.code == "internal"]


@many
@given(programs())
def test_a_session_rests_idle_and_every_request_was_resolved_once(program: Program) -> None:
    seen = play(program)
    resolved = Counter(e.body.request_id for e in seen.log if isinstance(e.body, RequestResolved))
    opened = [e.body.request.id for e in seen.log if isinstance(e.body, RequestOpened)]
    assert all(resolved[request_id] == 1 for request_id in opened)
    status = [e.body.status for e in seen.log if isinstance(e.body, StatusChanged)]
    assert not status or status[-1] == "idle"


def _deliveries(seen: Seen) -> Counter[str]:
    """How often each text is in history; nothing is queued any more when a program has ended."""
    counted: Counter[str] = Counter()
    for event in seen.log:
        if isinstance(event.body, ItemCompleted) and isinstance(event.body.item, UserMessage):
            counted[event.body.item.text] += 1
    return counted


def _passing(answer: object) -> bool:
    return getattr(answer, "code", "") in ("overloaded", "unavailable", "shutting_down")
