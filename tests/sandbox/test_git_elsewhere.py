"""No build writes what git executes because of a configuration outside the repository's own.

That is the user's configuration, and that of other repositories in the workspace. Bare repositories
count, too.
"""

import os
from pathlib import Path

import pytest

from sandbox.test_git_configuration import loosest
from sandbox.test_git_directories import FOUND, git, main, needs_sandbox, run
from tiller_daemon.config import SandboxPolicy
from tiller_daemon.sandbox.confiner import Confiner
from tiller_daemon.sandbox.enclosure import Enclosure
from tiller_daemon.sandbox.git_directories import NESTED_MAX, git_paths

__all__ = ["main"]

pytestmark = needs_sandbox

HOOK = "#!/bin/sh\ntouch ran\n"
EXECUTING = "[core]\n\tfsmonitor = touch ran; true\n"

USER_FILES = {
    "in the home": ({}, ".gitconfig"),
    "in the directory of configuration": ({}, ".config/git/config"),
    "in another such directory": ({"XDG_CONFIG_HOME": "{home}/xdg"}, "xdg/git/config"),
    "named by a variable": ({"GIT_CONFIG_GLOBAL": "{home}/own.cfg"}, "own.cfg"),
}
"""Where the user's configuration is: variables, and the file in the home."""

NAMED = {
    "a directory of hooks": ("[core]\n\thooksPath = .githooks\n", ".githooks/pre-commit", HOOK),
    "a file": ("[include]\n\tpath = {work}/shared.cfg\n", "shared.cfg", EXECUTING),
    "a file that may be missing": (
        '[include]\n\tpath = ":(optional){work}/shared.cfg"\n',
        "shared.cfg",
        EXECUTING,
    ),
}
"""What the user's configuration says, a file in the workspace, and what a build writes there."""


@pytest.fixture(autouse=True)
def home(main: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(main.parent))
    return main.parent


def plant(place: Path, path: str, content: str, nested: tuple[Path, ...] = ()) -> None:
    """Let a build that runs unasked write an executable file."""
    script = f"mkdir -p '{Path(path).parent}'; printf '%s' '{content}' >'{path}'; chmod +x '{path}'"
    run(place, script, Enclosure.BUILD, nested=nested)


@pytest.mark.parametrize("where", USER_FILES)
@pytest.mark.parametrize("name", NAMED)
def test_b60_no_build_creates_what_the_users_configuration_names(
    main: Path, home: Path, monkeypatch: pytest.MonkeyPatch, where: str, name: str
) -> None:
    variables, config = USER_FILES[where]
    text, path, content = NAMED[name]
    for key, value in variables.items():
        monkeypatch.setenv(key, value.format(home=home))
    (home / config).parent.mkdir(parents=True, exist_ok=True)
    (home / config).write_text(text.format(work=main))
    plant(main, path, content)
    command = " ".join(f"{key}='{os.environ[key]}'" for key in ("HOME", *variables))
    git(main, "-c", f"alias.work=!{command} git commit -q --allow-empty -m x", "work")
    assert not (main / "ran").exists()


def test_without_such_a_configuration_a_build_creates_the_same_files(main: Path) -> None:
    for _, path, content in NAMED.values():
        plant(main, path, content)
        assert (main / path).read_text() == content


@pytest.mark.parametrize("text", ["[init]\n\tdefaultBranch = docs\n", "[alias]\n\tl = log docs\n"])
def test_a_word_in_the_users_configuration_is_no_directory(
    main: Path, home: Path, text: str
) -> None:
    (home / ".gitconfig").write_text(text)
    (main / "docs").mkdir()
    plant(main, "docs/page", "x")
    assert (main / "docs" / "page").exists()


def test_a_build_needs_approval_while_the_users_configuration_is_broken(
    main: Path, home: Path
) -> None:
    assert loosest(main) is Enclosure.BUILD
    (home / ".gitconfig").write_text("[core")
    assert loosest(main) is Enclosure.READ_ONLY


