#!/usr/bin/env python3
"""Measures snapshots of a workspace of 5,000 files, and a revert of ten files.

    .venv/bin/python scripts/bench/snapshots.py [FILES]

A step pays for one snapshot before its first call that may write, one after its last call, and a
comparison if the two differ. Loop lag is the longest time that another task in the event loop
waited while the first snapshot was taken. CPU time includes that of git.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path

import trio
from table import Row, print_rows

from tiller_daemon.policy.rules import BUILT_IN, evaluate
from tiller_daemon.session.reverting import moves_back
from tiller_daemon.snapshots.snapshots import Snapshots

FILES = 5_000
FILE_BYTES = 2_000
FOLDERS = 100
CHANGED = 10
ROUNDS = 15
TICK_S = 0.001


async def main() -> None:
    """Measure the snapshots of one workspace from the first to a revert."""
    files = int(sys.argv[1]) if len(sys.argv) > 1 else FILES
    with tempfile.TemporaryDirectory() as place:
        workspace = Path(place, "w")
        _fill(workspace, files)
        snapshots = _snapshots(Path(place, "s"))
        take = partial(snapshots.take, str(workspace), "S")
        begin = partial(take, left_out=True)
        lags: list[float] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, lags)
            first = await _timed(begin)
            nursery.cancel_scope.cancel()
        cpu_s = _cpu_s()
        unchanged = [await _timed(begin) for _ in range(ROUNDS)]
        begin_cpu_s = (_cpu_s() - cpu_s) / ROUNDS
        after_cpu_s = 0.0
        changed: list[float] = []
        compared: list[float] = []
        reverted: list[float] = []
        for number in range(ROUNDS):
            before = (await begin()).tree
            _change(workspace, number)
            cpu_s = _cpu_s()
            changed.append(await _timed(take))
            after = (await take()).tree
            compare = partial(snapshots.changes, str(workspace), before, after)
            compared.append(await _timed(compare))
            after_cpu_s += (_cpu_s() - cpu_s) / ROUNDS
            moves, _ = moves_back([await compare()])
            reverted.append(await _timed(partial(snapshots.restore, str(workspace), moves, "X")))
            snapshots.confirm_restore(str(workspace))
        print_rows(
            (
                Row(f"first snapshot of {files} files", "ms", (first,)),
                Row("longest wait of the loop meanwhile", "ms", (max(lags),)),
                Row("snapshot before a step, nothing changed", "ms", tuple(unchanged)),
                Row(f"snapshot after a step, {CHANGED} files changed", "ms", tuple(changed)),
                Row("comparison of two", "ms", tuple(compared)),
                Row(f"putting {CHANGED} files back", "ms", tuple(reverted)),
            )
        )
        step = sum(map(statistics.median, (unchanged, changed, compared)))
        cpu_ms = (begin_cpu_s + after_cpu_s) * 1e3
        print(f"a step that changes {CHANGED} files: {step:.1f} ms, CPU {cpu_ms:.1f} ms")


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _fill(workspace: Path, files: int) -> None:
    for number in range(files):
        folder = workspace / f"folder{number % FOLDERS}"
        folder.mkdir(parents=True, exist_ok=True)
        line = f"line of file {number}\n"
        (folder / f"file{number}.py").write_text(line * (FILE_BYTES // len(line)))


def _change(workspace: Path, number: int) -> None:
    for folder in range(CHANGED):
        with next((workspace / f"folder{folder}").iterdir()).open("a") as stream:
            stream.write(f"more {number}\n")


def _snapshots(directory: Path) -> Snapshots:
    def is_secret(workspace: Path, name: str) -> bool:
        del workspace
        return evaluate("read", name, BUILT_IN) != "allow"

    def secrets() -> Iterable[str]:
        return ("sk-0123456789abcdef",)

    async def is_settled(submission_id: str) -> bool:
        await trio.lowlevel.checkpoint()
        return submission_id == "X"

    return Snapshots(directory, {"PATH": os.environ["PATH"]}, is_secret, secrets, is_settled)


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1e3


async def _watch(lags: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await trio.sleep(TICK_S)
        lags.append((time.perf_counter() - began - TICK_S) * 1e3)


if __name__ == "__main__":
    trio.run(main)
