"""No build writes what git executes because of a configuration outside the repository's own.

That is the user's configuration, and that of other repositories in the workspace. Bare repositories
count, too.
"""

import os
import tempfile
from pathlib import Path

import pytest

from sandbox.test_git_configuration import loosest
from sandbox.test_git_directories import FOUND, git, main, needs_sandbox, run
from tiller_daemon.config import SandboxPolicy
from tiller_daemon.sandbox.confiner import Confiner
from tiller_daemon.sandbox.enclosure import Enclosure
from tiller_daemon.sandbox.git_directories import git_paths
from tiller_daemon.sandbox.scan import Scanner

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
    "hooks at an absolute path with a prefix": (
        "[core]\n\thooksPath = %(prefix)/{work}/hooks\n",
        "hooks/pre-commit",
        HOOK,
    ),
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


ORDINARY = """
[init]
    defaultBranch = main
[alias]
    fmt = !black src/ tests/
    clean-all = "!rm -rf dist/ build"
    lg = log --format='%h/%s' docs
[safe]
    directory = {work}/pkg
[gitflow "prefix"]
    release = release/
"""
"""What the user's configuration often says. None of it names what git executes in a workspace."""


def test_words_in_the_users_configuration_name_no_programs(main: Path, home: Path) -> None:
    includes = "".join(f'[includeIf "gitdir:~/{n}/"]\n\tpath = {n}.cfg\n' for n in range(26))
    (home / ".gitconfig").write_text(ORDINARY.format(work=main) + includes)
    names = ("main", "src", "tests", "dist", "build", "docs", "pkg", "release")
    for name in names[:5]:
        (main / name).mkdir()
    (home / ".config" / "git").mkdir(parents=True)
    for name in names:
        plant(main, f"{name}/file", "x")
        assert (main / name / "file").exists(), name
    assert loosest(main) is Enclosure.BUILD


def test_a_build_needs_approval_while_the_users_configuration_is_broken(
    main: Path, home: Path
) -> None:
    assert loosest(main) is Enclosure.BUILD
    (home / ".gitconfig").write_text("[include")
    assert loosest(main) is Enclosure.READ_ONLY


@pytest.mark.parametrize("kind", ["repository", "no repository"])
def test_b60_no_build_changes_the_users_configuration_where_a_link_leads_into_the_workspace(
    main: Path, home: Path, kind: str
) -> None:
    place = main if kind == "repository" else home / "dotfiles"
    place.mkdir(exist_ok=True)
    (place / "gitconfig").write_text("")
    (home / ".gitconfig").symlink_to(place / "gitconfig")
    plant(place, "gitconfig", EXECUTING)
    assert (place / "gitconfig").read_text() == ""
    confiner = Confiner(lambda: FOUND, home / "home", {})
    assert confiner.is_executed(SandboxPolicy(), place, place / "gitconfig")


@pytest.mark.parametrize(
    "text", ["[include]\n\tpath = ~/dotfiles/x\n", "[core]\n\thooksPath = ~/dotfiles/x\n"]
)
def test_b60_the_users_configuration_counts_without_a_repository(home: Path, text: str) -> None:
    (home / ".gitconfig").write_text(text)
    (home / "dotfiles").mkdir()
    run(home / "dotfiles", "echo x >x; mkdir x; echo x >x/pre-commit", Enclosure.BUILD)
    assert list((home / "dotfiles").iterdir()) == []


def test_b60_a_link_outside_of_the_workspace_may_lead_to_hooks_inside(
    main: Path, home: Path
) -> None:
    (home / ".gitconfig").write_text("[core]\n\thooksPath = ~/.hooks\n")
    (home / ".hooks").symlink_to(main / "githooks")
    (main / "real" / "sub").mkdir(parents=True)
    (home / "ln").symlink_to(main / "real" / "sub")
    git(main, "config", "include.path", str(home / "ln/../evil.cfg"))
    plant(main, "githooks/pre-commit", HOOK)
    plant(main, "real/evil.cfg", EXECUTING)
    assert not (main / "githooks").exists()
    assert not (main / "real" / "evil.cfg").exists()


