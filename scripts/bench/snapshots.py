#!/usr/bin/env python3
"""Measures snapshots of a workspace of 5,000 files, and a revert of ten files.

    .venv/bin/python scripts/bench/snapshots.py [FILES]

A step pays for one look at the files before its first call that may write, one after its last
call, and a comparison if the two differ. The first look of a turn is thorough: it compares all
stamps. Later looks are quick, as a watch tells which stamps to compare. Loop lag is the longest
time that another task in the event loop waited while the first snapshot was taken.
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
from tiller_daemon.snapshots.looks import LEARN_FROM
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
        quick = partial(take, thorough=False)
        lags: list[float] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, lags)
            first = await _timed(take)
            nursery.cancel_scope.cancel()
        learning = [await _timed(take) for _ in range(LEARN_FROM - 1)]
        unchanged = [await _timed(take) for _ in range(ROUNDS)]
        watched = [await _timed(quick) for _ in range(ROUNDS)]
        touched: list[float] = []
        for number in range(ROUNDS):
            (workspace / f"folder{number}" / "new").touch()
            touched.append(await _timed(quick))
        changed: list[float] = []
        compared: list[float] = []
        reverted: list[float] = []
        for number in range(ROUNDS):
            before = await quick()
            _change(workspace, number)
            changed.append(await _timed(quick))
            after = await quick()
            compare = partial(snapshots.changes, str(workspace), before, after)
            compared.append(await _timed(compare))
            moves, _ = moves_back([await compare()])
            reverted.append(await _timed(partial(snapshots.restore, str(workspace), moves, "X")))
            snapshots.confirm_restore(str(workspace))
        print_rows(
            (
                Row(f"first snapshot of {files} files", "ms", (first,)),
                Row("longest wait of the loop meanwhile", "ms", (max(lags),)),
                Row("snapshot with which the files become known", "ms", (learning[-1],)),
                Row("thorough snapshot, nothing changed", "ms", tuple(unchanged)),
                Row("quick snapshot, nothing changed", "ms", tuple(watched)),
                Row("quick snapshot, one new file", "ms", tuple(touched)),
                Row(f"quick snapshot, {CHANGED} files changed", "ms", tuple(changed)),
                Row("comparison of two", "ms", tuple(compared)),
                Row(f"putting {CHANGED} files back", "ms", tuple(reverted)),
            )
        )
        step = statistics.median(watched) + statistics.median(changed)
        print(f"a step that changes {CHANGED} files: {step + statistics.median(compared):.1f} ms")


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
