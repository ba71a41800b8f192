"""Behaviours of turns on a virtual clock, with the core in memory; e2e tests use sockets."""

from typing import Any

import pytest
import trio

from support.world import World
from tiller_daemon.models.scripted import CallPart, Failure, Script, ScriptStep, TextPart, WaitPart
from tiller_daemon.session.outbox import DELTA_WINDOW_S
from tiller_protocol.answers import Queued, Started, Steered
from tiller_protocol.events import (
    ItemCompleted,
    ItemDelta,
    ItemStarted,
    RequestOpened,
    RequestResolved,
    StepEnded,
    ToolCallUpdated,
    TurnStarted,
)
from tiller_protocol.items import Notice, ToolCall, UserMessage
from tiller_protocol.ops import Answer, Interrupt, QueueEdit, UserInput


def text(words: str, pieces: int = 1) -> ScriptStep:
    return ScriptStep(parts=(TextPart(words, pieces=pieces),))


def call(name: str, call_id: str = "", **arguments: object) -> CallPart:
    return CallPart(name, arguments=arguments, call_id=call_id)


def calls(*parts: CallPart) -> ScriptStep:
    return ScriptStep(parts=parts)


def tool_calls(world: World, number: int) -> list[ToolCall]:
    """The calls in the model request of that number."""
    return [i for i in world.model.requests[number].items if isinstance(i, ToolCall)]


def request_about(world: World, session_id: str, subject: str) -> str:
    """The id of the last request about `subject`."""
    opened = [
        e.body.request for e in world.published[session_id] if isinstance(e.body, RequestOpened)
    ]
    return next(r.id for r in reversed(opened) if r.subjects == (subject,))


@pytest.mark.promise("B1")
async def test_text_and_stop_is_one_request(autojump_clock, start):
    world, session_id = await start(text("hello there", 3))
    await world.say(session_id, "hi")
    ended = await world.ended(session_id)
    assert ended.outcome == "completed"
    assert ended.last_message == "hello there"
    kinds = [type(e.body).__name__ for e in await world.events(session_id)]
    assert kinds[:7] == [
        "SessionCreated", "SessionTitled", "TurnStarted", "StatusChanged", "ItemStarted",
        "ItemCompleted", "StepStarted",
    ]  # fmt: skip
    assert kinds[-3:] == ["StepEnded", "TurnEnded", "StatusChanged"]
    assert len(world.model.requests) == 1


@pytest.mark.promise("B2")
async def test_the_second_request_holds_the_call_and_its_result(autojump_clock, start):
    world, session_id = await start(calls(call("look", "c1", say="found")), text("done"))
    await world.say(session_id, "look")
    await world.ended(session_id)
    (held,) = tool_calls(world, 1)
    assert (held.call_id, held.output, held.state) == ("c1", "found", "completed")


@pytest.mark.promise("B5")
async def test_unknown_tools_get_an_error_and_case_is_repaired(autojump_clock, start):
    world, session_id = await start(calls(call("nope"), call("LOOK", say="x")), text("done"))
    await world.say(session_id, "hi")
    await world.ended(session_id)
    unknown, repaired = tool_calls(world, 1)
    assert unknown.error_kind == "invalid"
    assert "look" in unknown.output
    assert (repaired.name, repaired.state) == ("look", "completed")


@pytest.mark.promise("B5")
async def test_case_is_repaired_only_where_one_tool_is_meant(autojump_clock, start):
    world, session_id = await start(calls(call("Look"), call("loOK ")), text("done"))
    await world.say(session_id, "hi", overrides=_overrides(tools=("look", "change")))
    await world.ended(session_id)
    assert [held.state for held in tool_calls(world, 1)] == ["completed", "completed"]


@pytest.mark.promise("B6")
async def test_bad_arguments_name_the_field(autojump_clock, start):
    world, session_id = await start(
        calls(CallPart("look", arguments_text="{nonsense"), call("look", seconds="long")),
        text("done"),
    )
    await world.say(session_id, "hi")
    await world.ended(session_id)
    broken, wrong = tool_calls(world, 1)
    assert broken.error_kind == wrong.error_kind == "invalid"
    assert "seconds" in wrong.output
    assert world.usage.begun == []