def test_b60_links_among_the_users_hooks_may_lead_into_the_workspace(
    main: Path, home: Path
) -> None:
    (home / ".gitconfig").write_text("[core]\n\thooksPath = ~/.hooks\n")
    (home / ".hooks").mkdir()
    (main / "hook").write_text("")
    (home / ".hooks" / "pre-commit").symlink_to(main / "hook")
    plant(main, "hook", HOOK)
    assert (main / "hook").read_text() == ""


def test_b60_no_build_writes_templates_for_hooks(home: Path) -> None:
    dotfiles = home / "dotfiles"
    dotfiles.mkdir()
    (home / ".gitconfig").write_text("[init]\n\ttemplateDir = ~/dotfiles/template\n")
    plant(dotfiles, "template/hooks/post-checkout", HOOK)
    assert not (dotfiles / "template").exists()


def test_b60_no_build_creates_the_users_configuration(home: Path) -> None:
    """As with a directory that `stow` has made a link."""
    (home / "dotfiles" / "git").mkdir(parents=True)
    (home / ".config").mkdir()
    (home / ".config" / "git").symlink_to(home / "dotfiles" / "git")
    plant(home / "dotfiles", "git/config", EXECUTING)
    assert list((home / "dotfiles" / "git").iterdir()) == []


def test_an_approved_command_changes_files_that_the_users_configuration_names(
    main: Path, home: Path
) -> None:
    (home / ".gitconfig").write_text("[core]\n\thooksPath = .githooks\n")
    done = run(main, "mkdir .githooks && echo x >.githooks/pre-push && git add . && git stash")
    assert done.returncode == 0, done.stderr
    assert not (main / ".githooks").exists()


def test_b60_hooks_in_other_writable_directories_are_not_written(main: Path, home: Path) -> None:
    other = home / "other"
    other.mkdir()
    (other / "shared.cfg").write_text("")
    git(main, "config", "core.hooksPath", str(other / "hooks"))
    git(main, "config", "include.path", str(other / "shared.cfg"))
    attack = f"cd {other}; touch built; echo x >>shared.cfg; mkdir hooks; echo x >hooks/pre-commit"
    run(main, attack, Enclosure.BUILD, policy=SandboxPolicy(writable=(str(other),)))
    assert {path.name for path in other.iterdir()} == {"built", "shared.cfg"}
    assert (other / "shared.cfg").read_text() == ""


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
        config, planted = nested / "config", nested / path
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


def test_b60_links_among_the_hooks_of_a_nested_repository_count(main: Path) -> None:
    git(main, "init", "-q", "nested")
    hook = main / "nested" / "scripts" / "pre-commit"
    hook.parent.mkdir()
    hook.write_text("")
    (main / "nested" / ".git" / "hooks" / "pre-commit").symlink_to("../../scripts/pre-commit")
    plant(main, "nested/scripts/pre-commit", HOOK, nested=(main / "nested",))
    assert hook.read_text() == ""


def test_b60_a_nested_repository_may_name_hooks_elsewhere_in_the_workspace(main: Path) -> None:
    for name, options in (("nested", ()), ("bare.git", ("--bare",))):
        git(main, "init", "-q", *options, name)
        git(main / name, "config", "core.hooksPath", str(main / "shared" / name))
        (main / "shared" / name).mkdir(parents=True)
    nested = (main / "nested", main / "bare.git")
    for place in nested:
        plant(main, f"shared/{place.name}/update", HOOK, nested=nested)
        assert list((main / "shared" / place.name).iterdir()) == []


def test_a_build_can_write_data_to_a_nested_bare_repository(main: Path) -> None:
    git(main.parent, "clone", "-q", "--bare", "main", "main/bare.git")
    done = run(main, "git -C bare.git branch side", Enclosure.BUILD, nested=(main / "bare.git",))
    assert done.returncode == 0, done.stderr
    assert git(main / "bare.git", "branch", "--list", "side")


