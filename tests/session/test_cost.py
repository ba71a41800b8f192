"""The costs of steps, turns and sessions; an unknown cost is never shown as zero."""

import pytest
from msgspec import structs

from support.narrowing import of_kind
from support.world import World, unpriced
from tiller_daemon.config import Agent
from tiller_daemon.models.scripted import (
    CallPart,
    HangPart,
    Script,
    ScriptedUsage,
    ScriptStep,
    TextPart,
)
from tiller_protocol.answers import (
    SessionListResult,
    SessionResult,
)
from tiller_protocol.catalog import Price
from tiller_protocol.events import HistoryCompacted, SessionTitled, StepEnded
from tiller_protocol.ops import Compact, Interrupt, SessionGet, SessionList
from tiller_protocol.settings import Budget, TurnOverrides

USAGE = ScriptedUsage(input_tokens=1_000, cached_input_tokens=400, output_tokens=100)
PRICE = Price(2.0, 10.0, cached_input=0.5)
STEP_COST = 0.0024

LOOKS = [
    ScriptStep(parts=(CallPart("look", arguments={"say": f"{n}"}),), usage=USAGE) for n in range(9)
]
LOOK = LOOKS[0]
DONE = ScriptStep(parts=(TextPart("done"),), usage=USAGE, repeat=True)


@pytest.fixture
def priced(start):
    """Starts a world whose model has a price and plays these steps."""

    async def priced(*steps: ScriptStep, **scripted: ScriptStep) -> tuple[World, str]:
        world, session_id = await start(*steps)
        world.scripts["s"] = Script(steps, **scripted)
        world.price = PRICE.cost
        return world, session_id

    return priced


async def snapshot(world: World, session_id: str):
    return of_kind(SessionResult, await world.must(SessionGet(session_id))).snapshot


def bodies(world: World, session_id: str, kind: type) -> list:
    return [e.body for e in world.published[session_id] if isinstance(e.body, kind)]


async def test_a_step_a_turn_and_a_session_have_their_cost(autojump_clock, priced):
    world, session_id = await priced(LOOK, DONE)
    for turns in (1, 2):
        await world.say(session_id, "go")
        await world.ended(session_id, turns)
    steps = bodies(world, session_id, StepEnded)
    assert [step.cost for step in steps] == pytest.approx([STEP_COST] * 3)
    assert (await world.ended(session_id, 1)).cost == pytest.approx(2 * STEP_COST)
    assert (await world.ended(session_id, 2)).cost == pytest.approx(STEP_COST)
    now = await snapshot(world, session_id)
    assert now.cost == pytest.approx(3 * STEP_COST)
    assert now.unpriced == 0
    listed = await world.must(SessionList())
    assert isinstance(listed, SessionListResult)
    assert listed.sessions[0].cost == pytest.approx(3 * STEP_COST)


async def test_an_unknown_price_is_unknown_and_counted_as_such(autojump_clock, priced):
    world, session_id = await priced(LOOK, DONE)
    world.price = unpriced
    await world.say(session_id, "go")
    assert (await world.ended(session_id)).cost is None
    now = await snapshot(world, session_id)
    assert (now.cost, now.unpriced) == (None, 2)
    world.price = PRICE.cost
    await world.say(session_id, "again")
    assert (await world.ended(session_id, 2)).cost == pytest.approx(STEP_COST)
    now = await snapshot(world, session_id)
    assert (now.cost, now.unpriced) == (pytest.approx(STEP_COST), 2)


async def test_what_nobody_counted_costs_nobody_knows_what(autojump_clock, priced):
    world, session_id = await priced(structs.replace(DONE, usage=None))
    await world.say(session_id, "go")
    assert (await world.ended(session_id)).cost is None
    assert (await snapshot(world, session_id)).unpriced == 0


async def test_a_turn_ends_at_its_budget_of_dollars(autojump_clock, priced):
    world, session_id = await priced(*LOOKS, DONE)
    budget = Budget(cost=2.5 * STEP_COST)
    await world.say(session_id, "go", overrides=TurnOverrides(turn_budget=budget))
    ended = await world.ended(session_id)
    assert ended.outcome == "limit_reached"
    assert ended.steps == 4, "three steps use it up, the fourth is the last one"
    assert "US dollars" in (ended.error.message if ended.error else "")


async def test_a_session_ends_at_its_budget_of_dollars(autojump_clock, priced):
    world, _ = await priced(DONE)
    session_id = await world.session(session_budget=Budget(cost=1.5 * STEP_COST))
    for turns in (1, 2):
        await world.say(session_id, "go")
        assert (await world.ended(session_id, turns)).outcome == "completed"
    await world.say(session_id, "go")
    assert (await world.ended(session_id, 3)).error.code == "session_budget"


async def test_a_title_costs_too(autojump_clock, priced):
    title = ScriptStep(parts=(TextPart("A title"),), usage=USAGE)
    world, session_id = await priced(DONE, title=title)
    await world.say(session_id, "go")
    await world.ended(session_id)
    await world.until(session_id, lambda e: isinstance(e.body, SessionTitled) and e.body.cost)
    assert (await snapshot(world, session_id)).cost == pytest.approx(2 * STEP_COST)


async def test_a_summary_costs_too(autojump_clock, priced):
    long = ScriptStep(parts=(TextPart("w" * 9_000),), usage=USAGE)
    summary = ScriptStep(parts=(TextPart("short"),), usage=USAGE)
    world, session_id = await priced(long, DONE, compaction=summary)
    await world.say(session_id, "go")
    await world.ended(session_id)
    await world.must(Compact(session_id))
    await world.ended(session_id, 2)
    (compacted,) = bodies(world, session_id, HistoryCompacted)
    assert compacted.cost == pytest.approx(STEP_COST)
    assert (await snapshot(world, session_id)).cost == pytest.approx(2 * STEP_COST)


async def test_an_interrupted_step_costs_what_was_counted(autojump_clock, priced):
    """The provider reports counts at the end of an answer, so here they are unknown."""
    hanging = ScriptStep(parts=(TextPart("so far"), HangPart()), usage=USAGE)
    world, session_id = await priced(LOOK, hanging)
    await world.say(session_id, "go")
    await world.until_body(session_id, StepEnded)
    await world.must(Interrupt(session_id))
    ended = await world.ended(session_id)
    assert ended.outcome == "interrupted"
    assert ended.cost == pytest.approx(STEP_COST)
    assert bodies(world, session_id, StepEnded)[-1].cost is None


async def test_a_sub_agent_costs_its_owner(autojump_clock, priced):
    task = CallPart("task", arguments={"prompt": "look", "agent": "helper"})
    world, session_id = await priced(ScriptStep(parts=(task,), usage=USAGE), DONE)
    world.scripts["sub"] = Script((DONE,))
    helper = Agent(prompt="You help.", model="scripted/sub")
    world.configuration = structs.replace(world.configuration, agents={"helper": helper})
    await world.say(session_id, "go")
    ended = await world.ended(session_id)
    assert ended.outcome == "completed"
    assert ended.cost == pytest.approx(3 * STEP_COST), "two steps of its own, one of the other"
