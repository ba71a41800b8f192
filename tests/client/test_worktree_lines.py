"""What `tiller worktree ls` says of a worktree."""

import pytest

from tiller_client.verbs.worktrees import worktree_line
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
    assert worktree_line(one) == f"one → main  {said}  /t/one"
