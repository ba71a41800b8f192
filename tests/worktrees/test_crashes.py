"""A daemon that is killed at any line of making, landing or removing a worktree leaves no half one.

Each line of the package `worktrees` is a point at which a forked process kills itself. Programs
that it has started go on, as they do when a daemon dies. A new process then recovers.
"""

import ctypes
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest
import trio

from support.worktrees import Ground, git
from tiller_daemon.config import Worktree
from tiller_daemon.worktrees.git import WorktreeProblem
from tiller_daemon.worktrees.worktrees import Worktrees

SUBREAPER: Final = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2): orphans become children of this process."""

NEVER: Final = 0
"""No line has this number."""

PACKAGE: Final = f"{os.sep}tiller_daemon{os.sep}worktrees{os.sep}"

Act = Callable[[Worktrees], Awaitable[object]]


async def make(worktrees: Worktrees, main: Path) -> None:
    await worktrees.make(main, "one", "", Worktree(copy=(".env",)))


async def land(worktrees: Worktrees, how: Any) -> None:
    (record,) = worktrees.records.all()
    await worktrees.land(record, how, "", Worktree(check="true"))


async def remove(worktrees: Worktrees) -> None:
    (record,) = worktrees.records.all()
    await worktrees.remove(record, Worktree(teardown="true"), force=False)


def run_until(point: int, act: Callable[[], Awaitable[object]]) -> int:
    """Run `act` in a forked process that dies at that line.

    Returns how many lines it ran, or 0 if it died. Everything that starts programs runs in such a
    process, so that this process has no other children to wait for.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        passed = 0

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal passed
            if PACKAGE not in frame.f_code.co_filename:
                return None
            if event == "line":
                passed += 1
                if passed == point:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        try:
            trio.run(act)
            os.write(writing, str(passed).encode())
        except BaseException as error:
            os.write(writing, f"failed: {error!r}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with suppress(ChildProcessError):
        while True:  # the process itself, and what it has left behind
            os.waitpid(-1, 0)
    with os.fdopen(reading) as answer:
        said = answer.read()
    assert not said.startswith("failed"), said
    return int(said or 0)


@pytest.fixture(autouse=True)
def subreaper() -> None:
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def check_whole(ground: Ground, worktrees: Worktrees) -> None:
    """Every worktree is complete or gone, and the checkout is as it was."""
    assert git(ground.main, "status", "--porcelain") == ""
    git(ground.main, "fsck", "--strict")
    records = worktrees.records.all()
    assert {one.state for one in records} <= {"ready", "removed"}
    places = {Path(one.path if one.state == "ready" else one.trash) for one in records}
    there = set(ground.trees.iterdir()) if ground.trees.is_dir() else set[Path]()
    assert there == places
    for place in places:
        assert git(place, "status", "--porcelain") == ""
        assert git(place, "symbolic-ref", "HEAD") == "refs/heads/one"
        assert (place / ".env").read_text() == "KEY=1\n"
        assert (place / "file").exists()
    ids = {one.id for one in records}
    kept = git(ground.main, "for-each-ref", "--format=%(refname)", "refs/tiller").splitlines()
    assert {name.split("/")[3] for name in kept} <= ids
    if not records:
        assert git(ground.main, "branch", "--list", "one") == ""


def at_points(
    tmp_path: Path, number: int, prepared: Ground, act: Callable[[Ground], Awaitable[object]]
) -> None:
    """Kill at so many lines of `act`; after each, recover, check, and do it again."""

    async def acting() -> None:
        await act(prepared)

    async def recovering() -> None:
        worktrees = prepared.worktrees()
        await worktrees.recover()
        check_whole(prepared, worktrees)
        # What was interrupted can be done, unless it has been done.
        with suppress(WorktreeProblem, ValueError):
            await act(prepared)
        check_whole(prepared, worktrees)

    keep(tmp_path, prepared)
    lines = run_until(NEVER, acting)
    for point in sorted({1 + lines * one // number for one in range(number)}):
        # The records name absolute places, so the place stays the same.
        shutil.rmtree(prepared.root)
        shutil.copytree(tmp_path / "kept", prepared.root, symlinks=True)
        died = run_until(point, acting) == 0
        run_until(NEVER, recovering)
        assert died or point > lines * 0.9  # not every run has the same number of lines


@pytest.fixture
def prepared(tmp_path: Path) -> Ground:
    return Ground(tmp_path / "now")


def keep(tmp_path: Path, ground: Ground) -> None:
    shutil.copytree(ground.root, tmp_path / "kept", symlinks=True)


HOUR_S: Final = 3600.0

MANY: Final = (pytest.mark.nightly, pytest.mark.timeout(HOUR_S))
POINTS: Final = (pytest.param(3, id="some"), pytest.param(60, id="many", marks=MANY))
"""At how many lines to kill; with `many`, at 300 in all."""


@pytest.mark.parametrize("points", POINTS)
def test_no_death_leaves_half_a_worktree_that_was_being_made(
    tmp_path: Path, prepared: Ground, points: int
) -> None:
    Ground.new(prepared.root)
    at_points(tmp_path, points, prepared, lambda ground: make(ground.worktrees(), ground.main))


@pytest.mark.parametrize("points", POINTS)
@pytest.mark.parametrize("how", ["merge", "rebase", "squash"])
def test_a_death_while_a_worktree_lands_changes_the_branch_or_nothing(
    tmp_path: Path, prepared: Ground, how: str, points: int
) -> None:
    ground = Ground.new(prepared.root)
    trio.run(lambda: make(ground.worktrees(), ground.main))
    place = ground.tree("one")
    for name in ("two", "three"):
        (place / name).write_text(f"{name}\n")
        git(place, "add", "-A")
        git(place, "commit", "-qm", name)
    (ground.main / "ours").write_text("ours\n")
    git(ground.main, "add", "-A")
    git(ground.main, "commit", "-qm", "ours")
    at_points(tmp_path, points, prepared, lambda one: land(one.worktrees(), how))
    assert (prepared.main / "three").read_text() == "three\n"


@pytest.mark.parametrize("points", POINTS)
def test_a_death_while_a_worktree_is_removed_loses_no_file(
    tmp_path: Path, prepared: Ground, points: int
) -> None:
    ground = Ground.new(prepared.root)
    trio.run(lambda: make(ground.worktrees(), ground.main))
    at_points(tmp_path, points, prepared, lambda one: remove(one.worktrees()))
