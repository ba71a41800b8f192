"""G1, G2, G3, G5, G7, G8 and G11 as properties of random programs; each is judged by every test.

What is said here holds for each session of a program whatever frontends, model, log and kills do.
"""

from collections import Counter

import pytest
from msgspec import structs

from sim.batches import Batch, must_end, of_every_program
from sim.player import Seen, SessionSeen
from sim.sessions import beginning, lasting_answers
from tiller_daemon.turn.closing import LOG_FAILED
from tiller_protocol.answers import Accepted, Rejected
from tiller_protocol.codec import decode_event
from tiller_protocol.events import (
    AnyBody,
    ErrorRaised,
    ItemDelta,
    ItemStarted,
    RequestOpened,
    RequestResolved,
    StatusChanged,
    StepStarted,
    ToolCallUpdated,
    TurnEnded,
    TurnStarted,
)
from tiller_protocol.fold import fold
from tiller_protocol.items import AssistantMessage, Reasoning
from tiller_protocol.lifecycle import LifecycleState, advance
from tiller_protocol.ops import (
    Answer,
    Interrupt,
    Replay,
    SessionGet,
    SessionMarkSeen,
)
from tiller_protocol.snapshot import Snapshot, note_items


def test_every_program_ends_with_all_sessions_at_rest(batch: Batch) -> None:
    for played in batch.played:
        must_end(played)


@of_every_program
@pytest.mark.promise("G1")
def test_log_first_nothing_is_published_before_it_is_committed(seen: Seen) -> None:
    assert seen.published_too_early == []
    for session in seen.sessions.values():
        for event in session.published:
            assert session.log[event.seq - 1] == event


@of_every_program
@pytest.mark.promise("G1")
def test_log_first_a_power_failure_loses_nothing_but_the_end_of_a_stream(seen: Seen) -> None:
    """It loses commits that were not synced. After any other commit, all before it is safe."""
    for batch in seen.store.unsynced:
        assert batch.submission is None
        for event in map(decode_event, (row.body for row in batch.events)):
            match event.body:
                case ItemDelta() | StepStarted():
                    pass
                case ItemStarted(item=AssistantMessage() | Reasoning()):
                    pass
                case body:
                    raise AssertionError(f"{body} could be lost")


@of_every_program
@pytest.mark.promise("G2")
def test_gap_free_every_frontend_sees_all_events_once_in_order(seen: Seen) -> None:
    for session in seen.sessions.values():
        assert [event.seq for event in session.log] == list(range(1, len(session.log) + 1))
        for after, delivered in session.followers:
            assert delivered == session.log[after:]


@of_every_program
@pytest.mark.promise("G3")
def test_submit_once_a_resend_gets_the_same_answer_and_no_second_effect(seen: Seen) -> None:
    for submission_id, answers in seen.answers.items():
        if not isinstance(seen.ops[submission_id], SessionGet | Replay):
            lasting = lasting_answers(answers)
            assert all(answer == lasting[0] for answer in lasting), submission_id
    for session in seen.sessions.values():
        effects = Counter((e.submission_id, _what(e.body)) for e in session.log if e.submission_id)
        assert max(effects.values()) == 1, effects.most_common(1)


@of_every_program
@pytest.mark.promise("G3")
def test_submit_once_what_is_accepted_is_in_the_log_and_what_is_rejected_is_not(
    seen: Seen,
) -> None:
    sessions = seen.sessions.values()
    had_effect = {event.submission_id for session in sessions for event in session.log}
    for submission_id, answers in seen.answers.items():
        op, lasting = seen.ops[submission_id], lasting_answers(answers)
        if isinstance(op, SessionGet | Replay | Interrupt | Answer | SessionMarkSeen):
            continue
        accepted = bool(lasting) and isinstance(lasting[0], Accepted)
        assert (submission_id in had_effect) == accepted, (op, answers)


@of_every_program
@pytest.mark.promise("G5")
def test_one_turn_a_session_has_at_most_one_active_turn(seen: Seen) -> None:
    for session in seen.sessions.values():
        active = 0
        for event in session.log:
            active += isinstance(event.body, TurnStarted)
            active -= isinstance(event.body, TurnEnded)
            assert active in (0, 1)


