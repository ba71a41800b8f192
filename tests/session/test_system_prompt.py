"""The system prompt at the beginning of a turn, and its sources."""

import time

import pytest

from support.world import World
from tiller_daemon.models.scripted import Script, ScriptStep, TextPart, WaitPart
from tiller_protocol.answers import CatalogResult, Steered
from tiller_protocol.catalog import CommandSummary
from tiller_protocol.codec import encode_event
from tiller_protocol.events import TurnStarted, WarningRaised
from tiller_protocol.items import UserMessage
from tiller_protocol.ops import Catalog, UserInput
from tiller_protocol.settings import Rule, TurnOverrides

STEPS = (ScriptStep(parts=(TextPart("done"),)),) * 4


@pytest.fixture
def in_zone(monkeypatch):
    """Sets the time zone of this process until the test ends."""

    def set_zone(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield set_zone
    monkeypatch.undo()
    time.tzset()


async def prompt_of(world: World) -> str:
    """The system prompt of a turn in a new session."""
    session_id = await world.session()
    await world.say(session_id, "hi")
    await world.ended(session_id)
    return world.model.requests[-1].system


async def make(nursery, tmp_path) -> World:
    world = World({"s": Script(STEPS)})
    world.workspace = str(tmp_path / "w")
    world.config_directory = tmp_path / "config"
    (tmp_path / "w").mkdir()
    (tmp_path / "config").mkdir()
    await world.boot(nursery)
    return world


async def test_the_environment_names_directory_branch_platform_and_date(
    autojump_clock, nursery, tmp_path, in_zone
):
    in_zone("UTC")
    world = await make(nursery, tmp_path)
    git = tmp_path / "w" / ".git"
    git.mkdir()
    (git / "HEAD").write_text("ref: refs/heads/topic\n")
    assert (await prompt_of(world)).endswith(
        "<environment>\n"
        f"workspace: {tmp_path}/w\n"
        f"git repository: {tmp_path}/w, on branch topic\n"
        "platform: test\n"
        "date: 2023-11-14 (UTC)\n"
        "</environment>"
    )
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("zone", "date"),
    [
        ("Pacific/Kiritimati", "2023-11-15 (UTC+14:00)"),
        ("Europe/Berlin", "2023-11-14 (CET, UTC+01:00)"),
        ("Asia/Kathmandu", "2023-11-15 (UTC+05:45)"),
        ("America/Los_Angeles", "2023-11-14 (PST, UTC-08:00)"),
    ],
)
async def test_the_date_is_the_one_where_the_daemon_runs_and_names_its_zone(
    autojump_clock, nursery, tmp_path, in_zone, zone, date
):
    """The world begins at 22:13 UTC, when it is already tomorrow in the east."""
    in_zone(zone)
    world = await make(nursery, tmp_path)
    assert f"\ndate: {date}\n" in await prompt_of(world)
    nursery.cancel_scope.cancel()


async def test_instructions_stand_in_the_prompt_and_a_change_counts_from_the_next_turn(
    autojump_clock, nursery, tmp_path
):
    world = await make(nursery, tmp_path)
    (tmp_path / "config" / "AGENTS.md").write_text("Speak Latin.")
    (tmp_path / "w" / "AGENTS.md").write_text("Use tabs.")
    prompt = await prompt_of(world)
    assert prompt.index("Speak Latin.") < prompt.index("Use tabs.")
    assert f'<instructions file="{tmp_path}/w/AGENTS.md">\nUse tabs.\n</instructions>' in prompt
    (tmp_path / "w" / "AGENTS.md").write_text("Use spaces.")
    prompt = await prompt_of(world)
    assert "Use spaces." in prompt
    assert "Use tabs." not in prompt
    nursery.cancel_scope.cancel()


async def test_skills_are_listed_by_name_description_and_path_without_their_text(
    autojump_clock, nursery, tmp_path
):
    world = await make(nursery, tmp_path)
    folder = tmp_path / "w" / ".agents" / "skills" / "release"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(
        "---\nname: release\ndescription: Publish it\n---\nThe hidden steps."
    )
    prompt = await prompt_of(world)
    assert f"<skills>\n- release: Publish it ({folder}/SKILL.md)\n</skills>" in prompt
    assert "hidden" not in prompt
    nursery.cancel_scope.cancel()


async def test_a_command_stands_for_its_text_in_history_and_in_the_request(
    autojump_clock, nursery, tmp_path
):
    world = await make(nursery, tmp_path)
    folder = tmp_path / "w" / ".tiller" / "commands"
    folder.mkdir(parents=True)
    (folder / "review.md").write_text("---\ndescription: Review\n---\nReview $1. Not $2!")
    world.trust()
    session_id = await world.session()
    inputs = (
        ("/review HEAD~1 'the tests'", "Review HEAD~1. Not the tests!"),
        (" /review x", " /review x"),
        ("/tmp is full", "/tmp is full"),
        ("/etc/hosts is wrong", "/etc/hosts is wrong"),
    )
    for turn, (said, meant) in enumerate(inputs, start=1):
        await world.say(session_id, said)
        await world.ended(session_id, turn)
        message = world.model.requests[-1].items[-1]
        assert isinstance(message, UserMessage)
        assert message.text == meant
    catalog = await world.must(Catalog(world.workspace))
    assert isinstance(catalog, CatalogResult)
    assert catalog.commands == (CommandSummary("review", "Review"),)
    nursery.cancel_scope.cancel()


