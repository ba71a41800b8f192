"""Which model, variant, limit, prompt and tools a turn gets, and which setting decides."""

from typing import Any

import pytest
from msgspec import structs

from support.world import World
from tiller_daemon.config import Agent, Configuration
from tiller_daemon.config.model_families import BUILT_IN, DEFAULT_PROMPT
from tiller_daemon.config.model_schema import Family
from tiller_daemon.models.scripted import CallPart, Script, ScriptStep, TextPart
from tiller_daemon.tools import BUILT_IN as TOOLS
from tiller_daemon.tools.base import Tool, ToolPermission
from tiller_daemon.tools.editing.apply_patch import APPLY_PATCH
from tiller_daemon.tools.editing.edit import EDIT
from tiller_daemon.tools.web.fetch import FETCH
from tiller_protocol.answers import SessionResult
from tiller_protocol.codec import INPUT_BYTES_MAX
from tiller_protocol.events import SessionConfigured, SessionTitled, TurnStarted
from tiller_protocol.items import ToolCall
from tiller_protocol.ops import (
    Compact,
    SessionConfigure,
    SessionCreate,
    SessionGet,
    Shell,
    UserInput,
)
from tiller_protocol.settings import Rule, Settings, TurnOverrides
from tiller_protocol.snapshot import Snapshot

DONE = ScriptStep(parts=(TextPart("done"),))
CALL = ScriptStep(parts=(CallPart("look", arguments={}),))

SUBJECTS: dict[str, dict[str, Any]] = {
    "apply_patch": {"patch": "*** Begin Patch\n*** Add File: a\n+x\n*** End Patch"},
    "bash": {"command": "ls"},
    "bash_input": {"id": "1", "text": "x"},
    "edit": {"path": "a", "old": "x", "new": "y"},
    "fetch": {"url": "https://example.com"},
    "glob": {"pattern": "*"},
    "grep": {"pattern": "x"},
    "read": {"path": "a"},
    "task": {"prompt": "x"},
    "write": {"path": "a", "content": "x"},
}
"""Arguments with which tools can state their requirements; other tools take none."""


async def make(nursery, *steps: ScriptStep, **more: Script) -> World:
    world = World({"s": Script(steps or (DONE,) * 9), **more})
    world.efforts = ("low", "high")
    world.variants = {"deep": {"c": 3}}
    world.more_tools = (EDIT, APPLY_PATCH, FETCH)
    await world.boot(nursery)
    return world


def configure(world: World, **changes: object) -> None:
    world.configuration = structs.replace(world.configuration, **changes)


async def turn_of(world: World, session_id: str, **fields: Any) -> TurnStarted:
    """Have a turn; return its `turn_started` once the turn has ended."""
    count = 1 + sum(isinstance(e.body, TurnStarted) for e in world.published.get(session_id, ()))
    await world.say(session_id, "go", **fields)
    await world.ended(session_id, count)
    started = [e.body for e in world.published[session_id] if isinstance(e.body, TurnStarted)]
    return started[-1]


async def variant_of(world: World, session_id: str, **overrides: Any) -> str:
    started = await turn_of(world, session_id, overrides=TurnOverrides(**overrides))
    assert world.model.requests[-1].variant == started.context.variant
    return started.context.variant


async def state_of(world: World, session_id: str) -> Snapshot:
    result = await world.must(SessionGet(session_id))
    assert isinstance(result, SessionResult)
    return result.snapshot


async def offered_to(world: World, **settings: Any) -> set[str]:
    session_id = await world.session(**settings)
    started = await turn_of(world, session_id)
    assert started.context.tools == tuple(tool.name for tool in world.model.requests[-1].tools)
    return set(started.context.tools)


