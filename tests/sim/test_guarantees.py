"""G1 to G11 as properties of random programs; each program is judged by every test.

What is said here holds for each session of a program whatever frontends, model, log and kills do.
"""

from collections import Counter

from msgspec import structs

from sim.batches import Batch, must_end, of_every_program
from sim.oracle import Mailbox, mailbox_of, messages_of
from sim.player import Seen, SessionSeen
from sim.states import turns_of
from support.wires import check_on_every_wire
from tiller_protocol.answers import Accepted, AnyAnswer, Queued, Rejected, Started, Steered
from tiller_protocol.events import (
    AnyBody,
    ItemStarted,
    RequestOpened,
    RequestResolved,
    SessionCreated,
    StatusChanged,
    StepStarted,
    ToolCallUpdated,
    TurnEnded,
    TurnStarted,
)
from tiller_protocol.items import ToolCall, UserMessage
from tiller_protocol.lifecycle import LifecycleState, advance
from tiller_protocol.ops import (
    Answer,
    Interrupt,
    QueueEdit,
    Replay,
    SessionGet,
    UserInput,
)
from tiller_protocol.snapshot import Snapshot, fold, fork_base

PASSING = ("overloaded", "unavailable", "shutting_down")
"""Answers that say nothing about the op: sent again, it may have its effect."""


def test_every_program_ends_with_all_sessions_at_rest(batch: Batch) -> None:
    for played in batch.played:
        must_end(played)


@of_every_program
def test_g1_log_first_nothing_is_published_before_it_is_committed(seen: Seen) -> None:
    assert seen.published_too_early == []
    for session in seen.sessions.values():
        for event in session.published:
            assert session.log[event.seq - 1] == event


@of_every_program
def test_g2_gap_free_every_frontend_sees_all_events_once_in_order(seen: Seen) -> None:
    for session in seen.sessions.values():
        assert [event.seq for event in session.log] == list(range(1, len(session.log) + 1))
        for after, delivered in session.followers:
            assert delivered == session.log[after:]


@of_every_program
def test_g3_submit_once_a_resend_gets_the_same_answer_and_no_second_effect(seen: Seen) -> None:
    for submission_id, answers in seen.answers.items():
        if not isinstance(seen.ops[submission_id], SessionGet | Replay):
            lasting = _lasting(answers)
            assert all(answer == lasting[0] for answer in lasting), submission_id
    for session in seen.sessions.values():
        effects = Counter((e.submission_id, _what(e.body)) for e in session.log if e.submission_id)
        assert max(effects.values()) == 1, effects.most_common(1)


@of_every_program
def test_g3_submit_once_what_is_accepted_is_in_the_log_and_what_is_rejected_is_not(
    seen: Seen,
) -> None:
    sessions = seen.sessions.values()
    had_effect = {event.submission_id for session in sessions for event in session.log}
    for submission_id, answers in seen.answers.items():
        op, lasting = seen.ops[submission_id], _lasting(answers)
        if isinstance(op, SessionGet | Replay | Interrupt | Answer):
            continue
        accepted = bool(lasting) and isinstance(lasting[0], Accepted)
        assert (submission_id in had_effect) == accepted, (op, answers)


@of_every_program
def test_g4_valid_history_every_request_is_valid_in_the_providers_dialect(seen: Seen) -> None:
    for request in seen.requests:
        for item in request.items:
            if isinstance(item, ToolCall):
                assert item.state in ("completed", "error")
        check_on_every_wire(request)


@of_every_program
def test_g5_one_turn_a_session_has_at_most_one_active_turn(seen: Seen) -> None:
    for session in seen.sessions.values():
        active = 0
        for event in session.log:
            active += isinstance(event.body, TurnStarted)
            active -= isinstance(event.body, TurnEnded)
            assert active in (0, 1)


@of_every_program
def test_g6_frozen_context_a_turn_sees_one_configuration(seen: Seen) -> None:
    requests = {(r.session_id, r.ordinal): r for r in seen.requests if r.purpose == "turn"}
    for session in seen.sessions.values():
        ordinal = _steps_shared(session, seen)
        for turn in turns_of(session.log):
            started = turn[0].body
            assert isinstance(started, TurnStarted)
            steps = [event for event in turn if isinstance(event.body, StepStarted)]
            assert len(steps) <= started.context.max_steps
            for _ in steps:
                request = requests.get((session.session_id, ordinal))
                ordinal += 1
                if request is not None:
                    names = tuple(tool.name for tool in request.tools)
                    assert request.system == started.context.system_prompt
                    assert names in ((), started.context.tools)


@of_every_program
def test_g7_one_ending_for_each_turn_step_item_and_request(seen: Seen) -> None:
    for session in seen.sessions.values():
        state = LifecycleState()
        for event in session.log:
            advance(state, event)
        assert state.turn_id is None
        assert not state.open_items
        assert not state.open_requests


@of_every_program
def test_g8_no_survivors_when_turn_ended_is_published(seen: Seen) -> None:
    assert seen.alive_at_turn_end == []


@of_every_program
def test_g9_lock_writes_run_alone_and_results_come_in_call_order(seen: Seen) -> None:
    for span in seen.spans:
        for other in seen.spans:
            if span.effect == "write" and span.session_id == other.session_id and span != other:
                assert span.ended < other.began or other.ended < span.began, (span, other)
    for request in seen.requests:
        order = _order_of_items(seen, request.session_id)
        # What a killed daemon had not committed yet may be in a request and is not in the log.
        calls = [item.id for item in request.items if isinstance(item, ToolCall)]
        places = [order.index(item_id) for item_id in calls if item_id in order]
        assert places == sorted(places)


