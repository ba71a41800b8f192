"""B37, G4, G6 and G9 as properties of random programs: what a model is sent, when its calls run."""

from collections.abc import Sequence

import pytest

from sim.batches import of_every_program
from sim.player import Seen, SessionSeen
from sim.program import HOSTED_OUTPUTS
from sim.sessions import beginning
from sim.states import turns_of
from support.wires import check_on_every_wire
from support.world import Span
from tiller_daemon.models.base import ModelRequest
from tiller_daemon.turn.history import for_request
from tiller_daemon.turn.hosted_calls import NO_RESULT
from tiller_protocol.events import (
    Event,
    ItemCompleted,
    ItemStarted,
    RequestOpened,
    RequestResolved,
    StepStarted,
    TurnEnded,
    TurnStarted,
)
from tiller_protocol.fold import fold
from tiller_protocol.ids import ItemId
from tiller_protocol.items import Item, Notice, ToolCall


@of_every_program
@pytest.mark.promise("G4")
def test_valid_history_every_request_is_valid_in_the_providers_dialect(seen: Seen) -> None:
    for request in seen.requests:
        for item in request.items:
            if isinstance(item, ToolCall):
                assert item.state in ("completed", "error")
        check_on_every_wire(request)


@of_every_program
@pytest.mark.promise("G4", "B44")
def test_what_a_model_is_sent_is_what_the_log_adds_up_to(seen: Seen) -> None:
    if seen.harms:
        return  # what was sent may then not have come into the log
    sent: dict[tuple[str, int], ModelRequest] = {}
    for request in seen.requests:
        if request.purpose == "turn":
            sent.setdefault((request.session_id, request.ordinal), request)
    for session in seen.sessions.values():
        snapshot = beginning(session, seen)
        for number, event in enumerate(session.log):
            fold(snapshot, event)
            if isinstance(event.body, StepStarted):
                request = sent.get((session.session_id, snapshot.steps - 1))
                items = [*snapshot.items, *_notice_behind(session.log[number + 1 :])]
                expected = for_request(items, frozenset(snapshot.pruned))
                assert request is None or request.items == expected, event


@of_every_program
@pytest.mark.promise("G6")
def test_frozen_context_a_turn_sees_one_configuration(seen: Seen) -> None:
    requests = {(r.session_id, r.ordinal): r for r in seen.requests if r.purpose == "turn"}
    for session in seen.sessions.values():
        ordinal = _steps_shared(session, seen)
        for turn in turns_of(session.log):
            started = turn[0].body
            assert isinstance(started, TurnStarted)
            steps = [event for event in turn if isinstance(event.body, StepStarted)]
            assert len(steps) <= started.context.max_steps
            for number, _ in enumerate(steps, 1):
                request = requests.get((session.session_id, ordinal))
                ordinal += 1
                if request is not None:
                    names = tuple(tool.name for tool in request.tools)
                    assert request.system == started.context.system_prompt
                    assert names in ((), started.context.tools)
                    assert number < started.context.max_steps or names == ()


@of_every_program
@pytest.mark.promise("G9")
def test_lock_writes_run_alone_and_results_come_in_call_order(seen: Seen) -> None:
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
@pytest.mark.promise("G9")
def test_lock_a_call_that_writes_comes_between_those_before_and_behind_it(seen: Seen) -> None:
    spans = {span.call_id: span for span in seen.spans}
    for session in seen.sessions.values():
        responses: dict[tuple[str | None, int], list[Span]] = {}
        for event in session.log:
            match event.body:
                case ItemStarted(item=ToolCall(id=call_id, ordinal=ordinal)) if call_id in spans:
                    responses.setdefault((event.turn_id, ordinal), []).append(spans[call_id])
                case _:
                    pass
        for calls in responses.values():
            for number, call in enumerate(calls):
                for behind in calls[number + 1 :]:
                    if "write" in (call.effect, behind.effect):
                        assert call.ended < behind.began, (call, behind)


@of_every_program
def test_calls_of_the_provider_are_shown_to_their_end_and_neither_run_nor_sent_as_calls(
    seen: Seen,
) -> None:
    for request in seen.requests:
        assert not [item for item in request.items if _is_hosted(item)]
    run = {span.call_id for span in seen.spans}
    for session in seen.sessions.values():
        asked = {e.body.request.item_id for e in session.log if isinstance(e.body, RequestOpened)}
        for event in session.log:
            match event.body:
                case ItemCompleted(item=ToolCall(by_provider=True) as call):
                    assert call.id not in run
                    assert call.id not in asked
                    _check_hosted(call)
                case _:
                    pass


@of_every_program
@pytest.mark.promise("B37")
def test_a_no_ends_the_turn_exactly_if_it_gives_no_reason(seen: Seen) -> None:
    for session in seen.sessions.values():
        for turn in turns_of(session.log):
            bodies = [event.body for event in turn]
            kinds = {b.request.id: b.request.kind for b in bodies if isinstance(b, RequestOpened)}
            ends = any(
                b.resolution == "reject" and not b.text and kinds[b.request_id] != "question"
                for b in bodies
                if isinstance(b, RequestResolved)
            )
            ended = bodies[-1]
            if isinstance(ended, TurnEnded):
                said_no = ended.error is not None and ended.error.code == "rejected"
                assert ends or not said_no, turn
                assert not ends or ended.outcome not in ("completed", "limit_reached"), turn


def _is_hosted(item: Item) -> bool:
    return isinstance(item, ToolCall) and item.by_provider


def _check_hosted(call: ToolCall) -> None:
    """It ended as the provider said, or as the response that it belongs to."""
    match call.error_kind:
        case None:
            assert (call.state, call.discarded) == ("completed", False)
            assert call.output in (HOSTED_OUTPUTS[call.name], NO_RESULT)
        case "failed":
            assert call.output == HOSTED_OUTPUTS[call.name]
        case "skipped":
            assert call.discarded, call
            assert call.output == "", call
        case kind:
            assert kind in ("aborted", "lost"), call
            assert HOSTED_OUTPUTS[call.name] not in call.output, "what had a result has lost it"


def _notice_behind(rest: Sequence[Event]) -> list[Item]:
    """The notice that a step is the last one; it is said when the step has begun."""
    for event in rest[:2]:
        match event.body:
            case ItemStarted(item=Notice(code="last_step") as notice):
                return [notice]
            case _:
                pass
    return []


def _steps_shared(session: SessionSeen, seen: Seen) -> int:
    """How many steps a fork has of its parent."""
    return beginning(session, seen).steps


def _order_of_items(seen: Seen, session_id: str) -> list[ItemId]:
    session = seen.sessions[session_id]
    begun = [e.body.item.id for e in session.log if isinstance(e.body, ItemStarted)]
    return [item.id for item in beginning(session, seen).items] + begun
