"""Git in a sandbox: what works in a work tree and in a submodule, and what it must not open."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tiller_daemon.config import SandboxPolicy
from tiller_daemon.processes.command import STARTS_MAX
from tiller_daemon.sandbox.confiner import Confiner
from tiller_daemon.sandbox.detect import find_sandbox
from tiller_daemon.sandbox.enclosure import Enclosure
from tiller_daemon.sandbox.git_directories import git_paths

FOUND = find_sandbox(sys.platform)
needs_sandbox = pytest.mark.skipif(FOUND.sandbox is None, reason=FOUND.problem)

DEFAULT = SandboxPolicy()

VARIABLES = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example.invalid",
    "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@example.invalid",
    "GIT_ALLOW_PROTOCOL": "file",
}  # fmt: skip

DAY = """
set -e
echo one >one; git add one; git commit -q -m one
git branch side; git tag -a -m t v1; git checkout -q side
echo two >two; git add two; git commit -q -m two
git checkout -q -; echo three >three; git add three; git commit -q -m three
git rebase -q side; git checkout -q side; git merge -q -
echo four >>one; git stash -q; git stash pop -q; git commit -q -a --amend --no-edit
git checkout -q -b last; git pack-refs --all; git branch -q -D side; git repack -adq; git fsck
git log --format=%s
"""
"""What an agent does all day."""

EVIL = """
echo x >"$GIT/hooks/pre-commit"; mkdir -p "$GIT/hooks"; echo x >"$GIT/hooks/post-checkout"
git config core.fsmonitor /evil; echo evil >>"$GIT/config"
for name in config config.worktree; do echo evil >>"$OWN/$name"; done
echo /evil >"$OWN/commondir"; echo /evil >"$OWN/gitdir"; echo /evil >"$GIT/commondir"
mkdir -p "$GIT/worktrees/other"; echo evil >"$GIT/worktrees/other/config.worktree"
mv "$GIT/worktrees" "$GIT/w"; mv "$GIT/hooks" "$GIT/h"
echo 'gitdir: /evil' >.git; rm -f .git; mv .git .g
echo evil >"$GIT/HEAD"
"""


def git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *arguments],
        cwd=directory, env=VARIABLES, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def main(tmp_path: Path) -> Path:
    """A repository with one commit."""
    place = tmp_path.resolve() / "main"
    git(tmp_path, "init", "-q", "-b", "trunk", "main")
    git(place, "commit", "-q", "--allow-empty", "-m", "zero")
    return place


@pytest.fixture
def worktree(main: Path) -> Path:
    """A second work tree of it, beside a third."""
    git(main, "worktree", "add", "-q", "../tree", "-b", "branch")
    git(main, "worktree", "add", "-q", "../other", "-b", "other")
    return main.parent / "tree"


@pytest.fixture
def submodule(main: Path) -> Path:
    """The same repository as a submodule of another, with a submodule of its own."""
    git(main, "submodule", "--quiet", "add", str(main), "inner")
    git(main, "commit", "-q", "-m", "inner")
    git(main.parent, "init", "-q", "super")
    outer = main.parent / "super"
    git(outer, "submodule", "--quiet", "add", str(main), "libs/sub")
    git(outer, "submodule", "--quiet", "update", "--init", "--recursive")
    git(outer, "commit", "-q", "-m", "sub")
    return outer / "libs" / "sub"


def run(
    place: Path,
    script: str,
    enclosure: Enclosure = Enclosure.SESSION,
    nested: Sequence[Path] = (),
    policy: SandboxPolicy = DEFAULT,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run a script with `place` as the workspace; the notices follow its errors."""
    confiner = Confiner(lambda: FOUND, place.parent / "home", {})
    with tempfile.TemporaryDirectory() as spill:
        confined = confiner.confined(enclosure, policy, place, Path(spill), nested=nested)
        assert confined
        for _ in range(STARTS_MAX):  # a socket that it should hide may have been removed meanwhile
            with confined.wrap(["bash", "-c", script]) as enclosed:
                done = subprocess.run(
                    enclosed.arguments, pass_fds=enclosed.descriptors, cwd=place,
                    env=VARIABLES | variables, check=False, capture_output=True, text=True,
                )  # fmt: skip
                if enclosed.has_started():
                    break
    done.stderr += "\n".join(confined.notices)
    return done