async def test_a_variant_is_chosen_by_the_strongest_of_turn_session_agent_and_configuration(
    autojump_clock, nursery
):
    world = await make(nursery)
    session_id = await world.session()
    assert await variant_of(world, session_id) == ""
    configure(world, variant="low")
    assert await variant_of(world, session_id) == "low"
    configure(world, agents={"build": Agent(variant="high")})
    assert await variant_of(world, session_id) == "high"
    await world.must(SessionConfigure(session_id, Settings(variant="low")))
    assert await variant_of(world, session_id) == "low"
    assert await variant_of(world, session_id, variant="high") == "high"
    assert await variant_of(world, session_id, variant="") == ""
    await world.must(SessionConfigure(session_id, clear=("variant",)))
    assert await variant_of(world, session_id) == "high"
    nursery.cancel_scope.cancel()


async def test_a_variant_that_the_model_does_not_have_is_refused_with_those_that_it_has(
    autojump_clock, nursery
):
    world = await make(nursery)
    session_id = await world.session()
    for op in (
        UserInput(session_id, "hi", overrides=TurnOverrides(variant="hgh")),
        SessionConfigure(session_id, Settings(variant="hgh")),
        SessionCreate(world.workspace, settings=Settings(variant="hgh")),
    ):
        refused = await world.refused(op)
        assert refused.code == "invalid_settings"
        assert "no variant 'hgh'. Did you mean `high`?" in refused.message
        assert "Its variants: deep, low, high." in refused.message
    configure(world, variant="lw")
    refused = await world.refused(UserInput(session_id, "hi"))
    assert "no variant 'lw'" in refused.message
    assert (await state_of(world, session_id)).items == []
    nursery.cancel_scope.cancel()


async def test_a_variant_of_another_model_does_not_get_in_the_way(autojump_clock, nursery):
    world = await make(nursery, other=Script((DONE,) * 4))
    session_id = await world.session(variant="deep")
    started = await turn_of(world, session_id)
    assert started.context.variant == "deep"
    assert world.model.requests[-1].options["c"] == 3
    other = TurnOverrides(model="scripted/other")
    assert (await turn_of(world, session_id, overrides=other)).context.variant == ""
    both = TurnOverrides(model="scripted/other", variant="deep")
    refused = await world.refused(UserInput(session_id, "hi", overrides=both))
    assert "no variant 'deep'" in refused.message
    # The session changes its model, which drops the choices made for the old model.
    await world.must(SessionConfigure(session_id, Settings(model="scripted/other")))
    settings = (await state_of(world, session_id)).settings
    assert (settings.model, settings.variant) == ("scripted/other", None)
    nursery.cancel_scope.cancel()


async def test_an_agent_has_a_limit_of_steps_that_session_and_turn_override(
    autojump_clock, nursery
):
    world = await make(nursery, *(CALL, DONE) * 8)
    configure(world, agents={"build": Agent(max_steps=1)}, max_steps=9)
    session_id = await world.session()
    await world.say(session_id, "go")
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.steps) == ("limit_reached", 1)
    assert world.model.requests[-1].tools == ()
    session_id = await world.session(max_steps=5)
    assert (await turn_of(world, session_id)).context.max_steps == 5
    two = TurnOverrides(max_steps=2)
    assert (await turn_of(world, session_id, overrides=two)).context.max_steps == 2
    nursery.cancel_scope.cancel()


async def test_a_projects_agent_can_not_exceed_the_users_limit_of_steps(
    autojump_clock, nursery, tmp_path
):
    world = await make(nursery)
    world.workspace = str(tmp_path)
    folder = tmp_path / ".tiller" / "agents"
    folder.mkdir(parents=True)
    (folder / "long.md").write_text("---\nmax_steps: 500\nvariant: low\n---\nGo.")
    (folder / "short.md").write_text("---\nmax_steps: 3\n---\nGo.")
    world.trust()
    for agent, steps, variant in (("long", 200, "low"), ("short", 3, "")):
        context = (await turn_of(world, await world.session(agent=agent))).context
        assert (context.max_steps, context.variant) == (steps, variant)
    nursery.cancel_scope.cancel()


