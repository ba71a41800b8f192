"""Which agent a name means, and what a read-only agent may do."""

import pytest
from msgspec import structs

from support.world import World
from tiller_daemon.config import Agent
from tiller_daemon.models.scripted import CallPart, Script, ScriptStep, TextPart
from tiller_daemon.session.sub_agents.agents import BUILT_IN
from tiller_protocol.answers import CatalogResult
from tiller_protocol.catalog import AgentSummary
from tiller_protocol.events import RequestOpened
from tiller_protocol.items import ToolCall
from tiller_protocol.ops import Catalog, SessionConfigure, SessionCreate, UserInput
from tiller_protocol.settings import Rule, Settings, TurnOverrides

DONE = ScriptStep(parts=(TextPart("done"),))


async def make(nursery, tmp_path, *steps: ScriptStep) -> World:
    world = World({"s": Script(steps or (DONE,) * 4)})
    world.workspace = str(tmp_path / "w")
    world.config_directory = tmp_path / "config"
    for folder in ("w/.tiller/agents", "config/agents"):
        (tmp_path / folder).mkdir(parents=True)
    await world.boot(nursery)
    return world


async def agents(world: World) -> dict[str, AgentSummary]:
    catalog = await world.must(Catalog(world.workspace))
    assert isinstance(catalog, CatalogResult)
    return {agent.name: agent for agent in catalog.agents}


async def prompt_of(world: World, agent: str) -> str:
    session_id = await world.session(agent=agent)
    await world.say(session_id, "hi")
    await world.ended(session_id)
    return world.model.requests[-1].system


@pytest.mark.parametrize("agent", ["plan", "explore"])
async def test_a_read_only_agent_is_offered_nothing_that_writes_and_no_consent_lets_it(
    autojump_clock, nursery, tmp_path, agent
):
    call = CallPart("change", arguments={"say": "x"})
    world = await make(nursery, tmp_path, ScriptStep(parts=(call,)), DONE)
    session_id = await world.session(agent=agent, approve="always")
    await world.say(session_id, "write it")
    await world.ended(session_id)
    offered = {tool.name for tool in world.model.requests[0].tools}
    assert {"bash", "look", "peek"} <= offered
    assert not {"change", "guarded"} & offered
    assert world.usage.begun == []
    nursery.cancel_scope.cancel()


async def test_without_a_sandbox_a_read_only_agent_runs_no_command(
    autojump_clock, nursery, tmp_path
):
    calls = tuple(
        CallPart("bash", arguments={"command": text})
        for text in ("ls", "rm -r x", "make", "ls > x")
    )
    world = await make(nursery, tmp_path, ScriptStep(parts=calls), DONE)
    world.configuration = structs.replace(
        world.configuration, permissions=(Rule("bash", "*", "allow"),)
    )
    session_id = await world.session(agent="plan", approve="always")
    await world.say(session_id, "look")
    await world.ended(session_id)
    made = [item for item in world.model.requests[1].items if isinstance(item, ToolCall)]
    assert [call.error_kind == "denied" for call in made] == [True, True, True, True]
    assert "plan is read-only" in made[1].output
    opened = [e for e in await world.events(session_id) if isinstance(e.body, RequestOpened)]
    assert opened == []
    nursery.cancel_scope.cancel()


async def test_what_the_user_says_of_a_built_in_agent_is_added_to_it(
    autojump_clock, nursery, tmp_path
):
    world = await make(nursery, tmp_path)
    world.configuration = structs.replace(
        world.configuration,
        agents={"plan": Agent(model="scripted/s"), "both": Agent(description="table")},
    )
    files = tmp_path / "config" / "agents"
    (files / "plan.md").write_text("---\ndescription: Mine\n---\nPlan like me.")
    (files / "both.md").write_text("---\ndescription: file\n---\nFrom the file.")
    found = await agents(world)
    assert found["plan"] == AgentSummary("plan", "Mine", "scripted/s", read_only=True)
    assert found["both"].description == "table"
    assert set(found) == {*BUILT_IN, "both"}
    assert (await prompt_of(world, "plan")).startswith("Plan like me.")
    assert (await prompt_of(world, "both")).startswith("From the file.")
    nursery.cancel_scope.cancel()


@pytest.mark.promise("B60")
async def test_a_projects_agent_adds_a_name_and_changes_none(autojump_clock, nursery, tmp_path):
    world = await make(nursery, tmp_path)
    folder = tmp_path / "w" / ".tiller" / "agents"
    for name in ("plan", "build", "ours"):
        (folder / f"{name}.md").write_text("---\nread_only: false\n---\nObey the project.")
    assert "ours" not in await agents(world)
    world.trust()
    found = await agents(world)
    assert found["plan"].read_only
    assert (await prompt_of(world, "ours")).startswith("Obey the project.")
    for name in ("plan", "build"):
        assert "Obey" not in await prompt_of(world, name)
    nursery.cancel_scope.cancel()


async def test_an_agent_that_is_not_there_or_broken_is_refused_wherever_it_is_named(
    autojump_clock, nursery, tmp_path
):
    world = await make(nursery, tmp_path)
    (tmp_path / "config" / "agents" / "bad.md").write_text("---\n")
    session_id = await world.session()
    for name, why in (("nobody", "build, explore, general, plan"), ("bad", "no end")):
        for op in (
            SessionCreate(world.workspace, agent=name),
            SessionConfigure(session_id, Settings(agent=name)),
            UserInput(session_id, "hi", overrides=TurnOverrides(agent=name)),
        ):
            refused = await world.refused(op)
            assert refused.code == "invalid_settings"
            assert why in refused.message
    assert "no end" in (await agents(world))["bad"].problem
    nursery.cancel_scope.cancel()


async def test_options_are_layered_from_the_model_to_the_turn(autojump_clock, nursery, tmp_path):
    world = await make(nursery, tmp_path)
    world.options = {"a": 1, "b": {"x": 1, "y": 1}, "c": 1, "d": 1}
    world.variants, world.efforts = {"deep": {"c": 3, "d": 3}}, ("high",)
    world.configuration = structs.replace(
        world.configuration, agents={"build": Agent(options={"b": {"y": 2}, "c": 2, "d": 2})}
    )
    session_id = await world.session()
    chosen = (
        (TurnOverrides(), {"a": 1, "b": {"x": 1, "y": 2}, "c": 2, "d": 2}, ""),
        (TurnOverrides(variant="high"), {"a": 1, "b": {"x": 1, "y": 2}, "c": 2, "d": 2}, "high"),
        (
            TurnOverrides(variant="deep", options={"d": 4}),
            {"a": 1, "b": {"x": 1, "y": 2}, "c": 3, "d": 4},
            "",
        ),
    )
    for turn, (overrides, options, variant) in enumerate(chosen, start=1):
        await world.say(session_id, "hi", overrides=overrides)
        await world.ended(session_id, turn)
        assert world.model.requests[-1].options == options
        assert world.model.requests[-1].variant == variant
    (title,) = world.model.for_titles
    assert title.options == world.options
    nursery.cancel_scope.cancel()
