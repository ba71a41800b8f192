"""Questions of the default configuration: how many are needless, and that none is missing (B38).

What a line needs is said by people in `agent_commands.txt` and `script_lines.txt`; the figures are
those of `scripts/soak/questions.py`. That sandboxes hold what runs unasked is shown in
`tests/e2e/test_unasked_lines.py`.
"""

from pathlib import Path

import pytest

from policy.questions import Labelled, asks, default_verdict, is_contained, labelled
from tiller_daemon.sandbox.level import SandboxLevel

AGENTS = labelled("agent_commands.txt")
SCRIPTS = labelled("script_lines.txt")

NEEDLESS_MAX = 0.02
"""Of the harmless lines of each file."""

UNASKED_WRITES_MAX = 0.1
"""Of the lines that change files: those that a build does as well."""


def needless(lines: list[Labelled], workspace: Path) -> list[str]:
    return [one.text for one in lines if one.is_harmless and asks(one.text, workspace)]


def test_there_are_enough_lines_to_mean_something():
    assert len({one.text for one in AGENTS}) >= 1_300
    assert len({one.text for one in SCRIPTS}) >= 500


@pytest.mark.parametrize("lines", [AGENTS, SCRIPTS], ids=["agents", "scripts"])
def test_few_questions_are_needless(lines, tmp_path):
    asked = needless(lines, tmp_path)
    harmless = sum(one.is_harmless for one in lines)
    assert len(asked) / harmless <= NEEDLESS_MAX, "\n".join(asked)


@pytest.mark.promise("B38")
def test_whatever_does_more_than_build_asks_or_is_held(tmp_path):
    more = [one for one in (*AGENTS, *SCRIPTS) if not one.is_harmless]
    assert [one.text for one in more if not is_contained(one, tmp_path)] == []


def test_most_of_what_changes_files_asks_and_is_not_taken_for_a_build(tmp_path):
    writes = [one for one in AGENTS if one.label == "writes"]
    found = [default_verdict(one.text, tmp_path) for one in writes]
    built = [one for one in found if one.action == "allow" and one.level == SandboxLevel.BUILD]
    assert len(built) / len(writes) <= UNASKED_WRITES_MAX, [one.subject for one in built]


def test_most_of_what_builds_may_write_its_products(tmp_path):
    """The read-only sandbox would only make it fail."""
    works = [one for one in AGENTS if one.label == "works"]
    found = [default_verdict(one.text, tmp_path).level for one in works]
    assert found.count(SandboxLevel.BUILD) / len(works) >= 0.9


def test_where_the_shell_already_is_is_no_other_place(tmp_path):
    (tmp_path / "sub").mkdir()
    assert not asks(f"cd {tmp_path} && git status", tmp_path)
    assert not asks(f"git -C {tmp_path} diff", tmp_path)
    assert not asks(f"cd sub && cd {tmp_path} && git status", tmp_path)
    assert asks(f"git -C {tmp_path}/../x diff", tmp_path)


def test_a_name_with_a_dash_is_looked_at_as_it_is(tmp_path):
    workspace = tmp_path / "project"
    workspace.mkdir()
    assert asks(f"cat {tmp_path}/project-of-others/f", workspace)
    assert asks("cat ../project-of-others/f", workspace)
    assert not asks(f"cat {workspace}/a-b/f", workspace)
