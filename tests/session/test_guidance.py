"""What the model is told when a turn begins, and where it comes from."""

from support.world import World
from tiller_daemon.models.scripted import Script, ScriptStep, TextPart

STEPS = (ScriptStep(parts=(TextPart("done"),)),)


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
    autojump_clock, nursery, tmp_path
):
    world = await make(nursery, tmp_path)
    git = tmp_path / "w" / ".git"
    git.mkdir()
    (git / "HEAD").write_text("ref: refs/heads/topic\n")
    assert (await prompt_of(world)).endswith(
        "<environment>\n"
        f"workspace: {tmp_path}/w\n"
        f"git repository: {tmp_path}/w, on branch topic\n"
        "platform: test\n"
        "date: 2023-11-14\n"
        "</environment>"
    )
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
