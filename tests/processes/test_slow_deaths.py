"""Killed processes that take long to die: which are found, and which count as survivors."""

import ctypes
import os
import signal
import sys
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tiller_daemon.processes.process_table import ProcTable
from tiller_daemon.processes.process_tree import (
    KILL_WAIT_S,
    POLL_S,
    EndedProcesses,
    ProcessTree,
)

SHELLS = 40
"""If every list is read only once, an orphan is missed for about six of these shells."""

PTRACE_SEIZE = 0x4206
WALL = 0x40000000

TWO_THREADS = """
import threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
print(end="x", flush=True)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux keeps traced threads")


class Dying:
    """A process that dies only when it is released, because one of its threads is traced."""

    def __init__(self, pid: int) -> None:
        self._process = Path(f"/proc/{pid}")
        (self._thread,) = {int(one.name) for one in (self._process / "task").iterdir()} - {pid}
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.ptrace(PTRACE_SEIZE, self._thread, None, None):
            pytest.skip(f"tracing is not permitted here: {os.strerror(ctypes.get_errno())}")

    async def release(self) -> None:
        os.waitpid(self._thread, WALL)  # noqa: ASYNC222 - it has been killed
        while self._process.exists():
            await trio.lowlevel.checkpoint()


class Tree:
    """A command whose processes are all going to die slowly."""

    def __init__(self, directory: Path, count: int) -> None:
        python = f"{sys.executable} -c '{TWO_THREADS}'"
        reading, writing = os.pipe()
        line = f"for i in $(seq {count - 1}); do {python} & done; exec {python}"
        self.tree = ProcessTree(["bash", "-c", line], directory, dict(os.environ), {1: writing})
        os.close(writing)
        with os.fdopen(reading) as pipe:
            assert pipe.read(count) == "x" * count
        pids = Path(f"/proc/{self.tree.running.pid}/task/{self.tree.running.pid}/children")
        self.dying = [Dying(int(pid)) for pid in (self.tree.running.pid, *pids.read_text().split())]
        self.ended: list[EndedProcesses] = []

    async def end(self) -> None:
        self.ended.append(await self.tree.end(0))
        self.tree.close()


async def test_processes_that_die_one_after_the_other_are_no_survivors(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    slow = Tree(tmp_path, 3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow.end)
        for one in slow.dying:
            await wait_all_tasks_blocked()
            mock_clock.jump(0.9 * KILL_WAIT_S)
            await wait_all_tasks_blocked()
            assert not slow.ended
            await one.release()
            mock_clock.jump(POLL_S)
    assert slow.ended == [EndedProcesses(3, 0)]


async def test_a_process_that_dies_while_nobody_looks_is_no_survivor(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    """As on a machine so busy that the daemon gets no time either."""
    slow = Tree(tmp_path, 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow.end)
        await wait_all_tasks_blocked()
        await slow.dying[0].release()
        mock_clock.jump(2 * KILL_WAIT_S)
    assert slow.ended == [EndedProcesses(1, 0)]


async def test_what_does_not_die_is_a_survivor(tmp_path: Path, mock_clock: MockClock) -> None:
    slow = Tree(tmp_path, 2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow.end)
        await wait_all_tasks_blocked()
        await slow.dying[1].release()
        mock_clock.jump(POLL_S)
        await wait_all_tasks_blocked()
        mock_clock.jump(2 * KILL_WAIT_S)
    assert slow.ended == [EndedProcesses(2, 1)]
    await slow.dying[0].release()


async def test_orphans_are_found_while_they_move_to_their_reaper(tmp_path: Path) -> None:
    shell = "for i in $(seq 4); do sleep 1000 & done; echo -n x; wait"
    line = f"for i in $(seq {SHELLS}); do bash -c '{shell}' & done; wait"
    reading, writing = os.pipe()
    tree = ProcessTree(["bash", "-c", line], tmp_path, dict(os.environ), {1: writing})
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read(SHELLS) == "x" * SHELLS
    found = ProcTable().descendants(tree.running.reaper)
    shells = {pid for pid, entry in found.items() if entry.parent == tree.running.pid}
    sleeping = found.keys() - shells - {tree.running.pid}
    assert len(sleeping) == 4 * len(shells) == 4 * SHELLS
    for pid in shells:
        os.kill(pid, signal.SIGKILL)
        while pid in found and not found[pid].dead:
            found = ProcTable().descendants(tree.running.reaper)
            assert found.keys() >= sleeping
    await tree.end(0)
    tree.close()
