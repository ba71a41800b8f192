"""No build writes what git's configuration names, wherever that is and even if it is missing.

Each attack is a build that runs unasked. Afterwards, the user runs git outside of the sandbox.
"""

import tempfile
from pathlib import Path
from typing import Final

import pytest

from sandbox.test_git_directories import FOUND, git, main, named, needs_sandbox, run, worktree
from support.file_clock import wait_for_tick
from tiller_daemon.config import SandboxPolicy
from tiller_daemon.sandbox.confiner import Confiner
from tiller_daemon.sandbox.enclosure import Enclosure
from tiller_daemon.sandbox.git_configuration import CONFIG_FILES_MAX

__all__ = ["main", "worktree"]

INCLUDED: Final = {
    "beside .git": ("include.path", "../shared.cfg", "shared.cfg"),
    "in a missing directory": ("include.path", "../conf/git/shared.cfg", "conf/git/shared.cfg"),
    "by an absolute path": ("include.path", "{work}/shared.cfg", "shared.cfg"),
    "in the home": ("include.path", "~/main/shared.cfg", "shared.cfg"),
    "on a condition that holds": ("includeIf.onbranch:trunk.path", "../shared.cfg", "shared.cfg"),
    "on one that will hold": ("includeIf.onbranch:other.path", "../shared.cfg", "shared.cfg"),
}
"""How a file is included: a key, its value, and the file in the workspace."""

HOOKS: Final = {
    "a directory": ("", "githooks", "githooks"),
    "a directory in a missing one": ("", ".husky/_", ".husky/_"),
    "for a push, which runs hooks in the git directory": ("", "../githooks", "githooks"),
    "below the directory of the session": ("sub", "sub/githooks", "sub/githooks"),
}
"""The directory of the session, the value of `core.hooksPath`, and the directory of hooks."""


@pytest.fixture(autouse=True)
def _home(main: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(main.parent))


def build(place: Path, path: Path, text: str) -> None:
    """Let a build that runs unasked write an executable file."""
    script = f"mkdir -p '{path.parent}'; printf '%s' '{text}' >'{path}'; chmod +x '{path}'"
    run(place, script, Enclosure.BUILD)


def use_git(main: Path) -> None:
    """Use git as the user does: on two branches, with a commit and a push on each."""
    user = f"HOME={main.parent}; git push -q . HEAD:refs/heads/x; git commit -qm x --allow-empty"
    for branch in ("trunk", "other"):
        git(main, "checkout", "-q", "-B", branch)
        git(main, "-c", f"alias.work=!{user}", "work")


def loosest(place: Path) -> Enclosure | None:
    confiner = Confiner(lambda: FOUND, place.parent / "home", {})
    return confiner.loosest_unasked(SandboxPolicy(), place)


@needs_sandbox
@pytest.mark.parametrize("name", INCLUDED)
def test_b60_no_build_creates_a_file_that_the_configuration_includes(main: Path, name: str) -> None:
    key, value, path = INCLUDED[name]
    git(main, "config", key, value.format(work=main))
    build(main, main / path, "[core]\n\tfsmonitor = touch ran; true\n")
    use_git(main)
    assert not (main / "ran").exists()


@needs_sandbox
@pytest.mark.parametrize("name", INCLUDED)
def test_git_works_in_a_sandbox_while_an_included_file_is_missing(main: Path, name: str) -> None:
    key, value, path = INCLUDED[name]
    git(main, "config", key, value.format(work=main))
    assert run(main, "git status && git commit -q --allow-empty -m x").returncode == 0
    assert git(main, "log", "-1", "--format=%s") == "x"
    assert not (main / Path(path).parts[0]).exists()


@needs_sandbox
@pytest.mark.parametrize("name", HOOKS)
def test_b60_no_build_creates_a_hook(main: Path, name: str) -> None:
    session, value, path = HOOKS[name]
    (main / session).mkdir(exist_ok=True)
    git(main, "config", "core.hooksPath", value)
    for hook in ("pre-commit", "pre-receive"):
        build(main / session, main / path / hook, f"#!/bin/sh\ntouch {main}/ran\n")
    use_git(main)
    assert not (main / "ran").exists()


@needs_sandbox
def test_b60_no_build_changes_what_only_another_branch_includes(main: Path) -> None:
    git(main, "config", "includeIf.onbranch:other.path", "../first.cfg")
    (main / "first.cfg").write_text("[include]\n\tpath = conf/second.cfg\n")
    (main / "conf").mkdir()
    (main / "conf/second.cfg").write_text("[core]\n\thooksPath = githooks\n")
    build(main, main / "first.cfg", "[core]\n\tfsmonitor = touch ran; true\n")
    build(main, main / "conf/second.cfg", "[core]\n\tfsmonitor = touch ran; true\n")
    build(main, main / "githooks/pre-commit", "#!/bin/sh\ntouch ran\n")
    use_git(main)
    assert not (main / "ran").exists()


