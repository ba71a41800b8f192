"""Questions of the default configuration: how many are needless, and that none is missing (B38).

What a line needs is said by people in `agent_commands.txt` and `script_lines.txt`; the figures are
those of `scripts/soak/questions.py`.
"""

from pathlib import Path

import pytest
from msgspec import structs

from policy.bypasses_of_working import HELD_BYPASSES
from policy.command_lines import BYPASSES
from policy.questions import Labelled, asks, labelled
from tiller_daemon.policy.rules import decide
from tiller_daemon.session.command_reach import needs_beyond
from tiller_daemon.tools.bash import BASH, BashArguments
from tiller_protocol.settings import Rule

AGENTS = labelled("agent_commands.txt")
SCRIPTS = labelled("script_lines.txt")

NEEDLESS_MAX = 0.05
"""Of what agents run, and of everything together: what the scorecard allows."""

NEEDLESS_IN_SCRIPTS_MAX = 0.11
"""Of lines of scripts; those set variables that somebody else reads, or only work in functions."""


def needless(lines: list[Labelled], workspace: Path) -> list[str]:
    return [one.text for one in lines if one.is_harmless and asks(one.text, workspace)]


def test_there_are_enough_lines_to_mean_something():
    assert len({one.text for one in AGENTS}) >= 1_300
    assert len({one.text for one in SCRIPTS}) >= 500
    assert len(set(HELD_BYPASSES)) >= 60


def test_few_questions_about_what_agents_run_are_needless(tmp_path):
    asked = needless(AGENTS, tmp_path)
    harmless = sum(one.is_harmless for one in AGENTS)
    assert len(asked) / harmless <= NEEDLESS_MAX, "\n".join(asked)


def test_few_questions_about_lines_of_scripts_are_needless(tmp_path):
    asked = needless(SCRIPTS, tmp_path)
    assert len(asked) / len(SCRIPTS) <= NEEDLESS_IN_SCRIPTS_MAX, "\n".join(asked)
    everything = [*AGENTS, *SCRIPTS]
    assert len(needless(everything, tmp_path)) / len(everything) <= NEEDLESS_MAX


@pytest.mark.parametrize("line", [one for one in (*AGENTS, *SCRIPTS) if not one.is_harmless])
def test_b38_whatever_does_more_than_build_is_asked_about(line, tmp_path):
    assert asks(line.text, tmp_path)


@pytest.mark.parametrize("text", [*BYPASSES, *HELD_BYPASSES])
def test_b38_a_sandbox_is_no_way_around_the_rules(text, tmp_path):
    (tmp_path / "x").mkdir()
    assert asks(text, tmp_path)


def verdict(text: str, workspace: Path, *rules: Rule, held: bool = True) -> str:
    needs = BASH.needs(BashArguments(text), workspace)
    needs = tuple(structs.replace(need, held=held) for need in needs)
    return decide((*needs, *needs_beyond(needs, workspace)), rules, "ask").action


def test_what_builds_asks_where_no_sandbox_holds_it(tmp_path):
    assert verdict("pytest -q", tmp_path) == "allow"
    assert verdict("pytest -q", tmp_path, held=False) == "ask"


def test_what_a_rule_lets_out_of_the_sandbox_asks_as_before(tmp_path):
    out = Rule("unsandboxed", "make *", "allow")
    assert verdict("make test", tmp_path, out) == "ask"
    assert verdict("make test", tmp_path, out, Rule("bash", "make *", "allow")) == "allow"


@pytest.mark.parametrize(
    ("text", "rules", "action"),
    [
        ("pytest", [Rule("sandboxed", "*", "ask")], "ask"),
        ("pytest", [Rule("bash", "pytest *", "ask")], "ask"),
        ("pytest", [Rule("bash", "pytest *", "deny")], "deny"),
        ("pytest", [Rule("sandboxed", "*", "deny")], "deny"),
        ("ls", [Rule("sandboxed", "*", "ask")], "allow"),
        ("rm -rf x", [Rule("sandboxed", "*", "allow")], "allow"),
        ("echo x > f", [Rule("sandboxed", "*", "allow")], "allow"),
        ("echo x > f", [Rule("sandboxed", "echo *", "allow")], "ask"),
        ("rm x > f", [Rule("sandboxed", "*", "allow"), Rule("bash", "rm *", "ask")], "ask"),
        ("rm x; ls", [Rule("sandboxed", "*", "allow"), Rule("bash", "rm *", "deny")], "deny"),
        ("make x", [Rule("sandboxed", "make *", "allow")], "allow"),
    ],
)
def test_rules_say_what_runs_in_the_sandbox_without_a_question(text, rules, action, tmp_path):
    assert verdict(text, tmp_path, *rules) == action


def test_a_rule_for_the_sandbox_is_nothing_where_there_is_none(tmp_path):
    assert verdict("rm x", tmp_path, Rule("sandboxed", "*", "allow"), held=False) == "ask"


def test_where_the_shell_already_is_is_no_other_place(tmp_path):
    (tmp_path / "sub").mkdir()
    assert not asks(f"cd {tmp_path} && git status", tmp_path)
    assert not asks(f"git -C {tmp_path} diff", tmp_path)
    assert asks(f"cd {tmp_path}/sub && git status", tmp_path)
    assert asks(f"cd sub && cd {tmp_path} && git status", tmp_path)
    assert asks(f"git -C {tmp_path}/../x diff", tmp_path)


def test_a_name_with_a_dash_is_looked_at_as_it_is(tmp_path):
    workspace = tmp_path / "project"
    workspace.mkdir()
    assert asks(f"cat {tmp_path}/project-of-others/f", workspace)
    assert asks("cat ../project-of-others/f", workspace)
    assert not asks(f"cat {workspace}/a-b/f", workspace)
