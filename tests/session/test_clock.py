"""Durations stay right when somebody sets the clock in mid-turn."""

import pytest

from tiller_daemon.models.scripted import CallPart, ScriptStep, TextPart, WaitPart
from tiller_protocol.events import Event, ItemCompleted, StepEnded, ToolCallUpdated, TurnEnded
from tiller_protocol.items import ToolCall
from tiller_protocol.ops import Interrupt

YEAR_S = 365 * 86_400.0
LOOK = CallPart("look", arguments={"say": "x", "seconds": 10})
ANSWER = ScriptStep(parts=(WaitPart(2), TextPart("done")))


def calls_in(events: list[Event]) -> list[ToolCall]:
    ended = [e.body.item for e in events if isinstance(e.body, ItemCompleted)]
    return [item for item in ended if isinstance(item, ToolCall)]


@pytest.mark.parametrize("jump_s", [YEAR_S, -YEAR_S])
async def test_a_clock_that_is_set_in_mid_turn_changes_no_duration(autojump_clock, start, jump_s):
    world, session_id = await start(ScriptStep(parts=(LOOK,)), ANSWER, ANSWER)
    await world.say(session_id, "go")
    await world.until_body(session_id, ToolCallUpdated)
    world.clock_jumps_s = jump_s
    ended = await world.ended(session_id)
    assert ended.duration_s == pytest.approx(12, abs=0.5)
    events = await world.events(session_id)
    (call,) = calls_in(events)
    assert call.duration_s == pytest.approx(10, abs=0.5)
    waits = [e.body.time_to_first_token_s for e in events if isinstance(e.body, StepEnded)]
    assert waits[-1] == pytest.approx(2, abs=0.5)
    times = [event.time for event in events]
    assert times == sorted(times)
    await world.say(session_id, "again")
    assert (await world.ended(session_id, 2)).duration_s == pytest.approx(2, abs=0.5)
    last = [e for e in await world.events(session_id) if isinstance(e.body, TurnEnded)][-1]
    assert last.time - times[-1] == pytest.approx(jump_s + 2, abs=1), "the new time counts"


async def test_the_clock_is_set_before_an_interrupt(autojump_clock, start):
    world, session_id = await start(ScriptStep(parts=(LOOK,)), ANSWER)
    await world.say(session_id, "go")
    await world.until_body(session_id, ToolCallUpdated)
    world.clock_jumps_s = YEAR_S
    await world.must(Interrupt(session_id))
    assert (await world.ended(session_id)).duration_s < 10
    events = await world.events(session_id)
    (call,) = calls_in(events)
    assert call.error_kind == "aborted"
    assert call.duration_s is not None
    assert call.duration_s < 10