@pytest.mark.promise("B7")
async def test_a_cut_off_response_runs_no_call(autojump_clock, start):
    cut = ScriptStep(parts=(call("change"), call("look")), finish="length")
    world, session_id = await start(cut, text("done"))
    await world.say(session_id, "hi")
    await world.ended(session_id)
    assert [c.state for c in tool_calls(world, 1)] == ["error", "error"]
    assert world.usage.begun == []


@pytest.mark.promise("B8")
async def test_the_last_step_has_a_notice_and_no_tools(autojump_clock, start):
    world, session_id = await start(calls(call("look")), calls(call("look")), calls(call("look")))
    await world.say(session_id, "hi", overrides=_overrides(max_steps=2))
    ended = await world.ended(session_id)
    assert ended.outcome == "limit_reached"
    first, last = world.model.requests
    assert first.tools
    assert not last.tools
    assert any(isinstance(i, Notice) and i.code == "last_step" for i in last.items)


@pytest.mark.promise("B12")
async def test_a_second_start_is_busy_and_two_autos_share_a_turn(autojump_clock, start):
    slow = ScriptStep(parts=(TextPart("a"), WaitPart(5), TextPart("b")))
    world, session_id = await start(slow, text("done"), text("more"))
    results = []

    async def send(words: str) -> None:
        results.append(await world.say(session_id, words))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send, "one")
        nursery.start_soon(send, "two")
    assert {type(r) for r in results} == {Started, Steered}
    assert len({r.turn_id for r in results}) == 1
    busy = await world.refused(UserInput(session_id, "three", delivery="start"))
    assert (busy.code, busy.data["turn_id"]) == ("busy", results[0].turn_id)
    await world.ended(session_id)


@pytest.mark.promise("B13", "B14")
async def test_steering_needs_the_right_turn(autojump_clock, start):
    world, session_id = await start(calls(call("look", seconds=5)), text("done"))
    none = await world.refused(UserInput(session_id, "left", delivery="steer"))
    assert (none.code, none.data["input"]["text"]) == ("no_active_turn", "left")
    started = await world.say(session_id, "go")
    wrong = await world.refused(
        UserInput(session_id, "left", delivery="steer", expected_turn_id="other")
    )
    assert (wrong.code, wrong.data["turn_id"]) == ("expected_turn_mismatch", started.turn_id)
    empty = await world.refused(UserInput(session_id, " ", delivery="steer"))
    assert empty.code == "empty_input"
    await world.ended(session_id)
    assert len([i for i in world.model.requests[-1].items if isinstance(i, UserMessage)]) == 1


@pytest.mark.promise("B16")
async def test_steering_skips_the_calls_that_have_not_started(autojump_clock, start):
    world, session_id = await start(
        calls(call("change", seconds=5), call("change"), call("change")), text("done")
    )
    await world.say(session_id, "go")
    await world.until(
        session_id,
        lambda e: isinstance(e.body, ToolCallUpdated) and e.body.state == "running",
    )
    assert isinstance(await world.say(session_id, "other way"), Steered)
    await world.ended(session_id)
    assert [c.error_kind for c in tool_calls(world, 1)] == [None, "skipped", "skipped"]
    last = world.model.requests[1].items[-1]
    assert isinstance(last, UserMessage)
    assert (last.text, last.delivery) == ("other way", "steer")


@pytest.mark.promise("B17")
async def test_steering_while_text_streams_gives_a_second_request(autojump_clock, start):
    slow = ScriptStep(parts=(TextPart("a"), WaitPart(5), TextPart("b")))
    world, session_id = await start(slow, text("done"))
    await world.say(session_id, "go")
    await world.until_body(session_id, ItemDelta)
    await world.say(session_id, "and this", delivery="steer")
    await world.ended(session_id)
    assert len(world.model.requests) == 2
    assert len([e for e in world.published[session_id] if isinstance(e.body, TurnStarted)]) == 1


@pytest.mark.parametrize(("mode", "requests"), [("one_at_a_time", 4), ("all", 2)])
@pytest.mark.promise("B20")
async def test_follow_ups_wait_until_the_turn_would_rest(autojump_clock, start, mode, requests):
    world, _ = await start(calls(call("look", seconds=5)), *[text("ok")] * 4)
    world.scripts["s"] = Script((ScriptStep(parts=(TextPart("a"), WaitPart(5))), *[text("ok")] * 4))
    session_id = await world.session(follow_ups=mode)
    await world.say(session_id, "go")
    for number in range(3):
        queued = await world.say(session_id, f"next {number}", delivery="queue")
        assert isinstance(queued, Queued)
        assert queued.position == number
    await world.ended(session_id)
    assert len(world.model.requests) == requests
    said = [i.text for i in world.model.requests[-1].items if isinstance(i, UserMessage)]
    assert said == ["go", "next 0", "next 1", "next 2"]


