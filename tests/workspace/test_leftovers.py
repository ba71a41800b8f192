"""What a daemon that was killed leaves behind: ended by its guard, or at the next start."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from tiller_daemon.workspace import tree as room
from tiller_daemon.workspace.guard import Guard
from tiller_daemon.workspace.table import Entry, ProcTable, PsTable, choose_table
from tiller_daemon.workspace.tree import sweep

STAY = "sh -c 'echo ready $$; exec sleep 1000'"

DAEMON = """
import os, sys, trio
from pathlib import Path
from tiller_daemon.workspace.environment import child_environment
from tiller_daemon.workspace.guard import Guard
from tiller_daemon.workspace.process import run_command
from tiller_daemon.workspace.tree import become_subreaper

async def receive(piece):
    os.write(1, piece)

async def main():
    become_subreaper()
    with Guard(sys.argv[1]) if sys.argv[2] else open("/dev/null"):
        await run_command(
            ["bash", "-c", sys.argv[3]],
            directory=Path("/"),
            variables=child_environment(os.environ, (), sys.argv[1], "c"),
            receive=receive,
            timeout_s=1000,
        )

trio.run(main)
"""


@contextmanager
def daemon(
    log_id: str, command: str, *, guard: bool
) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """A daemon that runs `command`, and the pids which that says to be ready."""
    with subprocess.Popen(
        [sys.executable, "-c", DAEMON, log_id, "guard" if guard else "", command],
        stdout=subprocess.PIPE,
    ) as process:
        pids: list[int] = []
        while len(pids) < command.count("ready"):
            word, _, pid = process.stdout.readline().partition(b" ")
            if word == b"ready":
                pids.append(int(pid))
        yield process, pids
        process.kill()


def lives(pid: int) -> bool:
    entry = ProcTable().entry(pid)
    return entry is not None and not entry.dead


SHAPES = f"{STAY} & setsid {STAY} & ( ( nohup {STAY} & ) & ); env -i {STAY} & sleep 1000"


async def test_the_next_start_ends_what_a_killed_daemon_left_behind():
    with daemon("SWEPT", SHAPES, guard=False) as (process, pids):
        process.kill()
        process.wait()
        assert [pid for pid in pids if not lives(pid)] == []
        assert await sweep("ANOTHER") == 0
        assert [pid for pid in pids if not lives(pid)] == []
        assert await sweep("SWEPT") >= len(pids)
        assert [pid for pid in pids if lives(pid)] == []


async def test_a_sweep_spares_the_one_who_sweeps_and_those_who_started_it(monkeypatch):
    class Marked(ProcTable):
        def marked(self, mark: bytes) -> set[int]:
            return {os.getpid(), os.getppid()}

    monkeypatch.setattr(room, "_TABLE", Marked())
    assert await sweep("ME") == 0


async def test_a_sweep_reaches_into_its_own_group_without_ending_itself():
    near = await trio.lowlevel.open_process(["sleep", "1000"], env={"TILLER_DAEMON": "NEAR"})
    with trio.fail_after(10):
        while not await sweep("NEAR"):
            await trio.lowlevel.checkpoint()
    assert await near.wait() == -signal.SIGKILL


async def test_a_sweep_ends_five_hundred_processes():
    command = "for i in $(seq 500); do sleep 1000 & done; echo ready $$; wait"
    with daemon("CROWD", command, guard=False) as (process, _):
        process.kill()
        process.wait()
        assert await sweep("CROWD") >= 501
        assert await sweep("CROWD") == 0


def test_the_guard_ends_everything_when_the_daemon_is_killed():
    shapes = SHAPES.replace(f"env -i {STAY} &", "")
    with daemon("GUARDED", shapes, guard=True) as (process, pids):
        assert [pid for pid in pids if not lives(pid)] == []
        process.send_signal(signal.SIGKILL)
        until(lambda: not any(lives(pid) for pid in pids) and not guards("GUARDED"))


def test_an_orderly_stop_sends_the_guard_away_and_kills_nothing():
    mark = {"TILLER_DAEMON": "ORDERLY"}
    with subprocess.Popen(["sleep", "1000"], env=mark, start_new_session=True) as stays:
        try:
            with Guard("ORDERLY"):
                until(lambda: len(guards("ORDERLY")) == 1)
            assert guards("ORDERLY") == []
            assert stays.poll() is None
        finally:
            stays.kill()


def until(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def guards(log_id: str) -> list[str]:
    mark = f"tiller-guard\0TILLER_DAEMON={log_id}\0".encode()
    found: list[str] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark in file.read_bytes():
                found.append(file.parent.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("table", [ProcTable(), PsTable()], ids=["/proc", "ps"])
def test_both_ways_to_read_the_table_agree(table):
    environ = {**os.environ, "TILLER_DAEMON": "TABLED"}
    with subprocess.Popen(["sleep", "1000"], env=environ, start_new_session=True) as child:
        try:
            entry = table.entry(child.pid)
            assert entry == Entry(
                child.pid, os.getpid(), child.pid, child.pid, entry.start, dead=False
            )
            assert table.entries()[child.pid] == entry
            assert entry.start >= table.entry(os.getpid()).start
            # Just after exec the system shows no variables yet.
            until(lambda: b"TILLER_DAEMON=TABLED" in table.variables(child.pid))
            assert table.marked(b"TILLER_DAEMON=TABLED") == {child.pid}
        finally:
            child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert table.entry(child.pid).dead
    assert table.entry(child.pid) is None
    assert table.variables(child.pid).strip() == b""


def test_linux_reads_proc():
    assert isinstance(choose_table(), ProcTable)


async def test_without_a_subreaper_a_tree_is_found_by_its_marks_and_sessions(play, monkeypatch):
    monkeypatch.setattr(room, "_adopts", [False])
    monkeypatch.setattr(room, "_TABLE", PsTable())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(play.run, f"{STAY} & ( ( setsid {STAY} & ) & ); sleep 1000")
        await play.until_ready(2)
        nursery.cancel_scope.cancel()
    assert [pid for pid in play.pids if lives(pid)] == []
