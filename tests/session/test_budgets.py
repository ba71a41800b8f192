"""Budgets of a turn and of a session: the last step is announced, and a restart forgets nothing."""

import pytest

from tiller_daemon.models.scripted import CallPart, ScriptedUsage, ScriptStep, TextPart
from tiller_protocol.items import Notice
from tiller_protocol.settings import Budget, TurnOverrides

USAGE = ScriptedUsage(input_tokens=90, output_tokens=10)


def looks(count: int, seconds: float = 0) -> list[ScriptStep]:
    """Return steps of 100 tokens that each look at something else."""
    return [
        ScriptStep(
            parts=(CallPart("look", arguments={"say": f"{n}", "seconds": seconds}),), usage=USAGE
        )
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("budget", "seconds", "steps"),
    [
        (Budget(steps=3), 0, 3),
        (Budget(tokens=250), 0, 4),
        (Budget(time_s=25), 10, 4),
        (Budget(steps=50, tokens=100), 0, 2),
    ],
    ids=["steps", "tokens", "time", "the first that is reached"],
)
async def test_a_turn_ends_at_its_budget_and_its_last_step_is_announced(
    autojump_clock, start, budget, seconds, steps
):
    world, session_id = await start(*looks(10, seconds))
    await world.say(session_id, "go", overrides=TurnOverrides(turn_budget=budget))
    ended = await world.ended(session_id)
    assert ended.outcome == "limit_reached"
    assert len(world.model.requests) == steps
    assert [bool(request.tools) for request in world.model.requests] == [True] * (steps - 1) + [
        False
    ]
    (notice,) = [i for i in world.model.requests[-1].items if isinstance(i, Notice)]
    assert "budget" in notice.text


@pytest.mark.parametrize(
    ("overrides", "seconds", "said"),
    [
        (TurnOverrides(turn_budget=Budget(steps=2)), 0, "here is what is left"),
        (TurnOverrides(turn_budget=Budget(tokens=100)), 0, "here is what is left"),
        (TurnOverrides(turn_budget=Budget(time_s=5)), 10, "here is what is left"),
        (TurnOverrides(max_steps=2), 0, "here is what is left"),
        (TurnOverrides(max_steps=2, output_schema={"type": "object"}), 0, "{}"),
    ],
    ids=["steps", "tokens", "time", "max-steps", "an answer by a schema"],
)
@pytest.mark.promise("B8")
async def test_a_turn_whose_last_step_was_forced_has_reached_its_limit_even_if_it_ends_in_text(
    autojump_clock, start, overrides, seconds, said
):
    world, session_id = await start(*looks(1, seconds), ScriptStep(parts=(TextPart(said),)))
    await world.say(session_id, "go", overrides=overrides)
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.steps, ended.last_message) == ("limit_reached", 2, said)
    assert ended.error is not None
    assert ended.error.code == "limit_reached"


@pytest.mark.parametrize(
    "overrides",
    [TurnOverrides(turn_budget=Budget(steps=3)), TurnOverrides(max_steps=1, tools=())],
    ids=["it ended before the last step", "it had no tools to lose"],
)
async def test_a_turn_from_which_a_limit_took_nothing_is_completed(
    autojump_clock, start, overrides
):
    before = looks(1) if overrides.max_steps is None else []
    world, session_id = await start(*before, ScriptStep(parts=(TextPart("done"),)))
    await world.say(session_id, "go", overrides=overrides)
    assert (await world.ended(session_id)).outcome == "completed"


async def test_the_budget_of_a_session_counts_all_turns_also_after_a_restart(
    autojump_clock, start, nursery
):
    world, _ = await start(*looks(10))
    session_id = await world.session(session_budget=Budget(tokens=250), max_steps=2)
    await world.say(session_id, "one")
    assert (await world.ended(session_id)).steps == 2
    await world.kill()
    await world.boot(nursery)
    await world.say(session_id, "two")
    assert (await world.ended(session_id, 2)).steps == 2
    await world.say(session_id, "three")
    ended = await world.ended(session_id, 3)
    assert (ended.outcome, ended.steps) == ("limit_reached", 0)
    assert ended.error is not None
    assert "250 tokens" in ended.error.message
    assert len(world.model.requests) == 4


async def test_a_turn_that_uses_up_the_budget_of_its_session_says_what_helps(autojump_clock, start):
    """Another message does not help, as the next turn would stop at the same limit."""
    world, _ = await start(*looks(10))
    session_id = await world.session(session_budget=Budget(tokens=250), max_steps=4)
    await world.say(session_id, "one")
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.steps) == ("limit_reached", 4)
    assert ended.error is not None
    assert ended.error.code == "session_budget"
    assert "Raise `session_budget`" in ended.error.message
    assert "Send a message" not in ended.error.message
    await world.say(session_id, "two")
    again = await world.ended(session_id, 2)
    assert again.error == ended.error
