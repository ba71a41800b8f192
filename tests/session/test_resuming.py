"""Turns that continue after the daemon died: which limits and choices still apply."""

import pytest
import trio
import trio.testing
from msgspec import structs

from support.narrowing import of_kind
from support.world import World
from tiller_daemon.config import Agent
from tiller_daemon.models.scripted import (
    CallPart,
    HangPart,
    Script,
    ScriptedUsage,
    ScriptStep,
    TextPart,
)
from tiller_daemon.session.turns.resuming import RESUMES_MAX
from tiller_protocol.events import (
    StepStarted,
    ToolCallUpdated,
    TurnEnded,
)
from tiller_protocol.items import SubAgent
from tiller_protocol.settings import Budget, TurnOverrides

USAGE = ScriptedUsage(input_tokens=100, output_tokens=10)
LOOKS, LOOKS_ON, LOOKS_AGAIN = (
    ScriptStep(parts=(CallPart("look", arguments={"say": word}),), usage=USAGE) for word in "abc"
)
HANGS = ScriptStep(parts=(HangPart(),))
DONE = ScriptStep(parts=(TextPart("done"),), repeat=True)


@pytest.fixture
def resumes(start):
    """Return a function that starts a world whose turns continue after a restart."""

    async def begin(*steps: ScriptStep) -> tuple[World, str]:
        world, session_id = await start(*steps)
        world.configuration = structs.replace(world.configuration, resume="auto")
        return world, session_id

    return begin


async def die_in_step(world: World, session_id: str, step: int, nursery: trio.Nursery) -> None:
    """Kill the daemon as soon as it is in that step, and start it again."""
    await world.until(session_id, lambda event: event.body == StepStarted(step))
    await trio.testing.wait_all_tasks_blocked()
    await world.kill()
    await world.boot(nursery)


@pytest.mark.promise("B50")
async def test_the_next_request_has_the_next_number_and_the_steps_before_count(
    autojump_clock, nursery, resumes
):
    world, session_id = await resumes(LOOKS, HANGS, LOOKS_ON, DONE)
    await world.say(session_id, "go", overrides=TurnOverrides(max_steps=4))
    await die_in_step(world, session_id, 2, nursery)
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.steps, ended.last_message) == ("limit_reached", 4, "done")
    assert [request.ordinal for request in world.model.requests] == [0, 1, 2, 3]
    assert not world.model.requests[-1].tools, "it was the last of four"


@pytest.mark.promise("B50")
async def test_a_turn_that_died_in_its_last_step_has_reached_its_limit(
    autojump_clock, nursery, resumes
):
    world, session_id = await resumes(LOOKS, HANGS, DONE)
    await world.say(session_id, "go", overrides=TurnOverrides(max_steps=2))
    await die_in_step(world, session_id, 2, nursery)
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.steps) == ("limit_reached", 2)
    assert len(world.model.requests) == 2


@pytest.mark.promise("B50")
async def test_what_was_spent_before_counts_and_the_time_away_does_not(
    autojump_clock, nursery, resumes
):
    world, session_id = await resumes(LOOKS, HANGS, LOOKS_ON, LOOKS_AGAIN, LOOKS, DONE)
    budget = Budget(tokens=300, time_s=3600)
    await world.say(session_id, "go", overrides=TurnOverrides(turn_budget=budget))
    await world.until(session_id, lambda event: event.body == StepStarted(2))
    await world.kill()
    await trio.sleep(80_000)
    await world.boot(nursery)
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.steps) == ("limit_reached", 5)
    assert ended.error is not None
    assert "300 tokens" in ended.error.message
    assert ended.duration_s < 3600


@pytest.mark.promise("B50")
async def test_the_time_away_is_no_time_of_a_turn_that_is_closed(autojump_clock, nursery, start):
    world, session_id = await start(HANGS)
    await world.say(session_id, "go")
    await world.until(session_id, lambda event: event.body == StepStarted(1))
    await world.kill()
    await trio.sleep(80_000)
    await world.boot(nursery)
    assert (await world.ended(session_id)).duration_s < 3600


@pytest.mark.promise("B50")
async def test_a_turn_is_resumed_so_often_and_no_more(autojump_clock, nursery, resumes):
    world, session_id = await resumes(*(HANGS,) * (RESUMES_MAX + 1))
    await world.say(session_id, "go")
    for step in range(1, RESUMES_MAX + 2):
        await die_in_step(world, session_id, step, nursery)
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.steps) == ("interrupted", RESUMES_MAX + 1)
    assert len(world.model.requests) == RESUMES_MAX + 1


@pytest.mark.promise("B50")
async def test_the_turn_of_a_sub_agent_does_not_go_on(autojump_clock, nursery):
    task = CallPart("task", arguments={"prompt": "do it", "agent": "worker"})
    main = Script((ScriptStep(parts=(task,)), DONE))
    world = await World.start(nursery, {"s": main, "worker": Script((HANGS,))})
    worker = Agent(description="works", model="scripted/worker", prompt="You work.")
    world.configuration = structs.replace(
        world.configuration, resume="auto", agents={"worker": worker}
    )
    session_id = await world.session()
    await world.say(session_id, "go")
    begun = await world.until(session_id, lambda e: bool(getattr(e.body, "sub_agent", None)))
    child = of_kind(SubAgent, of_kind(ToolCallUpdated, begun.body).sub_agent).session_id
    await die_in_step(world, child, 1, nursery)
    assert (await world.ended(session_id)).outcome == "completed"
    bodies = [event.body for event in await world.events(child)]
    assert [body.outcome for body in bodies if isinstance(body, TurnEnded)] == ["interrupted"]
    nursery.cancel_scope.cancel()


@pytest.mark.promise("B50")
async def test_a_sub_agent_of_a_resumed_turn_has_no_tools_but_those_chosen_for_the_turn(
    autojump_clock, nursery
):
    task = CallPart("task", arguments={"prompt": "do it", "agent": "worker"})
    main = Script((HANGS, ScriptStep(parts=(task,)), DONE))
    world = await World.start(nursery, {"s": main, "worker": Script((DONE,))})
    worker = Agent(description="works", model="scripted/worker", prompt="You work.")
    world.configuration = structs.replace(
        world.configuration, resume="auto", agents={"worker": worker}
    )
    session_id = await world.session()
    await world.say(session_id, "go", overrides=TurnOverrides(tools=("look", "task")))
    await die_in_step(world, session_id, 1, nursery)
    assert (await world.ended(session_id)).outcome == "completed"
    (of_worker,) = (one for one in world.model.requests if one.session_id != session_id)
    assert {tool.name for tool in of_worker.tools} == {"look", "task"}