def test_no_configuration_of_the_user_counts_as_an_empty_one(
    main: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    assert loosest(main) is Enclosure.BUILD


@pytest.mark.parametrize("inside", ["", "hooks", "refs/heads"])
def test_a_build_needs_approval_in_a_bare_repository(main: Path, home: Path, inside: str) -> None:
    git(home, "clone", "-q", "--bare", "main", "bare.git")
    place = home / "bare.git" / inside
    assert loosest(place) is Enclosure.READ_ONLY
    confiner = Confiner(lambda: FOUND, home / "home", {})
    assert confiner.is_executed(SandboxPolicy(), place, place / "file")


def test_b60_no_command_changes_what_git_executes_in_a_bare_repository(
    main: Path, home: Path
) -> None:
    git(home, "clone", "-q", "--bare", "main", "bare.git")
    bare = home / "bare.git"
    attack = "echo x >>config; echo x >hooks/post-update; mv hooks h; git branch side; echo $?"
    assert run(bare, attack).stdout == "0\n"
    assert git(bare, "branch", "--list", "side")
    assert not (bare / "hooks" / "post-update").exists()
    assert "x" not in (bare / "config").read_text().split()


@pytest.mark.parametrize("kind", ["repository", "bare repository"])
@pytest.mark.parametrize("name", NAMED)
def test_b60_no_build_creates_what_the_configuration_of_a_nested_repository_names(
    main: Path, kind: str, name: str
) -> None:
    text, path, content = NAMED[name]
    nested = main / "nested"
    if kind == "repository":
        git(main, "init", "-q", "nested")
        config, planted = nested / ".git" / "config", nested / path
    else:
        git(main, "init", "-q", "--bare", "nested")
        config, planted = nested / "config", nested / "hooks" / "pre-commit"
    config.write_text(config.read_text() + text.format(work=nested))
    plant(main, str(planted), content, nested=(nested,))
    assert not planted.exists()
    confiner = Confiner(lambda: FOUND, main.parent / "home", {})
    assert confiner.is_executed(SandboxPolicy(), main, planted)
    assert not confiner.is_executed(SandboxPolicy(), main, main / "file")


def test_b60_a_nested_repository_that_leads_git_through_a_link_can_not_be_written(
    main: Path,
) -> None:
    git(main, "init", "-q", "nested")
    nested = main / "nested"
    git(nested, "config", "core.hooksPath", "link/hooks")
    (main / "real" / "hooks").mkdir(parents=True)
    (nested / "link").symlink_to("../real")
    attack = "echo x >nested/link/hooks/pre-commit; rm nested/link; mkdir -p nested/link/hooks"
    run(main, attack, Enclosure.BUILD, nested=(nested,))
    assert (nested / "link").is_symlink()
    assert list((main / "real" / "hooks").iterdir()) == []


def test_b60_no_build_writes_to_more_nested_repositories_than_are_read(main: Path) -> None:
    nested = tuple(main / f"n{number}" for number in range(NESTED_MAX + 1))
    for place in nested:
        place.mkdir()
    for place in (nested[0], nested[-1]):
        plant(main, f"{place}/file", "x", nested=nested)
    assert (nested[0] / "file").exists()
    assert not (nested[-1] / "file").exists()


def test_a_program_that_is_missing_is_known(main: Path) -> None:
    git(main, "config", "core.fsmonitor", "./tools/watch --quick")
    watch = main / "tools" / "watch"
    confiner = Confiner(lambda: FOUND, main.parent / "home", {})
    assert watch in git_paths(main).programs
    assert confiner.is_executed(SandboxPolicy(), main, watch)
    assert confiner.named_by_git(main, ()) == []
    watch.parent.mkdir()
    watch.write_text("")
    assert confiner.named_by_git(main, ()) == [watch]