def test_b60_no_build_replaces_a_link_in_place_of_the_git_directory_of_a_nested_repository(
    main: Path,
) -> None:
    git(main, "init", "-q", "real")
    (main / "nested").mkdir()
    (main / "nested" / ".git").symlink_to("../real/.git")
    attack = "rm nested/.git; ln -s ../node_modules/m/.git nested/.git"
    run(main, attack, Enclosure.BUILD, nested=(main / "nested", main / "real"))
    assert (main / "nested" / ".git").readlink() == Path("../real/.git")


@pytest.mark.parametrize("layout", ["separate", "inside", "worktree"])
def test_b60_the_configuration_counts_wherever_the_git_directory_is(
    main: Path, home: Path, layout: str
) -> None:
    place = session = home / "tree"
    if layout == "separate":
        git(home, "init", "-q", "--separate-git-dir", "meta", "tree")
    elif layout == "inside":
        git(home, "clone", "-q", "--bare", "main", "tree/.bare")
        git(place / ".bare", "config", "core.bare", "false")
        (place / ".git").write_text("gitdir: ./.bare\n")
    else:
        git(main, "worktree", "add", "-q", str(place))
        session = place / "sub"
        session.mkdir()
    git(place, "config", "core.hooksPath", "sub/hooks")
    plant(session, str(place / "sub/hooks/pre-commit"), HOOK)
    git(place, "commit", "-q", "--allow-empty", "-m", "x")
    assert not (place / "ran").exists()


def test_b60_a_git_directory_that_does_not_name_the_workspace_is_not_written(
    main: Path, home: Path
) -> None:
    git(home, "init", "-q", "--separate-git-dir", "meta", "tree")
    policy = SandboxPolicy(writable=(str(home / "meta"),))
    attack = f"echo x >>{home}/meta/config; echo x >{home}/meta/hooks/post-commit"
    before = (home / "meta" / "config").read_text()
    run(home / "tree", attack, Enclosure.BUILD, policy=policy)
    assert (home / "meta" / "config").read_text() == before
    assert not (home / "meta" / "hooks" / "post-commit").exists()


def test_b60_a_placeholder_of_another_command_hides_no_repository(main: Path) -> None:
    """Nor does an empty `.git`, which git ignores, too."""
    sub = main / "sub"
    sub.mkdir()
    git(main, "config", "core.hooksPath", "sub/hooks")
    confiner = Confiner(lambda: FOUND, main.parent / "home", {})
    with tempfile.TemporaryDirectory() as spill:
        other = confiner.confined(Enclosure.BUILD, SandboxPolicy(), sub, Path(spill))
        assert other
        with other.wrap(["true"]):
            assert (sub / ".git").exists()
            plant(sub, "hooks/pre-commit", HOOK)
            assert not (sub / "hooks" / "pre-commit").exists()
    (sub / ".git").mkdir()
    plant(sub, "hooks/pre-commit", HOOK)
    assert not (sub / "hooks").exists()


def test_every_spelling_of_the_parts_of_a_repository_counts(main: Path) -> None:
    git(main, "init", "-q", "nested")
    git(main, "init", "-q", "--bare", "bare.git")
    for name in ("nested/.GIT", "bare.git/CONFIG"):
        (main / name).write_text("")
    found = {str(path.relative_to(main)) for path in Scanner(main, bool).scan().repositories}
    assert found >= {"nested/.git", "nested/.GIT", "bare.git/config", "bare.git/CONFIG"}


def test_a_long_configuration_of_a_nested_repository_starts_no_program(
    main: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(main, "init", "-q", "nested")
    config = main / "nested" / ".git" / "config"
    config.write_text(config.read_text() + '[branch "x"]\n\tmerge = a/b c/d\n' * 3000)
    monkeypatch.setenv("PATH", str(main / "nowhere"))
    paths = git_paths(main / "nested", is_nested=True)
    assert paths.problem == ""
    assert not any(path.is_relative_to(main) for path in paths.named)
