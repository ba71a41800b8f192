"""Responses without a complete answer: cut off at the length limit, or empty."""

from typing import NamedTuple

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from support.world import World
from tiller_daemon.models.scripted import (
    CallPart,
    ReasoningPart,
    Script,
    ScriptStep,
    TextPart,
    WaitPart,
)
from tiller_daemon.turn.unfinished import CONTINUATIONS_MAX, EMPTY_RETRIES_MAX
from tiller_protocol.events import ItemCompleted
from tiller_protocol.items import AssistantMessage, Item, Notice, Reasoning, UserMessage
from tiller_protocol.ops import UserInput
from tiller_protocol.settings import TurnOverrides


def text(words: str) -> ScriptStep:
    return ScriptStep(parts=(TextPart(words),))


def cut(words: str) -> ScriptStep:
    return ScriptStep(parts=(TextPart(words),), finish="length")


def look(words: str = "x") -> ScriptStep:
    return ScriptStep(parts=(CallPart("look", arguments={"say": words}),))


def completed(world: World, session_id: str) -> list[Item]:
    bodies = [event.body for event in world.published[session_id]]
    return [body.item for body in bodies if isinstance(body, ItemCompleted)]


def notices(world: World, session_id: str) -> list[str]:
    return [item.code for item in completed(world, session_id) if isinstance(item, Notice)]


def said(world: World, number: int) -> list[str]:
    """Return the model's own messages in the request with that number."""
    items = world.model.requests[number].items
    return [item.text for item in items if isinstance(item, AssistantMessage)]


THINKING = ScriptStep(parts=(ReasoningPart("hm"),))
EMPTY = {
    "nothing": ScriptStep(),
    "only thinking": THINKING,
    "only blanks": text(" \n"),
    "an unknown end": ScriptStep(finish="unknown"),
    "thinking and an unknown end": ScriptStep(parts=(ReasoningPart("hm"),), finish="unknown"),
}


@pytest.mark.promise("B7")
async def test_a_cut_off_answer_is_continued_twice_and_is_one_message_in_history(
    autojump_clock, start
):
    world, session_id = await start(cut("It is the me"), cut("thod `run"), text("`."), text("yes"))
    await world.say(session_id, "what is it?")
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.steps) == ("completed", 3)
    assert ended.last_message == "It is the method `run`."
    assert notices(world, session_id) == ["cut_off", "cut_off"]
    first, second, third = world.model.requests
    assert isinstance(second.items[-1], Notice)
    assert said(world, 1) == ["It is the me"]
    # The second part has joined the first one, and a new notice follows.
    assert said(world, 2) == ["It is the method `run"]
    assert [type(i) for i in third.items] == [UserMessage, AssistantMessage, Notice]
    await world.say(session_id, "sure?")
    await world.ended(session_id, 2)
    sent = world.model.requests[-1].items
    assert [type(item) for item in sent] == [UserMessage, AssistantMessage, UserMessage]
    assert said(world, 3) == ["It is the method `run`."]
    assert first.tools == second.tools == third.tools


@pytest.mark.promise("B7")
async def test_an_answer_that_is_cut_off_a_third_time_ends_the_turn_and_says_so(
    autojump_clock, start
):
    world, session_id = await start(cut("a"), cut("b"), cut("c"), text("d"))
    await world.say(session_id, "go")
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.steps, ended.last_message) == ("limit_reached", 3, "abc")
    assert ended.error is not None
    assert ended.error.code == "cut_off"
    assert "length limit" in ended.error.message
    assert "Continue the turn, or raise the model's `max_output`" in ended.error.message
    await world.say(session_id, "go on")
    ended = await world.ended(session_id, 2)
    assert (ended.outcome, ended.last_message) == ("completed", "d")
    assert said(world, 3) == ["abc"]


@pytest.mark.promise("B7")
async def test_thinking_up_to_the_limit_is_not_sent_back_and_the_model_shall_answer(
    autojump_clock, start
):
    thinking = ScriptStep(parts=(ReasoningPart("hm", opaque="half"),), finish="length")
    world, session_id = await start(thinking, text("42"))
    await world.say(session_id, "go")
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.last_message) == ("completed", "42")
    asked, notice = world.model.requests[1].items
    assert isinstance(asked, UserMessage)
    assert isinstance(notice, Notice)
    assert "answer now" in notice.text
    (thought,) = (item for item in completed(world, session_id) if isinstance(item, Reasoning))
    assert thought.state == "discarded"


