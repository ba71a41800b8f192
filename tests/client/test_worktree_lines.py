"""What `tiller worktree ls` says of a worktree."""

from pathlib import Path

import pytest

from tiller_client.verbs import worktrees
from tiller_client.verbs.worktrees import worktree_lines
from tiller_protocol.worktrees import WorktreeSummary


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "nothing to land"),
        ({"sessions": ("a", "b")}, "nothing to land · 2 sessions"),
        ({"ahead": 1, "sessions": ("a", "b")}, "1 commit to land · 2 sessions"),
        ({"changed_files": 2}, "2 files not committed"),
        ({"state": "missing"}, "its directory is gone"),
        ({"problem": "you have moved the branch"}, "you have moved the branch"),
    ],
)
def test_a_line_says_what_is_left_to_do(fields: dict[str, object], said: str) -> None:
    given = {"id": "1", "name": "one", "path": "/t/one", "checkout": "/m", "state": "ready"}
    one = WorktreeSummary(**(given | {"base_branch": "main"} | fields))  # type: ignore[arg-type]
    assert worktree_lines([one]) == [f"one → main  m  {said}  /t/one"]


def test_lines_are_in_columns_with_the_repository() -> None:
    one = WorktreeSummary("1", "a", "/w/a", "/src/shop", "ready", "main", ahead=12)
    two = WorktreeSummary("2", "long-name", "/x/long-name", "/src/accounts", "ready")
    assert worktree_lines([one, two]) == [
        "a → main   shop      12 commits to land  /w/a",
        "long-name  accounts  nothing to land     /x/long-name",
    ]
    assert worktree_lines([]) == []


def test_a_place_is_below_home_and_loses_its_beginning_where_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = WorktreeSummary("1", "a", f"{Path.home()}/shop.worktrees/a", "/src/shop", "ready", "main")
    start = "a → main  shop  nothing to land  "
    assert worktree_lines([one]) == [f"{start}~/shop.worktrees/a"]
    monkeypatch.setattr(worktrees, "stdout_columns", lambda: len(start) + 14)
    assert worktree_lines([one]) == [f"{start}…p.worktrees/a"]
    monkeypatch.setattr(worktrees, "stdout_columns", lambda: len(start) + 11)
    assert worktree_lines([one]) == [start.rstrip()]
