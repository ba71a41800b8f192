"""A turn warns when its model differs from the last turn's, unless a person chose the model."""

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from support.world import World
from tiller_daemon.config import Agent
from tiller_daemon.models.scripted import Script, ScriptStep, TextPart
from tiller_protocol.events import TurnStarted, WarningRaised
from tiller_protocol.ops import SessionConfigure, Shell, UserInput
from tiller_protocol.settings import Settings, TurnOverrides

DONE = Script((ScriptStep(parts=(TextPart("done"),)),) * 50)
MODELS = ("a", "b", "c")
WHERE = ("default", "session", "turn", "agent", "shell")


async def make(nursery: trio.Nursery) -> World:
    world = World(dict.fromkeys(MODELS, DONE))
    await world.boot(nursery)
    return world


def use(world: World, **changes: object) -> None:
    world.configuration = structs.replace(world.configuration, **changes)


def turns_of(world: World, session_id: str) -> list[TurnStarted]:
    bodies = [e.body for e in world.published.get(session_id, ())]
    return [b for b in bodies if isinstance(b, TurnStarted)]


async def warned(world: World, session_id: str, model: str | None = None) -> list[str]:
    """Return what the next turn says about its model."""
    before = len(world.published.get(session_id, ()))
    turns = len(turns_of(world, session_id))
    await world.say(session_id, "go", overrides=TurnOverrides(model=model))
    await world.ended(session_id, turns + 1)
    bodies = [e.body for e in world.published[session_id][before:]]
    return [b.message for b in bodies if isinstance(b, WarningRaised) and b.code[:5] == "model"]


async def test_a_turn_with_another_default_model_names_both_and_how_to_go_back(
    autojump_clock, nursery
):
    world = await make(nursery)
    session_id = await world.session()
    assert await warned(world, session_id) == []
    use(world, model="scripted/b")
    assert await warned(world, session_id) == [
        "This turn uses the model scripted/b, but the previous turn used scripted/a. "
        f"To go back to scripted/a: tiller set {session_id} model scripted/a"
    ]
    assert await warned(world, session_id) == []
    nursery.cancel_scope.cancel()


async def test_another_agent_with_a_model_of_its_own_is_a_choice(autojump_clock, nursery):
    world = await make(nursery)
    session_id = await world.session()
    await warned(world, session_id)
    use(world, agents={"plan": Agent(model="scripted/b")})
    for agent in ("plan", "build", "plan"):
        await world.must(SessionConfigure(session_id, Settings(agent=agent)))
        assert await warned(world, session_id) == []
    assert turns_of(world, session_id)[-1].context.model == "scripted/b"
    use(world, agents={"plan": Agent(model="scripted/c")})
    assert len(await warned(world, session_id)) == 1
    nursery.cancel_scope.cancel()


async def test_a_model_that_is_gone_is_named_with_the_reason(autojump_clock, nursery):
    world = await make(nursery)
    session_id = await world.session()
    await warned(world, session_id)
    del world.scripts["a"]
    use(world, model="scripted/b")
    (message,) = await warned(world, session_id)
    assert message.endswith("used scripted/a. There is no model 'scripted/a'.")
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("layer", "advice"),
    [("session", "`tiller set SESSION model NAME`"), ("agent", "agent's definition names this")],
)
async def test_a_turn_whose_own_model_is_gone_is_refused_and_says_what_names_it(
    autojump_clock, nursery, layer, advice
):
    world = await make(nursery)
    session_id = await world.session(**({"model": "scripted/b"} if layer == "session" else {}))
    use(world, agents={"build": Agent(model="scripted/b")})
    await warned(world, session_id)
    del world.scripts["b"]
    refused = await world.refused(UserInput(session_id, "go"))
    assert refused.code == "invalid_settings"
    assert refused.message.startswith("There is no model 'scripted/b'. ")
    assert advice in refused.message
    await world.must(SessionConfigure(session_id, Settings(model="scripted/c")))
    await world.say(session_id, "go")
    await world.ended(session_id, 2)
    nursery.cancel_scope.cancel()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(WHERE), st.sampled_from(MODELS)), max_size=12))
def test_exactly_the_turns_whose_model_nobody_chose_say_that_it_is_another(program):
    async def play() -> None:
        async with trio.open_nursery() as nursery:
            world = await make(nursery)
            session_id = await world.session()
            asked, of_session = "", None
            for where, name in program:
                model = f"scripted/{name}"
                match where:
                    case "default":
                        use(world, model=model)
                    case "agent":
                        use(world, agents={"build": Agent(model=model)})
                    case "session":
                        of_session = model
                        await world.must(SessionConfigure(session_id, Settings(model=model)))
                    case "shell":
                        # The user's own command asks no model.
                        turns = turns_of(world, session_id)
                        await world.must(Shell(session_id, "0 said"))
                        await world.ended(session_id, len(turns) + 1)
                chosen = model if where == "turn" else of_session
                messages = await warned(world, session_id, model if where == "turn" else None)
                now = turns_of(world, session_id)[-1].context.model
                expected = chosen is None and asked not in ("", now)
                assert [(now in m, asked in m) for m in messages] == [(True, True)] * expected
                asked = now
            nursery.cancel_scope.cancel()

    trio.run(play, clock=trio.testing.MockClock(autojump_threshold=0))