@of_every_program
@pytest.mark.promise("G7")
def test_one_ending_for_each_turn_step_item_and_request(seen: Seen) -> None:
    for session in seen.sessions.values():
        state = LifecycleState()
        for event in session.log:
            advance(state, event)
        assert state.turn_id is None
        assert not state.open_items
        assert not state.open_requests


@of_every_program
@pytest.mark.promise("G8")
def test_no_survivors_when_turn_ended_is_published(seen: Seen) -> None:
    assert seen.alive_at_turn_end == []


@of_every_program
@pytest.mark.promise("G11")
def test_recovery_a_rebuilt_session_is_the_same(seen: Seen) -> None:
    for session in seen.sessions.values():
        assert structs.asdict(session.rebuilt) == structs.asdict(session.snapshot)
        assert _folded(session, seen) == session.snapshot


@of_every_program
@pytest.mark.promise("G11")
def test_recovery_no_side_effect_is_repeated_and_each_is_announced(seen: Seen) -> None:
    assert max(Counter(seen.begun).values(), default=0) <= 1
    announced = {
        event.body.item_id: event.seq
        for session in seen.sessions.values()
        for event in session.log
        if isinstance(event.body, ToolCallUpdated) and event.body.state == "running"
    }
    for span in seen.spans:
        if span.effect == "write":
            assert announced[span.call_id] <= span.head, f"{span} began before the log said so"


@of_every_program
def test_nothing_is_answered_or_ended_by_a_defect(seen: Seen) -> None:
    assert [line for line in seen.defects if line["event"] != "tool_crashed"] == []
    answers = [answer for several in seen.answers.values() for answer in several]
    assert not [a for a in answers if isinstance(a, Rejected) and a.code == "internal"]
    for session in seen.sessions.values():
        errors = [e.body.error for e in session.log if isinstance(e.body, TurnEnded)]
        assert not [error for error in errors if error and error.code == "internal"]


@of_every_program
def test_each_turn_that_failed_has_told_its_error_once_and_no_other_turn_has(seen: Seen) -> None:
    for session in seen.sessions.values():
        told: list[tuple[str, str]] = []
        for event in session.log:
            match event.body:
                case TurnStarted():
                    told.clear()
                case ErrorRaised() as raised if event.turn_id:
                    told.append((raised.code, raised.message))
                case TurnEnded() as ended:
                    error = ended.error
                    fails = error and (ended.outcome == "failed" or error.code == LOG_FAILED)
                    assert told == ([(error.code, error.message)] if error and fails else [])
                case _:
                    pass


@of_every_program
def test_a_session_rests_idle_and_every_request_was_resolved_once(seen: Seen) -> None:
    for session in seen.sessions.values():
        bodies = [event.body for event in session.log]
        resolved = Counter(b.request_id for b in bodies if isinstance(b, RequestResolved))
        opened = [body.request.id for body in bodies if isinstance(body, RequestOpened)]
        assert all(resolved[request_id] == 1 for request_id in opened)
        assert set(resolved) == set(opened)
        status = [body.status for body in bodies if isinstance(body, StatusChanged)]
        assert not status or status[-1] == "idle"
        states = {getattr(item, "state", "completed") for item in session.snapshot.items}
        assert states <= {"completed", "interrupted", "discarded", "error"}


@of_every_program
def test_the_status_says_what_the_session_does_after_each_commit(seen: Seen) -> None:
    for session in seen.sessions.values():
        snapshot, commits = beginning(session, seen), set(session.commits)
        for event in session.log:
            fold(snapshot, event)
            if event.seq in commits:
                assert (snapshot.status == "idle") == (snapshot.turn is None), event
                assert (snapshot.status == "waiting") == bool(snapshot.requests), event


@of_every_program
def test_a_list_counts_what_the_items_in_history_say(seen: Seen) -> None:
    for session in seen.sessions.values():
        snapshot = _folded(session, seen)
        again = structs.replace(snapshot)
        note_items(again)
        assert again == snapshot


def _what(body: AnyBody) -> str:
    return type(body).__name__


def _folded(session: SessionSeen, seen: Seen) -> Snapshot:
    snapshot = beginning(session, seen)
    for event in session.log:
        fold(snapshot, event)
    return snapshot
