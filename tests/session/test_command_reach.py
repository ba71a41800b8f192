"""A command that only reads is asked about when it would look outside the workspace (T1, G13)."""

from pathlib import Path

import pytest

from tiller_daemon.policy.rules import decide, rules_of_always
from tiller_daemon.session.command_reach import UNKNOWN, needs_beyond
from tiller_daemon.tools.base import Need
from tiller_protocol.settings import Rule


def subjects(command: str, workspace: Path) -> tuple[str, ...]:
    found = needs_beyond([Need("bash", (command,), kind="command")], workspace)
    return found[0].subjects if found else ()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "work" / "src").mkdir(parents=True)
    (tmp_path / "secret").write_text("key")
    (tmp_path / "work" / "link").symlink_to(tmp_path / "secret")
    return tmp_path / "work"


@pytest.mark.parametrize(
    "command",
    [
        "cat /etc/passwd",
        "cat ../secret",
        "cat src/../../secret",
        "cat link",
        "cat < ../secret",
        "head -n 1 ~/.ssh/id_ed25519",
        "ls /",
        "ls ..",
        "find / -name '*.pem'",
        "grep -r key /home",
        "grep -rf/etc/shadow src",
        "grep key --include=*.py ..",
        "cat src/a && cat /proc/1/environ",
        "cd .. && cat secret",
        "diff src/a /etc/hosts",
        "wc -l $(echo /etc/passwd)",
        "cat /proc/$PPID/environ",
        "cat ~root/x",
        "tail -f /var/log/syslog | head",
    ],
)
def test_looking_outside_needs_a_permission(command: str, workspace: Path) -> None:
    assert subjects(command, workspace), command


@pytest.mark.parametrize(
    "command",
    [
        "ls",
        "cat src/a.py | head -5",
        "git status",
        "git log --oneline -5 -- src",
        "grep -rn '/api/v1' src",
        "echo /etc/passwd $HOME",
        "find . -name '*.py' | wc -l",
        "sleep 0.1; pwd; date",
        "cat a 2>/dev/null",
        "ls src > /dev/null",
        "wc -l < src/a.py",
        "rm -rf /",
        "git -C / log",
    ],
)
def test_looking_inside_needs_none_and_other_commands_are_asked_about_as_a_whole(
    command: str, workspace: Path
) -> None:
    assert subjects(command, workspace) == (), command


def test_what_only_the_run_will_tell_is_said_so_and_never_allowed_for_good(
    workspace: Path,
) -> None:
    (need,) = needs_beyond([Need("bash", ('cat "$file"',), kind="command")], workspace)
    assert need.subjects == (UNKNOWN,)
    assert need.always == ()


@pytest.mark.parametrize(
    ("path", "asks"),
    [
        (".git/hooks/pre-commit", True),
        (".git/config", True),
        ("sub/.git/hooks/x", True),
        (".GIT/hooks/x", True),
        (".tiller/config.toml", True),
        (".vscode/tasks.json", True),
        (".claude/settings.json", True),
        (".envrc", True),
        ("/home/u/.codex/config.toml", True),
        (".gitignore", False),
        ("src/git/hooks.py", False),
        (".github/workflows/x.yml", False),
    ],
)
def test_b60_leave_to_write_is_no_leave_to_write_what_makes_programs_run(path, asks):
    """An agent's way out of its sandbox would be a hook that the user's own git runs."""
    write = Need("write", (path,), kind="path")
    needs = (write, *needs_beyond((write,), Path("/w")))
    rules = (Rule("write", "*", "allow"), Rule("bash", "*", "allow"))
    verdict = decide(needs, rules, "ask")
    assert verdict.action == ("ask" if asks else "allow")
    if asks:
        assert verdict.permission == "protected_path"
        granted = (*rules, *rules_of_always(needs))
        assert decide(needs, granted, "ask").action == "allow"


def test_git_is_asked_about_where_the_repository_that_it_is_sent_to_names_programs(
    workspace: Path,
) -> None:
    git = workspace / "src" / ".git"
    for name in ("objects", "refs"):
        (git / name).mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text("[core]\n\tfsmonitor = ./evil\n")
    assert subjects("git -C src status", workspace) == ("fsmonitor",)
    assert subjects("git -C src -C . status", workspace) == ("fsmonitor",)
    assert not subjects("git status", workspace)


def test_git_is_not_sent_through_a_link_to_outside_without_a_question(workspace: Path) -> None:
    (workspace / "out").symlink_to(workspace.parent)
    assert subjects("git -C out status", workspace)
