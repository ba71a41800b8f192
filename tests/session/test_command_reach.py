"""A command that only reads is asked about when it would look outside the workspace (T1, G13)."""

from pathlib import Path

import pytest

from tiller_daemon.session.command_reach import UNKNOWN, needs_beyond
from tiller_daemon.tools.base import Need


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