def places(request: pytest.FixtureRequest, kind: str) -> tuple[Path, Path, Path]:
    """A workspace of that kind, its own git directory and the one with hooks and configuration."""
    place: Path = request.getfixturevalue(kind)
    own = Path(git(place, "rev-parse", "--absolute-git-dir"))
    common = git(place, "rev-parse", "--path-format=absolute", "--git-common-dir")
    return place, own, Path(common)


def named(place: Path) -> list[Path]:
    """What git's configuration names in a workspace."""
    return [path for path in git_paths(place).named if path.is_relative_to(place)]


def guarded(*directories: Path) -> dict[str, str]:
    """What must stay as it is: everything in there that leads git to a program."""
    names = ("config", "config.worktree", "commondir", "gitdir")
    found = {one for name in names for place in directories for one in place.rglob(name)}
    found |= {one for place in directories for one in place.rglob("hooks/*")}
    return {str(path): path.read_text() for path in found if path.is_file()}


@needs_sandbox
@pytest.mark.parametrize("kind", ["main", "worktree", "submodule"])
def test_git_works_in_a_sandbox_as_it_does_outside(
    request: pytest.FixtureRequest, kind: str
) -> None:
    place, own, common = places(request, kind)
    before = guarded(own, common)
    done = run(place, DAY)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) >= {"one", "two", "three", "zero"}
    assert git(place, "status", "--porcelain") == ""
    assert git(place, "branch", "--show-current") == "last"
    assert guarded(own, common) == before


@needs_sandbox
@pytest.mark.parametrize("kind", ["main", "worktree", "submodule"])
def test_what_makes_git_run_something_is_kept_wherever_it_lies(
    request: pytest.FixtureRequest, kind: str
) -> None:
    place, own, common = places(request, kind)
    shutil.rmtree(common / "hooks")
    before = guarded(own, common)
    mark = (place / ".git").read_text() if kind != "main" else ""
    done = run(place, EVIL, GIT=str(common), OWN=str(own))
    assert "the command's changes there were discarded" in done.stderr
    assert guarded(own, common).items() >= before.items()
    made = ("hooks", "config.worktree", "commondir")
    assert not [name for name in made if (common / name).exists()]
    assert not (own / "config.worktree").exists()
    assert not mark or (place / ".git").read_text() == mark
    if kind == "worktree":
        assert (common / "HEAD").read_text() == "ref: refs/heads/trunk\n"


@needs_sandbox
def test_a_git_directory_behind_a_link_can_not_be_kept_so_that_a_build_asks(main: Path) -> None:
    (main / ".git").rename(main / "real.git")
    (main / ".git").symlink_to("real.git")
    confiner = Confiner(lambda: FOUND, main.parent / "home", {})
    assert confiner.loosest_unasked(SandboxPolicy(), main) is Enclosure.READ_ONLY


@needs_sandbox
@pytest.mark.parametrize("kind", ["main", "worktree", "submodule"])
def test_a_build_writes_nothing_of_git_wherever_it_lies(
    request: pytest.FixtureRequest, kind: str
) -> None:
    place, own, common = places(request, kind)
    before = {path: path.read_bytes() for path in common.rglob("*") if path.is_file()}
    done = run(place, f"{EVIL}; {DAY}", Enclosure.BUILD, GIT=str(common), OWN=str(own))
    assert "Read-only file system" in done.stderr
    assert {path: path.read_bytes() for path in common.rglob("*") if path.is_file()} == before
    assert run(place, "git status --short && git log -1", Enclosure.READ_ONLY).returncode == 0


GITLINK = """
git init -q vendor/lib; git -C vendor/lib commit -q --allow-empty -m x
git -C vendor/lib config core.fsmonitor 'touch ran; true'
git update-index --add --cacheinfo 160000,$(git -C vendor/lib rev-parse HEAD),vendor/lib
"""


@needs_sandbox
def test_an_index_with_a_new_submodule_is_not_taken_over(main: Path) -> None:
    done = run(main, GITLINK)
    assert "the index names a new submodule, vendor/lib" in done.stderr
    git(main, "status")
    assert not (main / "vendor/lib/ran").exists()
    assert git(main, "ls-files") == ""


@needs_sandbox
@pytest.mark.parametrize("todo", ["exec touch ran", "x touch ran", "pick HEAD\nexec touch ran"])
def test_a_rebase_that_would_execute_something_is_not_taken_over(main: Path, todo: str) -> None:
    git(main, "commit", "-q", "--allow-empty", "-m", "one")
    script = f"mkdir .git/rebase-merge; printf '{todo}\n' >.git/rebase-merge/git-rebase-todo"
    done = run(main, f"{script}; git branch other")
    assert "would make git execute something" in done.stderr
    assert not (main / ".git/rebase-merge").exists()
    assert git(main, "branch", "--list", "other") == ""


