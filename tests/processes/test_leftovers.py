"""What a daemon that was killed leaves behind: ended by reapers, or at the next start."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from processes.conftest import until
from tiller_daemon.processes import process_tree
from tiller_daemon.processes.fork_server import running_fork_server
from tiller_daemon.processes.process_table import (
    ProcessEntry,
    ProcTable,
    PsTable,
    choose_table,
    descendants_in,
)
from tiller_daemon.processes.process_tree import sweep

STAY = "sh -c 'echo ready $$; exec sleep 1000'"

DAEMON = """
import os, sys, trio
from pathlib import Path
from tiller_daemon.processes.environment import child_environment
from tiller_daemon.processes.command import run_command
from tiller_daemon.processes.fork_server import running_fork_server

async def receive(piece):
    os.write(1, piece)

async def main():
    with running_fork_server("TILLER_DAEMON=" + sys.argv[1]):
        await run_command(
            ["bash", "-c", sys.argv[2]],
            directory=Path("/"),
            variables=child_environment(os.environ, (), sys.argv[1], "c"),
            receive=receive,
            timeout_s=1000,
        )

trio.run(main)
"""


@contextmanager
def daemon(log_id: str, command: str) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """A daemon that runs `command`, and the pids which that says to be ready."""
    with subprocess.Popen(
        [sys.executable, "-c", DAEMON, log_id, command], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        pids: list[int] = []
        while len(pids) < command.count("ready"):
            word, _, pid = process.stdout.readline().partition(b" ")
            if word == b"ready":
                pids.append(int(pid))
        try:
            yield process, pids
        finally:
            process.kill()


def stop_reapers(process: subprocess.Popen[bytes], log_id: str) -> list[int]:
    """Stop a daemon's fork server and its reaper; return their pids in this order.

    The fork server is stopped first, because it kills a stopped reaper.
    """
    pids = sorted(reapers_of(log_id), key=lambda pid: parent_of(pid) != process.pid)
    assert [parent_of(pid) for pid in pids] == [process.pid, pids[0]]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
        until(lambda stat=Path(f"/proc/{pid}/stat"): b") T " in stat.read_bytes())
    return pids


def kill_with_reapers(process: subprocess.Popen[bytes], log_id: str) -> None:
    """Kill a daemon and whoever would end its commands, before any of them can do so."""
    fork_server, reaper = stop_reapers(process, log_id)
    process.kill()
    os.kill(reaper, signal.SIGKILL)
    os.kill(fork_server, signal.SIGKILL)
    process.wait()


def parent_of(pid: int) -> int:
    entry = ProcTable().entry(pid)
    assert entry
    return entry.parent


def lives(pid: int) -> bool:
    entry = ProcTable().entry(pid)
    return entry is not None and not entry.dead


SHAPES = f"{STAY} & setsid {STAY} & ( ( nohup {STAY} & ) & ); env -i {STAY} & sleep 1000"
GONE = f"( setsid env -i TILLER_DAEMON=x TILLER_COMMAND=x {STAY} & ); {SHAPES}"
"""When reapers are killed too, nothing tells whose the first one is."""


def test_everything_ends_when_the_daemon_is_killed():
    with daemon("KILLED", GONE) as (process, pids):
        assert [pid for pid in pids if not lives(pid)] == []
        process.send_signal(signal.SIGKILL)
        until(lambda: not any(lives(pid) for pid in pids) and not reapers_of("KILLED"))


async def test_the_next_start_ends_what_stands_still_meanwhile():
    with daemon("STOPPED", GONE) as (process, pids):
        stop_reapers(process, "STOPPED")
        process.kill()
        process.wait()
        assert [pid for pid in pids if not lives(pid)] == []
        await sweep("STOPPED")
        assert [pid for pid in pids if lives(pid)] == []
        assert reapers_of("STOPPED") == set()


async def test_the_next_start_ends_what_was_left_behind_when_the_reapers_were_killed_too():
    with daemon("SWEPT", SHAPES) as (process, pids):
        kill_with_reapers(process, "SWEPT")
        assert [pid for pid in pids if not lives(pid)] == []
        assert await sweep("ANOTHER") == 0
        assert [pid for pid in pids if not lives(pid)] == []
        assert await sweep("SWEPT") >= len(pids)
        assert [pid for pid in pids if lives(pid)] == []


async def test_a_sweep_spares_the_one_who_sweeps_and_those_who_started_it(monkeypatch):
    class Marked(ProcTable):
        def marked(self, mark: bytes) -> set[int]:
            return {os.getpid(), os.getppid()}

    monkeypatch.setattr(process_tree, "_TABLE", Marked())
    assert await sweep("ME") == 0


async def test_a_sweep_reaches_into_its_own_group_without_ending_itself():
    near = await trio.lowlevel.open_process(["sleep", "1000"], env={"TILLER_DAEMON": "NEAR"})
    with trio.fail_after(10):
        while not await sweep("NEAR"):
            await trio.lowlevel.checkpoint()
    assert await near.wait() == -signal.SIGKILL


async def test_a_sweep_ends_five_hundred_processes():
    command = "for i in $(seq 500); do sleep 1000 & done; echo ready $$; wait"
    with daemon("CROWD", command) as (process, _):
        kill_with_reapers(process, "CROWD")
        assert await sweep("CROWD") >= 501
        assert await sweep("CROWD") == 0


def test_an_orderly_stop_sends_the_reaper_away_and_kills_nothing():
    mark = "TILLER_DAEMON=ORDERLY"
    environ = {"TILLER_DAEMON": "ORDERLY"}
    with subprocess.Popen(["sleep", "1000"], env=environ, start_new_session=True) as stays:
        try:
            with running_fork_server(mark) as fork_server:
                until(lambda: reapers_of("ORDERLY") == {fork_server.pid})
            assert reapers_of("ORDERLY") == set()
            assert stays.poll() is None
        finally:
            stays.kill()


def reapers_of(log_id: str) -> set[int]:
    return ProcTable().named(b"TILLER_DAEMON=" + log_id.encode())


@pytest.mark.parametrize("table", [ProcTable(), PsTable()], ids=["/proc", "ps"])
def test_both_ways_to_read_the_table_agree(table):
    mark = f"TILLER_DAEMON=TABLED-{os.getpid()}"  # Another worker may test the other table.
    environ = {**os.environ, **dict([mark.split("=")])}
    with subprocess.Popen(["sleep", "1000"], env=environ, start_new_session=True) as child:
        try:
            entries = table.entries()
            entry = entries[child.pid]
            assert entry == ProcessEntry(
                child.pid, os.getpid(), child.pid, child.pid, entry.start, dead=False
            )
            assert entry.start >= entries[os.getpid()].start
            # Just after exec the system shows no variables yet.
            until(lambda: table.marked(mark.encode()) == {child.pid})
            assert child.pid in table.named(b"1000") - table.named(b"100")
        finally:
            child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert table.entries()[child.pid].dead
    assert child.pid not in table.entries()
    assert table.marked(mark.encode()) == set()


def test_both_ways_find_all_below_a_process_that_the_table_shows() -> None:
    """Also the children of a thread, and orphans that a subreaper has got."""
    with daemon("BELOW", GONE) as (process, pids):
        assert {*pids} < {*ProcTable().descendants(process.pid)}

        def all_agree() -> bool:
            found = ProcTable().descendants(process.pid).keys()
            listed = descendants_in(ProcTable().entries(), process.pid).keys()
            return found == listed == PsTable().descendants(process.pid).keys()

        until(all_agree)  # A shell that has started something may not be gone yet.
    code = """if True:
        import subprocess, threading
        def start():
            print(subprocess.Popen(["sleep", "9"]).pid)
            threading.Event().wait()
        threading.Thread(target=start, daemon=True).start()
        input()
    """
    command = [sys.executable, "-uc", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        pid = int(process.stdout.readline())
        assert {*ProcTable().descendants(process.pid)} == {pid}
        os.kill(pid, signal.SIGKILL)
        process.kill()


def test_linux_reads_proc():
    assert isinstance(choose_table(), ProcTable)


async def test_without_subreapers_a_tree_is_found_by_its_marks_and_sessions(play, monkeypatch):
    monkeypatch.setattr(process_tree, "_TABLE", PsTable())
    with running_fork_server("", adopts=False):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(play.run, f"{STAY} & ( ( setsid {STAY} & ) & ); sleep 1000")
            await play.until_ready(2)
            nursery.cancel_scope.cancel()
    assert [pid for pid in play.pids if lives(pid)] == []