async def test_an_input_adds_to_the_system_prompt_of_its_own_turn(autojump_clock, nursery):
    world = await make(nursery)
    session_id = await world.session()
    plain = (await turn_of(world, session_id)).context.system_prompt
    added = (await turn_of(world, session_id, system="Answer in French.\n")).context.system_prompt
    assert added == f"{plain}\n\nAnswer in French."
    assert world.model.requests[-1].system == added
    assert (await turn_of(world, session_id)).context.system_prompt == plain
    refused = await world.refused(UserInput(session_id, "hi", system="x" * INPUT_BYTES_MAX))
    assert refused.code == "too_large"
    nursery.cancel_scope.cancel()


async def test_each_request_to_a_provider_begins_with_its_header(autojump_clock, nursery):
    world = await make(nursery)
    world.prompt_header = "You are who the provider wants.\n"
    session_id = await world.session()
    await turn_of(world, session_id)
    await turn_of(world, session_id)
    await world.must(Compact(session_id))
    await world.ended(session_id, 3)
    requests = (*world.model.requests, *world.model.for_titles)
    assert {request.purpose for request in requests} == {"turn", "compaction", "title"}
    for request in requests:
        assert request.system.startswith("You are who the provider wants.\n\nYou ")
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("model", "tool", "prompt"),
    [
        ("openai-gpt-5.2", "apply_patch", BUILT_IN["gpt"].prompt),
        ("gpt-5-codex", "apply_patch", BUILT_IN["gpt"].prompt),
        ("anthropic.claude-x", "edit", BUILT_IN["claude"].prompt),
        ("Gemini-2.5-pro", "edit", BUILT_IN["gemini"].prompt),
        ("qwen3", "edit", DEFAULT_PROMPT),
        ("gpt-4o", "edit", DEFAULT_PROMPT),
    ],
)
async def test_a_model_gets_the_prompt_and_the_tool_for_edits_of_its_family(
    autojump_clock, nursery, model, tool, prompt
):
    world = await make(nursery, **{model: Script((DONE,) * 3)})
    offered = await offered_to(world, model=f"scripted/{model}")
    assert {"edit", "apply_patch"} & offered == {tool}
    assert prompt
    assert world.model.requests[-1].system.startswith(prompt.rstrip() + "\n\n")
    nursery.cancel_scope.cancel()


async def test_an_input_chooses_the_tools_of_its_own_turn(autojump_clock, nursery):
    world = await make(nursery)
    session_id = await world.session()
    usual = (await turn_of(world, session_id)).context.tools
    assert {"look", "change"} < set(usual)
    chosen = await turn_of(world, session_id, overrides=TurnOverrides(tools=("look",)))
    assert chosen.context.tools == ("look",)
    assert [tool.name for tool in world.model.requests[-1].tools] == ["look"]
    assert (await turn_of(world, session_id)).context.tools == usual
    nursery.cancel_scope.cancel()


async def test_an_agent_that_names_its_tools_or_has_a_prompt_keeps_them(autojump_clock, nursery):
    world = await make(nursery, **{"gpt-5": Script((DONE,) * 3)})
    mine = Agent(prompt="Mine.", tools=("edit", "apply_patch"))
    configure(world, agents={"mine": mine}, model="scripted/gpt-5")
    assert await offered_to(world, agent="mine") == {"edit", "apply_patch"}
    assert world.model.requests[-1].system.startswith("Mine.\n\n")
    assert await offered_to(world, tools=("edit", "look")) == {"edit", "look"}
    nursery.cancel_scope.cancel()