@pytest.mark.promise("B22")
async def test_the_same_submission_has_one_effect_and_one_answer(autojump_clock, start, nursery):
    world, session_id = await start(text("one"), text("two"))
    op = UserInput(session_id, "hi")
    first = await world.ask(op, "same")
    await world.ended(session_id)
    assert await world.ask(op, "same") == first
    await world.kill()
    await world.boot(nursery)
    assert await world.ask(op, "same") == first
    other = await world.ask(UserInput(session_id, "something else"), "same")
    assert other.code == "bad_message"
    assert len(world.model.requests) == 1


@pytest.mark.promise("B22")
async def test_a_submission_that_waits_for_one_with_its_id_gets_that_answer_only_for_the_same_op(
    autojump_clock, start
):
    world, session_id = await start(text("one"), text("two"))
    answers: dict[str, Any] = {}

    async def slowly() -> None:
        await trio.sleep(1)

    async def ask(name: str, words: str) -> None:
        answers[name] = await world.ask(UserInput(session_id, words), "same")

    world.log.before_commit = slowly
    async with trio.open_nursery() as asking:
        for name, words in (("first", "hi"), ("again", "hi"), ("other", "something else")):
            asking.start_soon(ask, name, words)
            await trio.sleep(0.1)
        assert not answers, "the first is not in the log yet"
    assert answers["again"] == answers["first"]
    assert answers["other"].code == "bad_message"
    await world.ended(session_id)
    assert len(world.model.requests) == 1


async def test_a_request_does_not_wait_as_the_steps_do_for_a_shared_commit(autojump_clock, start):
    world, session_id = await start(calls(call("guarded")), text("done"))
    began = trio.current_time()
    await world.say(session_id, "go")
    opened = await world.until_body(session_id, RequestOpened)
    assert trio.current_time() - began < DELTA_WINDOW_S
    await world.must(Answer(opened.body.request.id, "once"))
    await world.ended(session_id)


@pytest.mark.promise("B24", "B25")
async def test_after_an_interrupt_every_call_has_a_result(autojump_clock, start):
    world, session_id = await start(
        calls(call("look", say="quick"), call("look", say="slow", seconds=50), call("change")),
        text("done"),
    )
    await world.say(session_id, "go")
    await world.until(session_id, lambda e: isinstance(e.body, ItemCompleted), 2)
    await trio.sleep(3)
    await world.must(Interrupt(session_id))
    ended = await world.ended(session_id)
    assert ended.outcome == "interrupted"
    assert not world.usage.running
    await world.say(session_id, "again")
    await world.ended(session_id, 2)
    quick, slow, third = tool_calls(world, 1)
    assert (quick.state, quick.output) == ("completed", "quick")
    assert slow.error_kind == third.error_kind == "aborted"
    assert "aborted after 3.0 s" in slow.output
    assert "slow" in slow.output
    notices = [i for i in world.model.requests[1].items if isinstance(i, Notice)]
    assert [n.code for n in notices] == ["interrupted"]


@pytest.mark.promise("B26")
async def test_an_interrupt_cancels_an_open_approval(autojump_clock, start):
    world, session_id = await start(calls(call("guarded")), text("done"))
    await world.say(session_id, "go")
    opened = await world.until_body(session_id, RequestOpened)
    await world.must(Interrupt(session_id))
    await world.ended(session_id)
    resolved = await world.until_body(session_id, RequestResolved)
    assert resolved.body.resolution == "cancelled"
    late = await world.refused(Answer(opened.body.request.id, "once"))
    assert late.code == "already_resolved"
    await world.say(session_id, "again")
    await world.ended(session_id, 2)
    assert tool_calls(world, 1)[0].error_kind == "aborted"


@pytest.mark.promise("B27")
async def test_an_interrupt_of_another_turn_changes_nothing(autojump_clock, start):
    world, session_id = await start(calls(call("look", seconds=5)), text("done"))
    assert (await world.refused(Interrupt(session_id))).code == "no_active_turn"
    await world.say(session_id, "go")
    wrong = await world.refused(Interrupt(session_id, "another"))
    assert wrong.code == "expected_turn_mismatch"
    assert (await world.ended(session_id)).outcome == "completed"


