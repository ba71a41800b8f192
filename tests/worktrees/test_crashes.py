"""A daemon that is killed at any line of making, landing or removing a worktree leaves no half one.

Each line of the package `worktrees` is a point at which a forked process kills itself. Programs
that it has started go on, as they do when a daemon dies. A new process then recovers.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

SCRIPT: Final = Path(__file__).with_name("crash_points.py")
HOUR_S: Final = 3600.0

MANY: Final = (pytest.mark.nightly, pytest.mark.timeout(HOUR_S))
POINTS: Final = (pytest.param(3, id="some"), pytest.param(60, id="many", marks=MANY))
"""At how many lines to kill; with `many`, at 300 in all."""


@pytest.mark.promise("B62")
@pytest.mark.parametrize("points", POINTS)
@pytest.mark.parametrize(
    "scenario",
    ["make", "merge", "rebase", pytest.param("squash", marks=pytest.mark.nightly), "remove"],
)
def test_no_death_leaves_half_a_worktree_or_loses_a_file(
    tmp_path: Path, scenario: str, points: int
) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, scenario, str(points), tmp_path],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SCRIPT.parents[1])},
    )
    assert done.returncode == 0, done.stderr
