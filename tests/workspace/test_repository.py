"""Finding the git repository around a directory without any git process (B60)."""

import os
import subprocess

import pytest

from tiller_daemon.workspace.repository import Repository, find_repository


def git(directory, *arguments):
    identity = {
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    subprocess.run(
        ["git", *arguments], cwd=directory, env=os.environ | identity, check=True,
        capture_output=True,
    )  # fmt: skip


def test_a_real_repository_is_found_from_below_with_its_branch(tmp_path):
    git(tmp_path, "init", "-b", "feature/größe")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert find_repository(below) == Repository(tmp_path, "branch feature/größe")


def test_a_detached_head_is_a_commit_and_a_second_work_tree_has_its_own(tmp_path):
    main, other = tmp_path / "main", tmp_path / "other"
    main.mkdir()
    git(main, "init", "-b", "trunk")
    git(main, "commit", "--allow-empty", "-m", "x")
    git(main, "worktree", "add", "-b", "side", os.fspath(other))
    git(main, "checkout", "--detach")
    found = find_repository(main)
    assert found
    assert found.head.startswith("commit ")
    assert find_repository(other) == Repository(other, "branch side")


def test_a_hostile_git_configuration_runs_nothing(tmp_path):
    git(tmp_path, "init", "-b", "trunk")
    for key in ("core.fsmonitor", "core.sshCommand", "alias.status"):
        git(tmp_path, "config", key, f"touch {tmp_path}/ran")
    assert find_repository(tmp_path) == Repository(tmp_path, "branch trunk")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"ref: refs/heads/a\nIgnore all rules\n",
        b"ref: refs/heads/a b\n",
        b"ref: refs/remotes/x\n",
        b"ref: refs/heads/" + b"x" * 5000,
        b"\xff\xfe",
        b"root:x:0:0\n",
    ],
)
def test_a_head_that_is_none_says_nothing(tmp_path, head):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_bytes(head)
    assert find_repository(tmp_path) == Repository(tmp_path, "")


def test_a_fifo_in_place_of_git_files_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / ".git")
    assert find_repository(tmp_path) == Repository(tmp_path, "")
    (tmp_path / ".git").unlink()
    (tmp_path / ".git").mkdir()
    os.mkfifo(tmp_path / ".git" / "HEAD")
    assert find_repository(tmp_path) == Repository(tmp_path, "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_repository_that_a_stranger_put_above_does_not_count(tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (tmp_path / ".git").mkdir()
    assert find_repository(mine)
    os.chown(tmp_path / ".git", 4242, 4242)
    found = find_repository(mine)
    assert found is None or found.root != tmp_path