@needs_sandbox
def test_a_rebase_that_stopped_goes_on_in_the_next_command(main: Path) -> None:
    script = """
    echo a >f; git add f; git commit -qm a; git checkout -qb side; echo b >f; git commit -qam b
    git checkout -q trunk; echo c >f; git commit -qam c; git checkout -q side; git rebase trunk
    """
    assert "CONFLICT" in run(main, script).stdout
    assert (main / ".git/rebase-merge").is_dir()
    done = run(main, "echo d >f; git add f; GIT_EDITOR=true git rebase --continue")
    assert done.returncode == 0, done.stderr
    assert git(main, "log", "--format=%s", "-2") == "b\nc"
    assert not (main / ".git/rebase-merge").exists()


@needs_sandbox
def test_what_somebody_else_changed_meanwhile_is_left_as_they_made_it(main: Path) -> None:
    """The user commits while a command of the model does."""
    confiner = Confiner(lambda: FOUND, main.parent / "home", {})
    with tempfile.TemporaryDirectory() as spill:
        confined = confiner.confined(Enclosure.SESSION, SandboxPolicy(), main, Path(spill))
        assert confined
        with confined.wrap(["git", "commit", "-q", "--allow-empty", "-m", "model"]) as enclosed:
            subprocess.run(
                enclosed.arguments,
                pass_fds=enclosed.descriptors,
                cwd=main,
                env=VARIABLES,
                check=True,
            )
            git(main, "commit", "-q", "--allow-empty", "-m", "user")
    assert "was changed by another process in the meantime" in confined.notices[0]
    assert git(main, "log", "-1", "--format=%s") == "user"
    assert git(main, "fsck") == ""


@needs_sandbox
def test_of_the_configuration_only_what_a_branch_follows_is_taken_over(main: Path) -> None:
    git(main, "remote", "add", "origin", str(main))
    git(main, "fetch", "-q", "origin")
    script = (
        "git checkout -q -b one origin/trunk; git config branch.one.remote ./evil2 --add;"
        "git checkout -q -b two origin/trunk; git config core.pager evil; git remote add x evil"
    )
    done = run(main, script)
    assert "config (core.pager)" in done.stderr
    assert git(main, "config", "branch.two.remote") == "origin"
    assert git(main, "config", "branch.two.merge") == "refs/heads/trunk"
    listed = git(main, "config", "--list")
    assert "evil" not in listed
    assert git(main, "branch", "--show-current") == "two"


@needs_sandbox
def test_hooks_run_in_the_enclosure_and_what_the_configuration_names_can_not_be_written(
    main: Path,
) -> None:
    """As husky has it: hooks in the tree, and a directory that is made for them."""
    (main / ".husky").mkdir()
    hook = main / ".husky" / "pre-commit"
    hook.write_text("#!/bin/sh\necho ran >>ran; touch /etc/evil-of-a-hook || true\n")
    hook.chmod(0o755)
    (main / "shared.cfg").write_text("[user]\n\tname = t\n")
    git(main, "config", "core.hooksPath", ".husky")
    git(main, "config", "include.path", "../shared.cfg")
    for enclosure in (Enclosure.BUILD, Enclosure.SESSION):
        run(main, "echo evil >>.husky/pre-commit; rm -rf .husky; echo evil >>shared.cfg", enclosure)
    assert "evil >>" not in hook.read_text()
    assert "evil" not in (main / "shared.cfg").read_text()
    done = run(main, "git commit -q --allow-empty -m hooked")
    assert done.returncode == 0, done.stderr
    assert (main / "ran").read_text() == "ran\n"
    assert not Path("/etc/evil-of-a-hook").exists()
    git(main, "config", "core.hooksPath", ".not-there")
    run(main, "mkdir .not-there && echo evil >.not-there/pre-commit", Enclosure.BUILD)
    assert not (main / ".not-there").exists()


@needs_sandbox
def test_a_superproject_commits_in_its_submodules_and_keeps_their_configuration(
    submodule: Path,
) -> None:
    outer = submodule.parent.parent
    before = guarded(outer / ".git")
    script = "cd libs/sub && git checkout -q -b x && git commit -q --allow-empty -m deep"
    assert run(outer, script).returncode == 0
    for module in (".git/modules/libs/sub", ".git/modules/libs/sub/modules/inner"):
        evil = f"echo x >>{module}/config; echo x >{module}/hooks/pre-commit; mv {module} m"
        run(outer, evil)
    assert guarded(outer / ".git") == before
    assert git(submodule, "log", "-1", "--format=%s") == "deep"