@pytest.mark.promise("B7")
async def test_steering_goes_before_the_rest_of_a_cut_off_answer(autojump_clock, start):
    slow = ScriptStep(parts=(TextPart("lo"), WaitPart(5), TextPart("ng")), finish="length")
    world, session_id = await start(slow, text("short"))
    await world.say(session_id, "go")
    await trio.sleep(1)
    await world.must(UserInput(session_id, "be brief", delivery="steer"))
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.last_message) == ("completed", "short")
    assert notices(world, session_id) == []


@pytest.mark.promise("B10")
async def test_parts_of_an_answer_match_the_schema_together(autojump_clock, start):
    schema = {"type": "object", "required": ["answer"]}
    world, session_id = await start(cut('{"ans'), text('wer": 42}'))
    await world.say(session_id, "go", overrides=TurnOverrides(output_schema=schema))
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.last_message) == ("completed", '{"answer": 42}')


@pytest.mark.parametrize("kind", EMPTY)
@pytest.mark.promise("B4")
async def test_an_empty_response_is_asked_about_once_more(autojump_clock, start, kind):
    world, session_id = await start(look(), EMPTY[kind], text("done"))
    await world.say(session_id, "go")
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.steps, ended.last_message) == ("completed", 3, "done")
    assert notices(world, session_id) == ["empty_response"]
    again = world.model.requests[-1].items
    assert not any(isinstance(item, Reasoning | AssistantMessage) for item in again)
    assert isinstance(again[-1], Notice)


@pytest.mark.parametrize("kind", EMPTY)
@pytest.mark.promise("B4")
async def test_a_second_empty_response_fails_the_turn(autojump_clock, start, kind):
    world, session_id = await start(EMPTY[kind], EMPTY[kind], text("done"))
    await world.say(session_id, "go")
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.steps, ended.last_message) == ("failed", 2, "")
    assert ended.error is not None
    assert ended.error.code == "empty_response"
    assert "empty responses in a row. Continue the turn to try again" in ended.error.message
    await world.say(session_id, "go on")
    assert (await world.ended(session_id, 2)).last_message == "done"


@pytest.mark.parametrize("last", [cut("a"), ScriptStep()], ids=["cut off", "empty"])
@pytest.mark.promise("B8")
async def test_the_last_step_is_not_asked_again(autojump_clock, start, last):
    world, session_id = await start(look(), last, text("never"))
    await world.say(session_id, "go", overrides=TurnOverrides(max_steps=2))
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.steps) == ("limit_reached", 2)
    assert ended.error is not None
    assert "2 steps" in ended.error.message


class Expected(NamedTuple):
    outcome: str
    last_message: str
    steps: int


def expected(kinds: list[str]) -> Expected:
    """Compute the outcome of a turn with these responses by a plain version of the rules."""
    cuts = empties = 0
    whole = last = ""
    for number, kind in enumerate(kinds, 1):
        piece = f"{number} " if kind in ("answer", "cut") else ""
        if piece:
            last = whole = whole + piece
        if kind == "answer":
            return Expected("completed", last, number)
        if kind == "call":
            cuts = empties = 0
            whole = ""
        elif kind in ("cut", "thinks too long"):
            if cuts == CONTINUATIONS_MAX:
                return Expected("limit_reached", last, number)
            cuts += 1
        else:
            if empties == EMPTY_RETRIES_MAX:
                return Expected("failed", last, number)
            empties += 1
    raise AssertionError("the last response is an answer")


def response(kind: str, number: int) -> ScriptStep:
    match kind:
        case "answer":
            return text(f"{number} ")
        case "cut":
            return cut(f"{number} ")
        case "call":
            return look(f"{number}")
        case "thinks too long":
            return ScriptStep(parts=(ReasoningPart("hm"),), finish="length")
        case "thinks":
            return THINKING
        case _:
            return ScriptStep()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["cut", "cut", "call", "thinks too long", "thinks", "nothing"])))
@pytest.mark.promise("B4", "B7")
def test_any_row_of_responses_ends_as_the_rules_say(kinds: list[str]) -> None:
    """No series of cut-off and empty responses is endless, and no part of an answer is lost."""
    kinds = [*kinds, "answer"]
    steps = tuple(response(kind, number) for number, kind in enumerate(kinds, 1))

    async def play() -> Expected:
        async with trio.open_nursery() as nursery:
            world = await World.start(nursery, {"s": Script(steps)})
            session_id = await world.session()
            await world.say(session_id, "go")
            ended = await world.ended(session_id)
            nursery.cancel_scope.cancel()
        return Expected(ended.outcome, ended.last_message, ended.steps)

    assert trio.run(play, clock=MockClock(autojump_threshold=0)) == expected(kinds)
