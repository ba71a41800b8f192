"""Whose a process is, the kernel knows: in every sandbox, as any user, and whoever is killed."""

import os
import signal
import sys
from pathlib import Path
from types import FrameType

import pytest
import trio

from processes.conftest import Play, until
from processes.test_escapes import DEAF, STAY
from support.daemon import gone
from support.each import each
from support.sandboxes import MECHANISMS, WHO, Mechanism, Place, place_of
from support.survivors import READY, SHAPES, Escape
from tiller_daemon.processes.command import CommandEnd, run_command
from tiller_daemon.processes.fork_server import running_fork_server

FORGED = f"( setsid env -i TILLER_COMMAND=x TILLER_DAEMON=x {STAY} & )"


class Attempt:
    """A command that tries every way to get away, in a sandbox or without one."""

    def __init__(self, place: Place, mechanism: Mechanism | None) -> None:
        self.escape = Escape(place.workspace)
        self._place = place
        self._command = self.escape.command
        self._confined = place.sandbox(mechanism) if mechanism else None
        self.got_away = trio.Event()
        self.end: CommandEnd | None = None

    async def run(self) -> None:
        """Run it until it ends."""
        words = ["bash", "-c", self._command]
        said = b""

        async def receive(piece: bytes) -> None:
            nonlocal said
            said += piece
            if READY.encode() in said:
                self.got_away.set()

        self.end = await run_command(
            words if self._confined else [*self._place.prefix, *words],
            directory=self._place.workspace,
            variables={"PATH": os.environ["PATH"]},
            receive=receive,
            timeout_s=60,
            sandbox=self._confined,
        )


@each("who", WHO)
@each("mechanism", [*MECHANISMS, None])
@pytest.mark.promise("G8")
async def test_of_two_commands_at_once_each_takes_all_its_own_with_it(
    mechanism: Mechanism | None, who: str
) -> None:
    """One is interrupted while the other goes on; that one then ends by itself."""
    with place_of(who) as place:
        interrupted, other = Attempt(place, mechanism), Attempt(place, mechanism)
        async with trio.open_nursery() as outer:
            outer.start_soon(other.run)
            async with trio.open_nursery() as inner:
                inner.start_soon(interrupted.run)
                await interrupted.got_away.wait()
                await other.got_away.wait()
                inner.cancel_scope.cancel()
            assert interrupted.escape.alive() == {}
            assert set(other.escape.alive()) == set(SHAPES)
            other.escape.let_go()
        assert other.escape.alive() == {}
    assert other.end
    assert (other.end.status, other.end.survivors) == (0, 0)


async def test_what_is_left_by_a_command_that_kills_its_reaper_is_killed_at_once(play: Play):
    end = await play.run(f"{FORGED}\n( {DEAF} & )\nsleep 0.2; kill -9 $PPID; sleep 1000")
    assert end.status == -signal.SIGKILL
    assert len(play.pids) == 2
    assert all(gone(pid, timeout_s=10) for pid in play.pids)
    assert (await play.run("exit 7")).status == 7


async def test_a_command_that_kills_its_reaper_at_once_was_started_and_is_ended(play: Play):
    """It may do so before the reaper has reported the start."""
    for _ in range(50):
        end = await play.run("kill -9 $PPID; sleep 1000")
        assert (end.status, end.timed_out) == (-signal.SIGKILL, False)


async def test_a_command_that_makes_its_reaper_stand_still_is_ended(play: Play):
    end = await play.run(f"{FORGED}\nsleep 0.2; kill -STOP $PPID; sleep 1000")
    assert end.status == -signal.SIGKILL
    assert len(play.pids) == 1
    assert all(gone(pid, timeout_s=10) for pid in play.pids)
    assert (await play.run("exit 7")).status == 7


async def test_a_command_that_signals_its_parent_does_no_harm(play: Play):
    end = await play.run("for name in TERM INT HUP PIPE CHLD; do kill -$name $PPID; done; exit 7")
    assert end.status == 7


TRACED = """
import ctypes, os, sys
assert ctypes.CDLL(None).ptrace(0, 0, 0, 0) == 0
os.execvp("sh", ["sh", "-c", sys.argv[1]])
"""
"""Becomes a shell that its parent traces."""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the request has another number")
@pytest.mark.parametrize(("script", "status"), [("(exit 3); exit 7", 7), ("kill $$", -15)])
async def test_a_command_that_makes_its_reaper_trace_it_runs_to_its_end(
    play: Play, script: str, status: int
) -> None:
    end = await play.run(f"exec {sys.executable} -c '{TRACED}' '{script}'", timeout_s=30)
    assert (end.status, end.leftovers) == (status, 0)


async def test_a_reaper_runs_the_next_command_if_nothing_was_left(play: Play):
    with running_fork_server("AGAIN"):
        for _ in range(3):
            assert (await play.run("echo ready $PPID; exit 7")).status == 7
    assert len(play.pids) == 3
    assert len({*play.pids}) == 1