@pytest.mark.promise("B31")
async def test_reads_run_together_and_answer_in_call_order(autojump_clock, start):
    world, session_id = await start(
        calls(*(call("look", seconds=(8 - n) / 10, say=str(n)) for n in range(8))), text("done")
    )
    await world.say(session_id, "go")
    began = trio.current_time()
    await world.ended(session_id)
    assert trio.current_time() - began < 1.0
    assert [c.output for c in tool_calls(world, 1)] == [str(n) for n in range(8)]
    completed = [
        e.body.item.output
        for e in world.published[session_id]
        if isinstance(e.body, ItemCompleted) and isinstance(e.body.item, ToolCall)
    ]
    assert completed == [str(n) for n in range(7, -1, -1)]


@pytest.mark.promise("B34")
async def test_one_crash_and_one_hang_leave_the_others_alone(autojump_clock, start):
    world, session_id = await start(
        calls(call("look", crash=True), call("look", seconds=1000), call("look", say="fine")),
        text("done"),
    )
    await world.say(session_id, "go")
    await world.ended(session_id)
    crashed, hung, fine = tool_calls(world, 1)
    assert "ZeroDivisionError" in crashed.output
    assert "time limit" in hung.output
    assert fine.output == "fine"


async def test_ids_sort_in_the_order_of_what_they_name_although_no_time_passes(
    autojump_clock, start
):
    world, session_id = await start(
        calls(*(call("look", say=str(number)) for number in range(9))), text("done")
    )
    await world.say(session_id, "go")
    await world.ended(session_id)
    events = await world.events(session_id)
    ids = [event.body.item.id for event in events if isinstance(event.body, ItemStarted)]
    assert len(ids) == 11
    assert ids == sorted(ids)


@pytest.mark.promise("B36")
async def test_always_resolves_other_requests_that_now_match(autojump_clock, start):
    world, session_id = await start(
        calls(call("peek", say="a"), call("peek", say="a"), call("peek", say="b")), text("done")
    )
    await world.say(session_id, "go")
    await world.until_body(session_id, RequestOpened, 3)
    await world.must(Answer(request_about(world, session_id, "a"), "always"))
    await world.until_body(session_id, RequestResolved, 2)
    await world.must(Answer(request_about(world, session_id, "b"), "once"))
    assert (await world.ended(session_id)).outcome == "completed"
    assert [c.state for c in tool_calls(world, 1)] == ["completed"] * 3


@pytest.mark.promise("B37")
async def test_reject_without_a_reason_ends_the_turn_blocked(autojump_clock, start):
    world, session_id = await start(
        calls(call("peek", say="a"), call("peek", say="b")), text("done")
    )
    await world.say(session_id, "go")
    await world.until_body(session_id, RequestOpened, 2)
    await world.must(Answer(request_about(world, session_id, "a"), "reject"))
    assert (await world.ended(session_id)).outcome == "blocked"
    await world.say(session_id, "again")
    await world.ended(session_id, 2)
    assert [c.error_kind for c in tool_calls(world, 1)] == ["denied", "denied"]


@pytest.mark.promise("B37")
async def test_reject_with_a_reason_refuses_one_call_and_the_turn_goes_on(autojump_clock, start):
    world, session_id = await start(
        calls(call("peek", say="a"), call("peek", say="b")), text("done")
    )
    await world.say(session_id, "go")
    await world.until_body(session_id, RequestOpened, 2)
    await world.must(Answer(request_about(world, session_id, "a"), "reject", "use c"))
    await world.must(Answer(request_about(world, session_id, "b"), "once"))
    assert (await world.ended(session_id)).outcome == "completed"
    one, two = tool_calls(world, 1)
    assert (one.error_kind, one.output) == ("denied", "rejected by the user: use c")
    assert two.state == "completed"


def _overrides(**fields: Any):
    from tiller_protocol.settings import TurnOverrides

    return TurnOverrides(**fields)


