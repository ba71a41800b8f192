"""Git in a sandbox: what works in a work tree and in a submodule, and what it must not open."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tiller_daemon.config import SandboxPolicy
from tiller_daemon.workspace.sandbox import Confiner, Found
from tiller_daemon.workspace.sandbox_repository import kept_of_repository
from tiller_daemon.workspace.sandbox_search import find_sandbox, try_out_landlock

FOUND = find_sandbox(sys.platform)
LANDLOCK = try_out_landlock() if sys.platform == "linux" else Found(None, "it is for Linux")
needs_landlock = pytest.mark.skipif(LANDLOCK.sandbox is None, reason=LANDLOCK.problem)
needs_sandbox = pytest.mark.skipif(FOUND.sandbox is None, reason=FOUND.problem)

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

MORNING = """
set -e
echo one >one; git add one; git commit -q -m one; git tag -a -m t v1
git checkout -q -b last; git commit -q --allow-empty -m two; git branch other2
echo two >one; git stash -q; git stash apply -q; git commit -qam three
git rebase -q HEAD~2; git reset -q --soft HEAD~1; git commit -qm four
git log --format=%s
"""
"""Likewise, without what removes a branch: by Landlock nothing can come beside `packed-refs`."""

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
    place: Path, script: str, found: Found = FOUND, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a script in the sandbox, with `place` as the workspace."""
    confiner = Confiner(lambda: found, place.parent / "home", {}, temporary=())
    confined = confiner.confined(SandboxPolicy(), place, place / "none")
    assert confined
    with confined.around(["bash", "-c", script]) as enclosed:
        return subprocess.run(
            enclosed.arguments, pass_fds=enclosed.descriptors, cwd=place,
            env=VARIABLES | variables, check=False, capture_output=True, text=True,
        )  # fmt: skip


def places(request: pytest.FixtureRequest, kind: str) -> tuple[Path, Path, Path]:
    """A workspace of that kind, its own git directory and the one with hooks and configuration."""
    place: Path = request.getfixturevalue(kind)
    own = Path(git(place, "rev-parse", "--absolute-git-dir"))
    common = git(place, "rev-parse", "--path-format=absolute", "--git-common-dir")
    return place, own, Path(common)


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
    assert "Read-only file system" in done.stderr
    assert guarded(own, common).items() >= before.items()
    made = ("hooks", "config.worktree", "commondir")
    assert not [name for name in made if (common / name).exists()]
    assert not (own / "config.worktree").exists()
    assert not mark or (place / ".git").read_text() == mark
    if kind == "worktree":
        assert (common / "HEAD").read_text() == "ref: refs/heads/trunk\n"


@needs_landlock
@pytest.mark.parametrize("kind", ["main", "worktree", "submodule"])
def test_git_works_by_landlock_but_for_what_is_said(
    request: pytest.FixtureRequest, kind: str
) -> None:
    place, own, common = places(request, kind)
    before = guarded(own, common)
    done = run(place, DAY if kind != "worktree" else MORNING, LANDLOCK)
    assert done.returncode == 0, done.stderr
    assert git(place, "branch", "--show-current") == "last"
    if kind == "worktree":
        assert "packed-refs.lock" in run(place, "git branch -D other2", LANDLOCK).stderr
    assert guarded(own, common) == before


@needs_landlock
@pytest.mark.parametrize("kind", ["main", "worktree", "submodule"])
def test_what_makes_git_run_something_is_as_before_when_landlock_held_it(
    request: pytest.FixtureRequest, kind: str
) -> None:
    place, own, common = places(request, kind)
    before = guarded(own, common)
    mark = (place / ".git").read_text() if kind != "main" else ""
    run(place, EVIL, LANDLOCK, GIT=str(common), OWN=str(own))
    assert guarded(own, common).items() >= before.items()
    made = (common / "hooks" / "pre-commit", common / "config.worktree", common / "commondir")
    assert not [path for path in made if path.exists() and str(path) not in before]
    assert not (own / "config.worktree").exists()
    assert not mark or (place / ".git").read_text() == mark


@needs_sandbox
@pytest.mark.parametrize("found", [FOUND, LANDLOCK], ids=["found", "landlock"])
def test_a_git_directory_behind_a_link_is_kept_where_it_lies(main: Path, found: Found) -> None:
    if found.sandbox is None:
        pytest.skip(found.problem)
    (main / ".git").rename(main / "real.git")
    (main / ".git").symlink_to("real.git")
    before = guarded(main / "real.git")
    script = "git commit -q --allow-empty -m linked; echo evil >>real.git/config; rm .git; "
    run(main, f"{script} git init -q; echo x >real.git/hooks/pre-commit; git config a.b c", found)
    assert guarded(main / "real.git") == before
    assert (main / ".git").readlink() == Path("real.git")
    assert git(main, "log", "-1", "--format=%s") == "linked"


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
        assert run(outer, evil).returncode
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
    assert "Read-only file system" in done.stderr
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
        assert kept_of_repository(evil).writable == (), target
        assert kept_of_repository(evil).if_there == (evil / ".git",)
    assert kept_of_repository(worktree).writable
    assert kept_of_repository(submodule).writable


def test_a_forged_git_directory_opens_itself_alone(main: Path, tmp_path: Path) -> None:
    """It can name this workspace, but no other repository as the one that it belongs to."""
    evil = tmp_path.resolve() / "evil"
    own = evil / "fake" / "worktrees" / "x"
    own.mkdir(parents=True)
    lie(evil, "fake/worktrees/x")
    (own / "gitdir").write_text(f"{evil}/.git\n")
    for text in (f"{main}/.git", "../../../../main/.git", "/"):
        (own / "commondir").write_text(f"{text}\n")
        assert kept_of_repository(evil).writable == (), text
    git(evil / "fake", "init", "-q", "--bare", ".")
    (own / "commondir").write_text("../..\n")
    assert kept_of_repository(evil).writable == (own, evil / "fake")
    shutil.rmtree(evil / "fake" / "worktrees")
    (main / ".git" / "worktrees").mkdir(exist_ok=True)
    (evil / "fake" / "worktrees").symlink_to(main / ".git" / "worktrees")
    assert kept_of_repository(evil).writable == ()


def test_a_git_file_that_is_a_link_or_no_text_opens_nothing(main: Path, worktree: Path) -> None:
    (worktree / "moved").write_text((worktree / ".git").read_text())
    (worktree / ".git").unlink()
    (worktree / ".git").symlink_to("moved")
    assert kept_of_repository(worktree).writable == ()
    (worktree / ".git").unlink()
    (worktree / ".git").write_bytes(b"gitdir: \xff\0\n" * 4000)
    assert kept_of_repository(worktree).writable == ()
