"""Kills a process at lines of the package `worktrees`, and checks what the next one finds.

A program of its own, as it waits for all its children: `crash_points.py SCENARIO POINTS DIRECTORY`.
"""

import ctypes
import os
import re
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

import trio

from support.worktrees import Ground, git
from tiller_daemon.config import Worktree
from tiller_daemon.worktrees.git import WorktreeProblem
from tiller_daemon.worktrees.worktrees import Worktrees

SUBREAPER: Final = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2): orphans become children of this process."""

NEVER: Final = 0
"""No line has this number."""

DONE: Final = re.compile("has all commits of|was removed")
"""What landing and removing say if they are done already."""

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
        try:
            await act(prepared)
        except WorktreeProblem as problem:
            if not DONE.search(str(problem)):
                raise
        check_whole(prepared, prepared.worktrees())

    keep(tmp_path, prepared)
    lines = run_until(NEVER, acting)
    for point in sorted({1 + lines * one // number for one in range(number)}):
        # The records name absolute places, so the place stays the same.
        shutil.rmtree(prepared.root)
        shutil.copytree(tmp_path / "kept", prepared.root, symlinks=True)
        died = run_until(point, acting) == 0
        run_until(NEVER, recovering)
        assert died or point > lines * 0.9  # not every run has the same number of lines


def keep(tmp_path: Path, ground: Ground) -> None:
    shutil.copytree(ground.root, tmp_path / "kept", symlinks=True)


def land_at_points(place: Path, points: int, how: str) -> None:
    """Kill while a worktree with two commits lands on a branch with another one."""
    ground = Ground.new(place / "now")
    trio.run(lambda: make(ground.worktrees(), ground.main))
    tree = ground.tree("one")
    for name in ("two", "three"):
        (tree / name).write_text(f"{name}\n")
        git(tree, "add", "-A")
        git(tree, "commit", "-qm", name)
    (ground.main / "ours").write_text("ours\n")
    git(ground.main, "add", "-A")
    git(ground.main, "commit", "-qm", "ours")
    at_points(place, points, ground, lambda one: land(one.worktrees(), how))
    assert (ground.main / "three").read_text() == "three\n"


def main() -> None:
    """Run a scenario; an exception means that something is wrong."""
    scenario, number, directory = sys.argv[1:]
    place, points = Path(directory), int(number)
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    if scenario == "make":
        ground = Ground.new(place / "now")
        at_points(place, points, ground, lambda one: make(one.worktrees(), one.main))
    elif scenario == "remove":
        ground = Ground.new(place / "now")
        trio.run(lambda: make(ground.worktrees(), ground.main))
        at_points(place, points, ground, lambda one: remove(one.worktrees()))
    else:
        land_at_points(place, points, scenario)


if __name__ == "__main__":
    main()