@pytest.mark.promise("B21")
async def test_queued_input_is_edited_moved_promoted_and_removed(autojump_clock, start):
    slow = ScriptStep(parts=(TextPart("a"), WaitPart(5), TextPart("b")))
    world, session_id = await start(slow, *[text("ok")] * 4)
    await world.say(session_id, "go")
    ids = []
    for number in range(4):
        queued = await world.say(session_id, f"q{number}", delivery="queue")
        ids.append(queued.input_id)
    await world.must(QueueEdit(session_id, ids[0], "edit", text="changed"))
    await world.must(QueueEdit(session_id, ids[1], "remove"))
    await world.must(QueueEdit(session_id, ids[3], "move", position=0))
    await world.must(QueueEdit(session_id, ids[2], "promote"))
    gone = await world.refused(QueueEdit(session_id, ids[1], "remove"))
    assert gone.code == "not_found"
    empty = await world.refused(QueueEdit(session_id, ids[0], "edit", text=" "))
    assert empty.code == "empty_input"
    await world.ended(session_id)
    said = [i for i in world.model.requests[-1].items if isinstance(i, UserMessage)]
    assert [i.text for i in said] == ["go", "q2", "q3", "changed"]
    assert [i.delivery for i in said] == ["start", "steer", "queue", "queue"]


@pytest.mark.promise("B9")
async def test_the_third_same_call_in_a_row_asks_and_a_no_ends_the_turn(autojump_clock, start):
    same = calls(call("look", say="x"))
    world, session_id = await start(same, same, same, text("done"))
    await world.say(session_id, "go")
    opened = await world.until_body(session_id, RequestOpened)
    assert opened.body.request.kind == "doom_loop"
    assert len(world.usage.begun) == 2
    await world.must(Answer(opened.body.request.id, "reject"))
    assert (await world.ended(session_id)).outcome == "blocked"


@pytest.mark.promise("B9")
async def test_always_is_asked_once_in_a_session(autojump_clock, start):
    same = calls(call("look", say="x"))
    world, session_id = await start(*[same] * 8, text("done"))
    await world.say(session_id, "go")
    opened = await world.until_body(session_id, RequestOpened)
    await world.must(Answer(opened.body.request.id, "always"))
    assert (await world.ended(session_id)).outcome == "completed"
    asked = [e for e in world.published[session_id] if isinstance(e.body, RequestOpened)]
    assert len(asked) == 1


@pytest.mark.promise("B9")
async def test_a_cycle_of_two_calls_asks_and_what_the_user_says_begins_anew(autojump_clock, start):
    one, two = calls(call("look", say="x")), calls(call("nope"))
    world, session_id = await start(one, two, one, two, text("hm"), one, two, text("done"))
    await world.say(session_id, "go")
    await world.ended(session_id)
    await world.say(session_id, "again, please")
    assert (await world.ended(session_id, 2)).outcome == "completed"
    world, session_id = await start(*[one, two] * 3, text("done"))
    await world.say(session_id, "go")
    opened = await world.until_body(session_id, RequestOpened)
    assert opened.body.request.kind == "doom_loop"
    await world.must(Answer(opened.body.request.id, "once"))
    assert (await world.ended(session_id)).outcome == "completed"


@pytest.mark.promise("G13")
async def test_a_key_that_a_tool_comes_upon_reaches_neither_events_nor_the_model(
    autojump_clock, start
):
    world, session_id = await start(calls(call("look", say="KEY=sk-canary-1 ")), text("done"))
    world.secrets = ("sk-canary-1",)
    await world.say(session_id, "go")
    await world.ended(session_id)
    (held,) = tool_calls(world, 1)
    assert held.output == "KEY=[secret] "
    outputs = [
        e.body.delta
        for e in world.published[session_id]
        if isinstance(e.body, ItemDelta) and e.body.channel == "output"
    ]
    assert "".join(outputs) == "KEY=[secret] "


@pytest.mark.parametrize("after_parts", [0, 2], ids=["before its first token", "in mid-stream"])
async def test_the_time_to_the_first_token_is_that_of_the_attempt_that_answered(
    autojump_clock, start, after_parts
):
    """The time says how quick the model is; retry events say how long failed attempts took."""
    slow = ScriptStep(
        parts=(WaitPart(3.0), TextPart("one"), TextPart("two")),
        failures=(Failure("overloaded", retry_after_s=40.0, after_parts=after_parts),),
    )
    world, session_id = await start(slow)
    await world.say(session_id, "go")
    await world.ended(session_id)
    event = await world.until_body(session_id, StepEnded)
    assert isinstance(event.body, StepEnded)
    assert event.body.time_to_first_token_s == pytest.approx(3.0)
