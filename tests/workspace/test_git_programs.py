"""Programs that a repository's own configuration names are found before git runs them (B60)."""

import os
import subprocess
from pathlib import Path

import pytest

from tiller_daemon.workspace import git_programs
from tiller_daemon.workspace.git_programs import HOOK, NOT_UNDERSTOOD, programs_named

IDENTITY = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
    "GIT_ALLOW_PROTOCOL": "file",
}

READS = (("status",), ("diff",), ("log", "-p", "-1"), ("grep", "x"), ("ls-files",))


def git(directory: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", *arguments], cwd=directory, env=os.environ | IDENTITY, check=True,
        capture_output=True,
    )  # fmt: skip


def make_repository(place: Path) -> Path:
    place.mkdir()
    git(place, "init", "-b", "main")
    (place / "a.txt").write_text("x\n")
    (place / ".gitattributes").write_text("*.txt diff=evil filter=evil\n")
    git(place, "add", ".")
    git(place, "commit", "-m", "x")
    return place


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repository")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    script = tmp_path / "evil.sh"
    script.write_text(f'#!/bin/sh\necho "$0 $@" >> {tmp_path}/ran\ncat\n')
    script.chmod(0o755)
    return script


def runs_something(repository: Path, ran: Path) -> bool:
    """Whether git, only reading in the repository, has run the script."""
    (repository / "a.txt").write_text("y\n")
    for arguments in READS:
        os.utime(repository / "a.txt", (1, 1 + len(arguments)))
        subprocess.run(
            ["git", *arguments], cwd=repository, env=os.environ | IDENTITY, check=False,
            capture_output=True, timeout=20,
        )  # fmt: skip
    return ran.exists()


CONFIGURATIONS = {
    "monitor": ("[core]\n\tfsmonitor = {script}\n", "fsmonitor"),
    "upper case": ("[CORE]\nFSMonitor={script}\n", "FSMonitor"),
    "on the line of the section": ("[core] fsmonitor = {script}\n", "fsmonitor"),
    "behind another section": ("[a] b = c\n[core]fsmonitor={script}\n", "fsmonitor"),
    "after a comment that ends in a backslash": (
        "[core]\n# that \\\nfsmonitor = {script}\n", "fsmonitor",
    ),
    "quoted": ('[core]\nfsmonitor = "{script}"\n', "fsmonitor"),
    "with carriage returns": ("[core]\r\nfsmonitor = {script}\r\n", "fsmonitor"),
    "without an end of line": ("[core]\nfsmonitor = {script}", "fsmonitor"),
    "external diff": ("[diff]\nexternal = {script}\n", "external"),
    "converter": ('[diff "evil"]\ntextconv = {script}\n', "textconv"),
    "driver": ('[diff "evil"]\ncommand = {script}\n', "command"),
    "filter": ('[filter "evil"]\nclean = {script}\n', "clean"),
    "filter process": ('[filter "evil"]\nprocess = {script}\n', "process"),
    "include": ("[include]\npath = {include}\n", "path"),
    "conditional include": ('[includeIf "gitdir:/**"]\npath = {include}\n', "path"),
    "hooks elsewhere": ("[core]\nhooksPath = {hooks}\n", "hooksPath"),
}  # fmt: skip


@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_b60_what_git_would_run_is_named(
    repository: Path, script: Path, tmp_path: Path, kind: str
) -> None:
    """By the real git: it runs the script, so the table is not about things that never happen."""
    text, key = CONFIGURATIONS[kind]
    (tmp_path / "include").write_text(f"[core]\nfsmonitor = {script}\n")
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / HOOK).symlink_to(script)
    text = text.format(script=script, include=tmp_path / "include", hooks=tmp_path / "hooks")
    with (repository / ".git" / "config").open("a", newline="") as config:
        config.write(text)
    assert programs_named(repository) == (key,)
    (repository / "below").mkdir()
    assert programs_named(repository / "below") == (key,)
    assert runs_something(repository, tmp_path / "ran")


def test_b60_a_hook_that_reading_runs_is_named(
    repository: Path, script: Path, tmp_path: Path
) -> None:
    (repository / ".git" / "hooks" / HOOK).symlink_to(script)
    assert programs_named(repository) == (HOOK,)
    assert runs_something(repository, tmp_path / "ran")


def test_b60_a_submodule_and_a_repository_put_into_another_are_looked_at(
    repository: Path, script: Path, tmp_path: Path
) -> None:
    inner = make_repository(repository / "inner")
    git(repository, "add", "inner")
    git(repository, "commit", "-m", "with another one in it")
    assert programs_named(repository) == ()
    git(inner, "config", "core.fsmonitor", str(script))
    assert programs_named(repository) == ("fsmonitor",)
    assert runs_something(repository, tmp_path / "ran")


def test_b60_a_bare_repository_without_dot_git_is_looked_at(
    repository: Path, script: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    git(tmp_path, "clone", "--bare", str(repository), str(bare))
    assert programs_named(bare) == ()
    git(bare, "config", "diff.evil.textconv", str(script))
    assert programs_named(bare) == ("textconv",)


def test_a_work_tree_that_is_elsewhere_is_named(repository: Path) -> None:
    git(repository, "config", "core.worktree", "/etc")
    assert programs_named(repository) == ("worktree",)


def test_a_repository_that_fetches_while_it_is_read_is_named(repository: Path) -> None:
    git(repository, "config", "remote.origin.promisor", "true")
    assert programs_named(repository) == ("promisor",)


def test_honest_repositories_name_nothing(repository: Path, tmp_path: Path) -> None:
    """A clone, a second work tree, a submodule, git's own monitor, hooks for commits."""
    git(tmp_path, "clone", str(repository), str(tmp_path / "clone"))
    git(repository, "worktree", "add", "-b", "side", str(tmp_path / "side"))
    outer = make_repository(tmp_path / "outer")
    git(outer, "-c", "protocol.file.allow=always", "submodule", "add", str(repository), "sub")
    git(outer, "commit", "-m", "x")
    git(repository, "config", "core.fsmonitor", "true")
    git(repository, "config", "core.hooksPath", ".husky")
    git(repository, "remote", "add", "origin", "https://example.invalid/path?command=1")
    for hook in ("pre-commit", "post-checkout"):
        place = repository / ".git" / "hooks" / hook
        place.write_text("#!/bin/sh\n")
        place.chmod(0o755)
    for place in (repository, tmp_path / "clone", tmp_path / "side", outer, outer / "sub"):
        assert programs_named(place) == (), place
    assert programs_named(tmp_path) == ()


def test_what_is_too_large_or_unknown_is_said_to_be_so(repository: Path) -> None:
    make_repository(repository / "inner")
    git(repository, "add", "inner")
    git(repository, "update-index", "--index-version", "4")
    assert programs_named(repository) == (NOT_UNDERSTOOD,)
    git(repository, "update-index", "--index-version", "2")
    assert programs_named(repository) == ()
    (repository / ".git" / "config").write_text("#" * (git_programs.CONFIG_BYTES_MAX + 1))
    assert programs_named(repository) == (NOT_UNDERSTOOD,)