@pytest.mark.parametrize("leaves", [f"{FORGED}; sleep 0.2", "sleep 0.05 &"])
async def test_where_a_command_left_something_no_other_runs(play: Play, leaves: str):
    with running_fork_server("LEFT"):
        await play.run(f"echo ready $PPID; {leaves}")
        await play.run("echo ready $PPID")
    assert play.pids[0] != play.pids[-1]


async def test_it_is_known_when_the_last_process_that_a_command_left_has_ended(tmp_path: Path):
    with running_fork_server("EMPTIED") as fork_server, (tmp_path / "out").open("w") as output:
        program = fork_server.start(
            ["sh", "-c", "while [ ! -e go ]; do sleep 0.01; done &"],
            tmp_path,
            {"PATH": os.environ["PATH"]},
            {1: output.fileno()},
        )
        await program.exited()
        assert not program.is_empty
        (tmp_path / "go").touch()
        with trio.fail_after(10):
            await program.emptied()
        program.close()


OUTLIVES = """
( while kill -0 $$; do sleep 0.01; done; sleep 0.1 ) &
echo $PPID > new; mv new reaper
"""
"""Leaves a process that ends only after the reaper has seen the end of the shell. So the reaper
ends as well, instead of waiting for the next command."""


def test_a_program_that_ends_before_the_daemon_runs_again_was_started(tmp_path: Path):
    """A busy machine may suspend the daemon in the middle of a start."""
    reaper, messages = tmp_path / "reaper", 0

    def suspend(_frame: FrameType, event: str, function: object) -> None:
        """Wait until reaper and program are gone, once the request for the program is sent."""
        nonlocal messages
        if event == "c_return" and getattr(function, "__name__", "") == "sendmsg":
            messages += 1  # The first one asks for a reaper.
            if messages == 2:
                until(reaper.exists)
                assert gone(int(reaper.read_text()), timeout_s=10)

    with running_fork_server("LATE") as fork_server:
        sys.setprofile(suspend)
        try:
            program = fork_server.start(
                ["sh", "-c", OUTLIVES],
                tmp_path,
                {"PATH": os.environ["PATH"]},
                {},
            )
        finally:
            sys.setprofile(None)
        assert (messages, program.status(), program.is_empty) == (2, 0, True)
        program.close()


async def test_closing_a_program_kills_what_it_left_in_the_background(tmp_path: Path):
    pid = tmp_path / "pid"
    with running_fork_server("CLOSED") as fork_server, pid.open("w") as output:
        program = fork_server.start(
            ["sh", "-c", "sleep 1000 & echo $!"],
            tmp_path,
            {"PATH": os.environ["PATH"]},
            {1: output.fileno()},
        )
        await program.exited()
        assert not program.is_empty
        program.close()
        assert gone(int(pid.read_text()), timeout_s=10)


async def test_a_reaper_that_is_killed_between_two_commands_is_replaced(play: Play):
    with running_fork_server("BETWEEN"):
        await play.run("echo ready $PPID")
        os.kill(play.pids[0], signal.SIGKILL)
        assert gone(play.pids[0], timeout_s=10)
        assert (await play.run("exit 7")).status == 7


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_reaper_that_ends_with_an_unread_request_is_replaced(play: Play, tmp_path: Path):
    def kill(_frame: FrameType, event: str, function: object) -> None:
        """Kill the reaper once it has been sent the request."""
        if event == "c_return" and getattr(function, "__name__", "") == "sendmsg":
            sys.setprofile(None)
            os.kill(reaper, signal.SIGKILL)
            assert gone(reaper, timeout_s=10)
            os.kill(first, signal.SIGCONT)

    with running_fork_server("UNREAD") as fork_server:
        await play.run("echo ready $PPID")
        (reaper,), first = play.pids, fork_server.pid or 0
        for pid in (first, reaper):  # The fork server would kill the stopped reaper.
            os.kill(pid, signal.SIGSTOP)
            until(lambda pid=pid: " T " in Path(f"/proc/{pid}/stat").read_text())
        sys.setprofile(kill)
        try:
            program = fork_server.start(["true"], tmp_path, {"PATH": os.environ["PATH"]}, {})
        finally:
            sys.setprofile(None)
        assert program.reaper != reaper
        program.close()


async def test_when_the_first_process_is_killed_commands_end_and_the_next_one_runs(play: Play):
    with running_fork_server("KILLED") as fork_server:
        async with trio.open_nursery() as nursery:  # For the next ones their reapers are there.
            nursery.start_soon(play.run, "sleep 0.2")
            nursery.start_soon(play.run, "sleep 0.2")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(play.run, f"{FORGED}\nsleep 1000")
            await play.until_ready(1)
            assert fork_server.pid
            os.kill(fork_server.pid, signal.SIGKILL)
        assert play.survivors() == []
        assert (await play.run("exit 7")).status == 7