async def test_the_configuration_overrides_a_family_and_adds_others(autojump_clock, nursery):
    world = await make(nursery, **{"gpt-5": Script((DONE,) * 3), "home-1": Script((DONE,) * 3)})
    home = Family(models=("HOME-*",), prompt="At home.", edit_tool="both")
    configure(world, families={"home": home, "gpt": Family(edit_tool="edit")})
    offered = await offered_to(world, model="scripted/gpt-5")
    assert {"edit", "apply_patch"} & offered == {"edit"}
    assert world.model.requests[-1].system.startswith((BUILT_IN["gpt"].prompt or "?").rstrip())
    offered = await offered_to(world, model="scripted/home-1")
    assert {"edit", "apply_patch"} <= offered
    assert world.model.requests[-1].system.startswith("At home.\n\n")
    nursery.cancel_scope.cancel()


async def test_what_a_rule_denies_for_every_argument_is_not_offered_and_a_call_says_why(
    autojump_clock, nursery
):
    call = CallPart("fetch", arguments={"url": "https://example.com"})
    world = await make(nursery, calls=Script((ScriptStep(parts=(call,)), DONE)))
    everywhere = Rule("fetch", "*", "deny")
    rules = {
        (): True,
        (Rule("fetch", "*.com", "deny"),): True,
        (everywhere, Rule("fetch", "docs.*", "allow")): True,
        (Rule("fetch", "docs.*", "allow"), Rule("f*", "**", "deny")): False,
    }
    for given, is_offered in rules.items():
        configure(world, permissions=given)
        assert ("fetch" in await offered_to(world)) == is_offered
    assert "fetch" not in await offered_to(world, model="scripted/calls")
    made = [i for i in world.model.requests[-1].items if isinstance(i, ToolCall)]
    assert [one.error_kind for one in made] == ["denied"]
    assert "`f*` `**` deny" in made[0].output
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "tool", [tool for tool in TOOLS if tool.permission], ids=lambda tool: tool.name
)
def test_a_tool_needs_what_it_says_that_it_always_needs(tool: Tool, tmp_path):
    (tmp_path / "a").write_text("x\n")
    assert isinstance(tool.arguments, type)
    needed = tool.requirements(tool.arguments(**SUBJECTS.get(tool.name, {})), tmp_path)
    assert tool.permission == ToolPermission(needed[0].permission)


async def test_the_users_own_command_runs_although_models_may_run_none(autojump_clock, nursery):
    world = await make(nursery)
    configure(world, permissions=(Rule("bash", "*", "deny"),))
    session_id = await world.session()
    await world.must(Shell(session_id, "0 hello"))
    assert (await world.ended(session_id)).last_message == "hello"
    nursery.cancel_scope.cancel()


async def test_settings_are_taken_back_and_a_title_is_given(autojump_clock, nursery):
    world = await make(nursery)
    session_id = await world.session(max_steps=3, approve="never")
    await world.must(SessionConfigure(session_id, title="  My\nown \x1b title "))
    await turn_of(world, session_id)
    await world.must(SessionConfigure(session_id, Settings(approve="ask"), clear=("max_steps",)))
    snapshot = await state_of(world, session_id)
    assert (snapshot.title, snapshot.settings) == ("My own title", Settings(approve="ask"))
    bodies = [event.body for event in await world.events(session_id)]
    assert sum(isinstance(body, SessionConfigured) for body in bodies) == 1
    assert sum(isinstance(body, SessionTitled) for body in bodies) == 1
    assert world.model.for_titles == []
    refused = await world.refused(SessionConfigure(session_id, clear=("max_step",)))
    assert "There is no setting 'max_step'. Did you mean `max_steps`?" in refused.message
    assert "empty" in (await world.refused(SessionConfigure(session_id, title=" \n"))).message
    nursery.cancel_scope.cancel()


async def test_a_title_of_a_person_stays_when_the_models_title_comes_late(autojump_clock, nursery):
    world = await make(nursery)
    session_id = await world.session()
    await world.say(session_id, "go")
    await world.must(SessionConfigure(session_id, title="Mine"))
    await world.ended(session_id)
    await turn_of(world, session_id)
    assert (await state_of(world, session_id)).title == "Mine"
    nursery.cancel_scope.cancel()


def test_the_default_configuration_has_no_family_of_its_own():
    assert Configuration().families == {}