async def test_a_command_chooses_the_model_of_its_turn_unless_the_input_does(
    autojump_clock, nursery, tmp_path
):
    world = await make(nursery, tmp_path)
    world.scripts["other"] = world.scripts["s"]
    folder = tmp_path / "config" / "commands"
    folder.mkdir()
    (folder / "go.md").write_text("---\nmodel: scripted/other\n---\nGo.")
    session_id = await world.session()
    overrides = (TurnOverrides(), TurnOverrides(model="scripted/s"), TurnOverrides())
    for turn, text in enumerate(("/go", "/go", "go")):
        await world.say(session_id, text, overrides=overrides[turn])
        await world.ended(session_id, turn + 1)
    assert [request.model for request in world.model.requests] == ["other", "s", "s"]
    nursery.cancel_scope.cancel()


async def test_a_broken_command_is_refused_with_the_reason_and_the_input(
    autojump_clock, nursery, tmp_path
):
    world = await make(nursery, tmp_path)
    (tmp_path / "config" / "commands").mkdir()
    (tmp_path / "config" / "commands" / "bad.md").write_text("---\n[\n---\nx")
    (tmp_path / "config" / "commands" / "big.md").write_text("$ARGUMENTS $ARGUMENTS")
    session_id = await world.session()
    refused = await world.refused(UserInput(session_id, "/bad now"))
    assert (refused.code, refused.data["input"]["text"]) == ("invalid_settings", "/bad now")
    assert "front matter" in refused.message
    refused = await world.refused(UserInput(session_id, "/big " + "x" * 5_000_000))
    assert refused.code == "too_large"
    assert await world.events(session_id) == [(await world.events(session_id))[0]]
    nursery.cancel_scope.cancel()


async def test_steering_with_a_command_steers_with_its_text(autojump_clock, nursery, tmp_path):
    world = await make(nursery, tmp_path)
    world.scripts["s"] = Script((ScriptStep(parts=(WaitPart(10), TextPart("a"))), *STEPS))
    (tmp_path / "config" / "commands").mkdir()
    (tmp_path / "config" / "commands" / "stop.md").write_text("Stop $1.")
    session_id = await world.session()
    await world.say(session_id, "hi")
    assert isinstance(await world.say(session_id, "/stop that"), Steered)
    await world.ended(session_id)
    said = [i.text for i in world.model.requests[-1].items if isinstance(i, UserMessage)]
    assert said == ["hi", "Stop that."]
    nursery.cancel_scope.cancel()


async def test_what_was_sent_is_in_the_log_with_the_turn(autojump_clock, nursery, tmp_path):
    world = await make(nursery, tmp_path)
    session_id = await world.session()
    await world.say(session_id, "hi")
    await world.ended(session_id)
    (shown,) = [
        e.body.context for e in await world.events(session_id) if isinstance(e.body, TurnStarted)
    ]
    (request,) = world.model.requests
    assert shown.system_prompt == request.system
    assert shown.tools == tuple(tool.name for tool in request.tools)
    nursery.cancel_scope.cancel()


@pytest.mark.promise("B60")
async def test_what_may_not_be_read_unasked_is_in_no_prompt_and_said_once(
    autojump_clock, nursery, tmp_path
):
    world = await make(nursery, tmp_path)
    place = tmp_path / "w"
    (place / ".env").write_text("KEY=hidden")
    (place / "AGENTS.md").symlink_to(".env")
    (place / "secrets").mkdir()
    (place / "secrets" / "SKILL.md").write_text("---\nname: x\ndescription: hidden\n---\n")
    (place / ".agents" / "skills").mkdir(parents=True)
    (place / ".agents" / "skills" / "x").symlink_to("../../secrets")
    session_id = await world.session(permissions=(Rule("read", "secrets/*", "deny"),))
    for turn in (1, 2):
        await world.say(session_id, "hi")
        await world.ended(session_id, turn)
    assert not any("hidden" in request.system for request in world.model.requests)
    events = await world.events(session_id)
    assert b"hidden" not in b"".join(map(encode_event, events))
    (warning,) = [e.body for e in events if isinstance(e.body, WarningRaised)]
    assert warning.code == "document_refused"
    assert warning.message == (
        "Left out of the system prompt: "
        f"{place}/AGENTS.md: reading {place}/.env needs approval; "
        f"{place}/.agents/skills/x/SKILL.md: reading {place}/secrets/SKILL.md needs approval."
    )
    nursery.cancel_scope.cancel()


@pytest.mark.promise("B60")
async def test_a_command_and_an_agent_that_may_not_be_read_unasked_say_so(
    autojump_clock, nursery, tmp_path
):
    world = await make(nursery, tmp_path)
    place = tmp_path / "w"
    (place / "prod.env").write_text("hidden")
    for kind in ("commands", "agents"):
        (place / ".tiller" / kind).mkdir(parents=True)
        (place / ".tiller" / kind / "go.md").symlink_to("../../prod.env")
    world.trust()
    session_id = await world.session()
    problem = f"its file was not read: reading {place}/prod.env needs approval"
    refused = await world.refused(UserInput(session_id, "/go"))
    assert refused.message == f"The command /go can't be used: {problem}."
    op = UserInput(session_id, "hi", overrides=TurnOverrides(agent="go"))
    refused = await world.refused(op)
    assert refused.message == f"The agent go can't be used: {problem}."
    catalog = await world.must(Catalog(world.workspace))
    assert isinstance(catalog, CatalogResult)
    assert [one.problem for one in catalog.commands] == [problem]
    assert [one.problem for one in catalog.agents if one.name == "go"] == [problem]
    nursery.cancel_scope.cancel()
