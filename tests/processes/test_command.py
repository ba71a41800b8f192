"""Running a command: its output, its end, its time limit, and its environment."""

import os
import sys
import time
from pathlib import Path

import pytest
import trio

from tiller_daemon.processes.command import CommandProblem, run_command


async def test_the_exit_status_is_that_of_the_command(play):
    assert (await play.run("exit 7")).status == 7
    assert (await play.run("kill -KILL $$")).status == -9


@pytest.mark.promise("T2")
async def test_a_command_hangs_on_no_thread_of_the_daemon(play):
    # The signal that the system sends to a child when the thread that made it ends.
    ask = (
        "import ctypes; n = ctypes.c_int(-1);"
        "ctypes.CDLL(None).prctl(2, ctypes.byref(n)); print(n.value)"
    )
    await play.run(f"{sys.executable} -c '{ask}'")
    assert play.printed == b"0\n"


async def test_a_command_has_the_usual_signals_and_no_descriptor_too_many(play):
    ask = "import os, signal; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1], "
    ask += "[n for n in (1, 2, 10, 13, 15, 17, 25) if signal.getsignal(n) == signal.SIG_IGN])"
    # A Python ignores two of them itself.
    shell = f"grep -E 'Sig(Ign|Blk)' /proc/self/status; exec {sys.executable} -c \"{ask}\""
    await play.run(shell)
    *masks, seen = play.printed.decode().splitlines()
    # The two of the C library's own that no program can tell are ignored after any `posix_spawn`.
    assert {int(line.split()[1], 16) & ~(0b11 << 31) for line in masks} == {0}
    assert seen == "[0, 1, 2] [13, 25]"


@pytest.mark.promise("T13")
async def test_the_result_comes_though_a_child_holds_the_output_and_is_deaf(play):
    command = "sh -c 'trap \"\" TERM; echo ready; sleep 1000' & until [ -s x ]; do sleep 0.01; done"
    async with trio.open_nursery() as nursery:

        async def until_it_is_deaf() -> None:
            while b"ready" not in play.printed:
                await trio.lowlevel.checkpoint()
            (play.directory / "x").write_text("go")

        nursery.start_soon(until_it_is_deaf)
        end = await play.run(command)
    assert (end.status, end.leftovers >= 1, end.survivors) == (0, True, 0)


async def test_all_that_was_printed_before_the_exit_is_there_however_slow_the_reader(play):
    async def slowly(piece: bytes) -> None:
        await trio.sleep(0.01)
        await play.receive(piece)

    await run_command(
        ["bash", "-c", "seq 100000"],
        directory=play.directory,
        variables=dict(os.environ),
        receive=slowly,
        timeout_s=60,
    )
    assert play.printed == b"".join(b"%d\n" % i for i in range(1, 100001))


async def test_a_timeout_gives_time_to_put_things_in_order(play):
    end = await play.run("trap 'echo tidy; exit 3' TERM; while :; do sleep 0.01; done", timeout_s=1)
    assert end.timed_out
    assert play.printed.endswith(b"tidy\n")


async def test_a_stopped_process_gets_that_time_too(play):
    stopped = "sh -c 'trap \"echo tidy; exit\" TERM; echo ready $$; kill -STOP $$; sleep 1000'"
    await play.run(f"{stopped} & wait", timeout_s=1)
    assert play.printed.endswith(b"tidy\n")


async def test_a_receiver_that_breaks_ends_the_command(play):
    async def broken(piece: bytes) -> None:
        await play.receive(piece)
        raise ZeroDivisionError

    with pytest.RaisesGroup(ZeroDivisionError):
        await run_command(
            ["bash", "-c", "echo ready $$; sleep 1000"],
            directory=play.directory,
            variables=dict(os.environ),
            receive=broken,
            timeout_s=60,
        )
    assert len(play.pids) == 1
    assert play.survivors() == []


async def test_what_can_not_be_started_says_where_and_why(play):
    for arguments in (["/no/such/program"], ["bash", "-c", "\0"], ["bash", "-c", "x" * 300_000]):
        with pytest.raises(CommandProblem, match=f"could not be started in {play.directory}: "):
            await run_command(
                arguments,
                directory=play.directory,
                variables={},
                receive=play.receive,
                timeout_s=60,
            )


async def test_no_descriptor_stays_open_after_any_end(play):
    await play.run("true")
    before = _descriptors()
    for _ in range(5):
        await play.run("sleep 1000 & true")
        await play.run("sleep 1000", timeout_s=0.02)
        with trio.move_on_after(0.02):
            await play.run("sleep 1000")
    # Reapers that waited for a command, at most four, have been used up.
    assert _descriptors() <= before


async def test_a_flood_does_not_keep_the_loop_from_others(play):
    async def drop(_: bytes) -> None:
        pass

    worst_s = 0.0
    async with trio.open_nursery() as nursery:
        command = ["bash", "-c", "head -c 300000000 /dev/zero"]
        done = trio.Event()

        async def flood() -> None:
            await run_command(
                command,
                directory=play.directory,
                variables=dict(os.environ),
                receive=drop,
                timeout_s=60,
            )
            done.set()

        nursery.start_soon(flood)
        turns = 0
        while not done.is_set():
            began = time.perf_counter()
            await trio.lowlevel.checkpoint()
            worst_s = max(worst_s, time.perf_counter() - began)
            turns += 1
    assert turns > 100
    assert worst_s < 0.5


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