@of_every_program
def test_g10_steering_is_delivered_or_handed_back_and_never_twice(seen: Seen) -> None:
    """Every queue of every session is what a plain model of it says; see `oracle`."""
    for session in seen.sessions.values():
        shared = _beginning(session, seen)
        mailbox = mailbox_of(session.log, session.commits, seen.ops, shared)
        assert messages_of(session.snapshot.items) == mailbox.history
        shown = [(given.id, given.text, given.delivery) for given in session.snapshot.queue]
        assert shown == mailbox.queue
        there = [*mailbox.delivered, *mailbox.queue]
        where = Counter([given.id for given in there] + mailbox.removed)
        assert max(where.values(), default=1) == 1, "an input is in two places"
        for submission_id, answers in seen.answers.items():
            op = seen.ops[submission_id]
            if isinstance(op, UserInput) and op.session_id == session.session_id:
                _check_input(op, _lasting(answers), mailbox, mailbox.ids.get(submission_id))


@of_every_program
def test_g10_an_accepted_text_is_in_history_or_in_the_queue_once(seen: Seen) -> None:
    """As above by the words alone, which are one of a kind for each submission."""
    there: Counter[str] = Counter()
    edited = {op.input_id for op in seen.ops.values() if isinstance(op, QueueEdit)}
    for session in seen.sessions.values():
        started = [e.body.item for e in session.log if isinstance(e.body, ItemStarted)]
        given = [item for item in started if isinstance(item, UserMessage)]
        there.update(one.text for one in [*given, *session.snapshot.queue])
    for submission_id, answers in seen.answers.items():
        op, lasting = seen.ops[submission_id], _lasting(answers)
        if isinstance(op, UserInput) and not edited:
            accepted = bool(lasting) and isinstance(lasting[0], Accepted)
            assert there[op.text] == accepted, op


@of_every_program
def test_g10_steering_for_no_turn_is_handed_back_in_the_answer(seen: Seen) -> None:
    for submission_id, answers in seen.answers.items():
        for answer in answers:
            if isinstance(answer, Rejected) and answer.code in ("no_active_turn", "overloaded"):
                op = seen.ops[submission_id]
                if isinstance(op, UserInput):
                    assert answer.data["input"]["text"] == op.text


@of_every_program
def test_g11_recovery_a_rebuilt_session_is_the_same(seen: Seen) -> None:
    for session in seen.sessions.values():
        assert structs.asdict(session.rebuilt) == structs.asdict(session.snapshot)
        assert _folded(session, seen) == session.snapshot


@of_every_program
def test_g11_recovery_no_side_effect_is_repeated_and_each_is_announced(seen: Seen) -> None:
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
def test_a_session_rests_idle_and_every_request_was_resolved_once(seen: Seen) -> None:
    for session in seen.sessions.values():
        bodies = [event.body for event in session.log]
        resolved = Counter(b.request_id for b in bodies if isinstance(b, RequestResolved))
        opened = [body.request.id for body in bodies if isinstance(body, RequestOpened)]
        assert all(resolved[request_id] == 1 for request_id in opened)
        assert set(resolved) == set(opened)
        status = [body.status for body in bodies if isinstance(body, StatusChanged)]
        assert not status or status[-1] == "idle"


@of_every_program
def test_the_status_says_what_the_session_does_after_each_commit(seen: Seen) -> None:
    for session in seen.sessions.values():
        snapshot, commits = _beginning(session, seen), set(session.commits)
        for event in session.log:
            fold(snapshot, event)
            if event.seq in commits:
                assert (snapshot.status == "idle") == (snapshot.turn is None), event
                assert (snapshot.status == "waiting") == bool(snapshot.requests), event


def _lasting(answers: list[AnyAnswer]) -> list[AnyAnswer]:
    return [a for a in answers if isinstance(a, Accepted) or a.code not in PASSING]


def _what(body: AnyBody) -> str:
    return type(body).__name__


def _steps_shared(session: SessionSeen, seen: Seen) -> int:
    """How many steps a fork has of its parent."""
    return _beginning(session, seen).steps


def _order_of_items(seen: Seen, session_id: str) -> list[str]:
    session = seen.sessions[session_id]
    begun = [e.body.item.id for e in session.log if isinstance(e.body, ItemStarted)]
    return [item.id for item in _beginning(session, seen).items] + begun


def _folded(session: SessionSeen, seen: Seen) -> Snapshot:
    snapshot = _beginning(session, seen)
    for event in session.log:
        fold(snapshot, event)
    return snapshot


def _beginning(session: SessionSeen, seen: Seen) -> Snapshot:
    """An empty snapshot, or what a fork shares with its parent."""
    created = session.log[0].body
    assert isinstance(created, SessionCreated)
    if created.parent_id is None:
        return Snapshot(session.session_id)
    parent = seen.sessions[created.parent_id]
    shared = _beginning(parent, seen)
    for event in parent.log[: created.parent_seq]:
        fold(shared, event)
    return fork_base(shared, session.session_id)


def _check_input(
    op: UserInput, lasting: list[AnyAnswer], mailbox: Mailbox, input_id: str | None
) -> None:
    """Accepted input was told under which id, and is in one place; other input is nowhere."""
    if not lasting or isinstance(lasting[0], Rejected):
        assert input_id is None, op
        return
    assert input_id is not None, f"accepted and lost: {op}"
    match lasting[0].result:
        case Steered(input_id=told) | Queued(input_id=told):
            assert told == input_id
        case Started():
            assert input_id in [given.id for given in mailbox.delivered]
        case result:
            assert result is None
            assert op.no_reply


CHECKS = tuple(
    vars(value)["check"] for value in list(globals().values()) if hasattr(value, "check")
)
"""All of these, to judge other programs by."""