@needs_sandbox
@pytest.mark.parametrize("kind", ["main", "worktree"])
def test_b60_the_configuration_of_one_work_tree_counts_too(
    request: pytest.FixtureRequest, kind: str
) -> None:
    place: Path = request.getfixturevalue(kind)
    git(place, "config", "extensions.worktreeConfig", "true")
    git(place, "config", "--worktree", "core.hooksPath", "githooks")
    build(place, place / "githooks/pre-commit", "#!/bin/sh\ntouch ran\n")
    git(place, "commit", "-q", "--allow-empty", "-m", "x")
    assert not (place / "ran").exists()


@needs_sandbox
def test_a_build_needs_approval_where_the_workspace_itself_is_the_directory_of_hooks(
    main: Path,
) -> None:
    assert loosest(main) is Enclosure.BUILD
    git(main, "config", "core.hooksPath", ".")
    assert loosest(main) is Enclosure.READ_ONLY


@needs_sandbox
@pytest.mark.parametrize("key", ["core.hooksPath", "include.path"])
@pytest.mark.parametrize("is_missing", [False, True])
def test_a_build_needs_approval_where_it_could_replace_a_link_on_the_way_to_a_named_path(
    main: Path, key: str, *, is_missing: bool
) -> None:
    value, executed = {
        "core.hooksPath": ("link/hooks", main / "real/hooks/pre-commit"),
        "include.path": ("../link/shared.cfg", main / "real/shared.cfg"),
    }[key]
    (main / "real").mkdir()
    (main / "link").symlink_to(main / "real")
    if not is_missing:
        executed.parent.mkdir(exist_ok=True)
        executed.write_text("")
    git(main, "config", key, value)
    assert loosest(main) is Enclosure.READ_ONLY
    done = run(main, f"git commit -q --allow-empty -m x; mkdir -p real/hooks; echo x >{executed}")
    assert "Read-only file system" in done.stderr
    assert git(main, "log", "-1", "--format=%s") == "x"
    assert executed.exists() is not is_missing


@needs_sandbox
def test_of_two_commands_at_once_the_last_removes_the_placeholders(main: Path) -> None:
    git(main, "config", "include.path", "../conf/git/shared.cfg")
    confiner = Confiner(lambda: FOUND, main.parent / "home", {})
    with tempfile.TemporaryDirectory() as spill:
        policy = SandboxPolicy()
        first = confiner.confined(Enclosure.BUILD, policy, main, Path(spill))
        assert first
        with first.wrap(["true"]):
            second = confiner.confined(Enclosure.BUILD, policy, main, Path(spill))
            assert second
            stays = second.wrap(["true"])
            stays.__enter__()
        assert (main / "conf/git").exists()
        stays.__exit__(None, None, None)
    assert not (main / "conf").exists()


def test_a_setting_may_be_longer_than_any_name_of_a_file(main: Path) -> None:
    git(main, "config", "alias.long", f"!{'x' * 5000}")
    git(main, "config", "core.hooksPath", "githooks")
    assert named(main) == [main / "githooks"]


@needs_sandbox
def test_names_that_no_file_can_have_stop_no_build(main: Path) -> None:
    git(main, "config", "includeIf.onbranch:other.path", "../" + "y" * 300)
    git(main, "config", "branch.other.merge", "refs" + "/a" * 60_000)
    build(main, main / "built", "")
    assert (main / "built").exists()
    assert named(main) == []


@needs_sandbox
def test_a_build_needs_approval_until_git_can_read_its_configuration(
    main: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure of git changes no file, so it is not remembered."""
    git(main, "config", "core.hooksPath", "githooks")
    confiner = Confiner(lambda: FOUND, main.parent / "home", {})
    policy, hooks, spill = SandboxPolicy(), main / "githooks", main.parent / "spill"
    wait_for_tick(main)
    with monkeypatch.context() as patched:
        patched.setenv("PATH", str(main.parent / "nowhere"))
        assert confiner.loosest_unasked(policy, main) is Enclosure.READ_ONLY
        assert confiner.is_executed(policy, main, hooks / "pre-commit")
        before = confiner.confined(Enclosure.SESSION, policy, main, spill)
    assert confiner.loosest_unasked(policy, main) is Enclosure.BUILD
    assert not confiner.is_executed(policy, main, main / "file")
    after = confiner.confined(Enclosure.SESSION, policy, main, spill)
    assert before
    assert after
    assert hooks not in before.confinement.absent
    assert hooks in after.confinement.absent


@needs_sandbox
@pytest.mark.parametrize("broken", ["[core", "[include]\n\tpath = .\n"])
def test_a_build_needs_approval_while_the_configuration_is_broken(main: Path, broken: str) -> None:
    config = main / ".git" / "config"
    text = config.read_text()
    config.write_text(text + broken)
    assert loosest(main) is Enclosure.READ_ONLY
    config.write_text(text)
    assert loosest(main) is Enclosure.BUILD


@needs_sandbox
def test_a_build_needs_approval_where_too_many_files_are_included(main: Path) -> None:
    for number in range(CONFIG_FILES_MAX):
        git(main, "config", "--add", "include.path", f"{number}.cfg")
    assert loosest(main) is Enclosure.READ_ONLY
