"""Agents written as Markdown: what a file may say, and what a project's may not."""

import pytest

from tiller_daemon.config import Agent
from tiller_daemon.workspace.agents import project_agents, user_agents
from tiller_daemon.workspace.front_matter import FILE_BYTES_MAX
from tiller_protocol.settings import Rule

TEXT = """\
---
description: Writes
  documentation
model: local/x
tools: [read, edit]
permissions:
  - {permission: write, pattern: "docs/*", action: allow}
  - {permission: bash, pattern: "*", action: deny}
  - {permission: write, pattern: "*", action: ask}
read_only: true
mode: all
---
You write.
"""


def is_open(path):
    """Whether a file may be read unasked."""
    return path.name != "prod.env"


def write(folder, name, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def test_a_users_file_may_say_everything(tmp_path):
    write(tmp_path / "agents", "docs.md", TEXT)
    write(tmp_path / "agents", "bare.md", "")
    write(tmp_path / "agents", "no agent.md", "x")
    write(tmp_path / "agents", "notes.txt", "x")
    found = user_agents(tmp_path)
    assert list(found) == ["bare", "docs"]
    assert found["bare"].agent == Agent()
    assert found["docs"].agent == Agent(
        description="Writes documentation",
        prompt="You write.",
        model="local/x",
        tools=("read", "edit"),
        permissions=(
            Rule("write", "docs/*", "allow"),
            Rule("bash", "*", "deny"),
            Rule("write", "*", "ask"),
        ),
        read_only=True,
    )


@pytest.mark.promise("B60")
def test_of_a_projects_rules_only_denials_count(tmp_path):
    write(tmp_path / ".tiller" / "agents", "docs.md", TEXT)
    found = project_agents(tmp_path, is_open)["docs"].agent
    assert found.permissions == (Rule("bash", "*", "deny"),)


@pytest.mark.promise("B60")
def test_a_projects_file_that_leads_out_of_it_is_no_agent(tmp_path):
    write(tmp_path, "secret", "x")
    folder = tmp_path / "w" / ".tiller" / "agents"
    folder.mkdir(parents=True)
    (folder / "a.md").symlink_to(tmp_path / "secret")
    write(tmp_path / "w", "prod.env", "x")
    (folder / "b.md").symlink_to("../../prod.env")
    place = tmp_path / "w"
    assert project_agents(place, is_open) == {
        "a": (Agent(), f"its file was not read: a link leads out of {place}"),
        "b": (Agent(), f"its file was not read: reading {place}/prod.env needs approval"),
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("---\npermissions: [{permission: write}]\n---\n", "pattern"),
        ("---\npermissions: [{permission: a, pattern: b, action: yes}]\n---\n", "action"),
        ("---\ntools: read\n---\n", "tools"),
        ("---\n", "no end"),
        ("x" * (FILE_BYTES_MAX + 1), "longer"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path, text, problem):
    write(tmp_path / "agents", "bad.md", text)
    assert problem in user_agents(tmp_path)["bad"].problem