@needs_sandbox
def test_work_trees_in_a_bare_repository_do_not_open_each_other(main: Path) -> None:
    bare = main.parent / "bare"
    git(main.parent, "clone", "-q", "--bare", "main", "bare")
    for name in ("a", "b"):
        git(bare, "worktree", "add", "-q", name, "-b", name)
    commit = "echo x >x; git add x; git commit -q -m x; echo y >x; git stash -q; git stash pop -q"
    done = run(bare / "a", f"{commit}; echo x >../b/evil")
    assert "b/evil, so the command's changes there were discarded" in done.stderr
    assert git(bare, "log", "-1", "--format=%s", "a") == "x", done.stderr
    assert (bare / "a" / "x").read_text() == "y\n", done.stderr
    assert not (bare / "b" / "evil").exists()


def lie(place: Path, target: object) -> None:
    (place / ".git").unlink(missing_ok=True)
    (place / ".git").write_text(f"gitdir: {target}\n")


def test_a_git_file_opens_nothing_that_does_not_know_this_workspace(
    main: Path, worktree: Path, submodule: Path, tmp_path: Path
) -> None:
    """It may have come with what was unpacked here."""
    evil = tmp_path.resolve() / "evil"
    evil.mkdir()
    targets = [
        "/", "..", main, main / ".git", main / ".git" / "worktrees" / "tree", "nowhere",
        submodule.parent.parent / ".git" / "modules" / "libs" / "sub", "/proc/self/fd/0",
    ]  # fmt: skip
    for target in targets:
        lie(evil, target)
        assert git_paths(evil).directories == (), target
    assert git_paths(worktree).directories
    assert git_paths(submodule).directories


def test_a_forged_git_directory_opens_itself_alone(main: Path, tmp_path: Path) -> None:
    """It can name this workspace, but no other repository as the one that it belongs to."""
    evil = tmp_path.resolve() / "evil"
    own = evil / "fake" / "worktrees" / "x"
    own.mkdir(parents=True)
    lie(evil, "fake/worktrees/x")
    (own / "gitdir").write_text(f"{evil}/.git\n")
    for text in (f"{main}/.git", "../../../../main/.git", "/"):
        (own / "commondir").write_text(f"{text}\n")
        assert git_paths(evil).directories == (), text
    git(evil / "fake", "init", "-q", "--bare", ".")
    (own / "commondir").write_text("../..\n")
    assert git_paths(evil).directories == (evil / "fake",)
    shutil.rmtree(evil / "fake" / "worktrees")
    (main / ".git" / "worktrees").mkdir(exist_ok=True)
    (evil / "fake" / "worktrees").symlink_to(main / ".git" / "worktrees")
    assert git_paths(evil).directories == ()


def test_a_git_file_that_is_a_link_or_no_text_opens_nothing(main: Path, worktree: Path) -> None:
    (worktree / "moved").write_text((worktree / ".git").read_text())
    (worktree / ".git").unlink()
    (worktree / ".git").symlink_to("moved")
    assert git_paths(worktree).directories == ()
    (worktree / ".git").unlink()
    (worktree / ".git").write_bytes(b"gitdir: \xff\0\n" * 4000)
    assert git_paths(worktree).directories == ()


def test_a_change_of_an_included_file_counts_at_once(main: Path) -> None:
    git(main, "config", "include.path", "../shared.cfg")
    shared = main / "shared.cfg"
    assert named(main) == [shared]
    shared.write_text("[user]\n\tname = t\n")
    assert named(main) == [shared]
    shared.write_text("[core]\n\thooksPath = .husky\n")
    assert set(named(main)) == {shared, main / ".husky"}


def test_no_configuration_takes_long_to_search(submodule: Path) -> None:
    config = Path(git(submodule, "rev-parse", "--absolute-git-dir"), "config")
    settings = config.read_text()
    assert git_paths(submodule).directories
    config.write_text("\n" * 60_000 + settings)
    assert git_paths(submodule).directories
    config.write_text("\n" * 60_000 + settings + "worktree = elsewhere\n")
    assert not git_paths(submodule).directories
    config.write_text(f"{settings}worktree = a{' ' * 60_000}b\n")
    assert not git_paths(submodule).directories
