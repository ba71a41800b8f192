"""Which skills the model is offered."""

import os

import pytest

from tiller_daemon.workspace.skills import SKILLS_MAX, find_skills


@pytest.fixture
def places(tmp_path):
    workspace, config = tmp_path / "w", tmp_path / "config"
    workspace.mkdir()
    config.mkdir()
    return workspace, config


def is_open(path):
    """Whether a file may be read unasked."""
    return "closed" not in path.parts


def write(folder, name, description="does it", body="secret body"):
    folder.mkdir(parents=True, exist_ok=True)
    text = f"---\nname: {name}\ndescription: {description}\n---\n{body}\n"
    (folder / "SKILL.md").write_text(text)


def test_the_users_and_the_projects_are_listed_and_of_two_with_one_name_the_users(places):
    workspace, config = places
    write(config / "skills" / "a", "release", "mine")
    write(workspace / ".agents" / "skills" / "b", "release", "theirs")
    write(workspace / ".agents" / "skills" / "c", "review", "how\n  we review")
    assert [tuple(skill) for skill in find_skills(workspace, config, is_open)] == [
        ("release", "mine", f"{config}/skills/a/SKILL.md", ""),
        ("review", "how we review", f"{workspace}/.agents/skills/c/SKILL.md", ""),
    ]


def test_what_is_no_skill_is_passed_over_with_a_reason(places):
    workspace, config = places
    skills = config / "skills"
    for number, text in enumerate(("no head", "---\nname: x\n---\n", "---\n[\n---\n", "---\n")):
        (skills / str(number)).mkdir(parents=True)
        (skills / str(number) / "SKILL.md").write_text(text)
    write(skills / "long", "x", "y" * 1025)
    (skills / "fifo").mkdir()
    os.mkfifo(skills / "fifo" / "SKILL.md")
    (skills / "file").write_text("x")
    found = find_skills(workspace, config, is_open)
    reasons = {skill.path.split("/")[-2]: skill.problem for skill in found}
    for name, why in {
        "0": "missing required field `name`",
        "1": "missing required field `description`",
        "2": "its front matter is not YAML",
        "3": "its front matter has no end",
        "long": "length <= 1024",
        "fifo": "not a regular file",
    }.items():
        assert why in reasons[name]


@pytest.mark.parametrize(
    "description", ["Set up the harness: hooks", "[beta] does x", "@mention helper", "a: b: [c"]
)
def test_a_description_needs_no_quotes(places, description):
    workspace, config = places
    write(workspace / ".agents" / "skills" / "a", "x", description)
    (skill,) = find_skills(workspace, config, is_open)
    assert (skill.description, skill.problem) == (description, "")


def test_two_skills_of_a_project_with_one_name_are_a_problem(places):
    workspace, config = places
    for name in "ab":
        write(workspace / ".agents" / "skills" / name, "x")
    first, second = find_skills(workspace, config, is_open)
    assert (first.name, first.problem) == ("x", "")
    assert second.problem == f"{first.path} has the same name, x"


def test_a_long_body_is_not_read(places):
    workspace, config = places
    write(config / "skills" / "a", "big", body="x" * 5_000_000)
    assert len(find_skills(workspace, config, is_open)) == 1


@pytest.mark.promise("B60")
def test_links_out_of_the_workspace_are_not_followed(places, tmp_path):
    workspace, config = places
    write(tmp_path / "outside" / "a", "stolen")
    (workspace / ".agents").mkdir()
    (workspace / ".agents" / "skills").symlink_to(tmp_path / "outside")
    path = f"{workspace}/.agents/skills/a/SKILL.md"
    problem = f"a link leads out of {workspace}"
    assert find_skills(workspace, config, is_open) == ((path, "", path, problem),)


@pytest.mark.promise("B60")
def test_a_skill_that_may_not_be_read_unasked_is_refused_unless_it_is_the_users(places):
    workspace, config = places
    write(workspace / "closed", "stolen")
    (workspace / ".agents" / "skills" / "a").mkdir(parents=True)
    (workspace / ".agents/skills/a/SKILL.md").symlink_to("../../../closed/SKILL.md")
    write(config / "skills" / "closed", "mine")
    mine, refused = find_skills(workspace, config, is_open)
    assert (mine.name, mine.problem) == ("mine", "")
    assert refused.description == ""
    assert refused.problem == f"reading {workspace}/closed/SKILL.md needs approval"


def test_no_more_than_the_limit_are_listed(places):
    workspace, config = places
    for number in range(SKILLS_MAX + 5):
        write(workspace / ".agents" / "skills" / f"{number:03}", f"s{number}")
    *listed, last = find_skills(workspace, config, is_open)
    assert len(listed) == SKILLS_MAX
    assert "more than 100 skills" in last.problem
