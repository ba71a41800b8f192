"""Nothing of a command outlives it (T12, B23), however its children try to get away."""

import sys
from contextlib import suppress
from pathlib import Path

import pytest
import trio

STAY = "sh -c 'echo ready $$; exec sleep 1000'"
DEAF = "sh -c 'trap \"\" TERM HUP INT; echo ready $$; while :; do sleep 1000; done'"

THREADED = """
import ctypes, os, signal, threading, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
threading.Thread(target=time.sleep, args=(1000,)).start()
print("ready", os.getpid(), flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""

SHAPES = {
    "its own session": f"setsid {STAY} &",
    "forked twice": f"( ( {STAY} & ) & )",
    "nohup": f"nohup {STAY} &",
    "deaf to SIGTERM": f"{DEAF} &",
    "a cleared environment": f"env -i {STAY} &",
    "a forged environment": (
        f"( setsid env -i TILLER_COMMAND=x TILLER_DAEMON=x TILLER_CALL=x {STAY} & )"
    ),
    "disowned": f"{STAY} & disown",
    "all of it": f"( ( env -i setsid {DEAF} & ) & )",
    "without its first thread": f"setsid {sys.executable} -c '{THREADED}' &",
    "stopped": "sh -c 'echo ready $$; kill -STOP $$' &",
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
async def test_an_interrupt_leaves_no_process_alive(play, shape):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(play.run, f"{shape}\nsleep 1000")
        await play.until_ready(1)
        nursery.cancel_scope.cancel()
    assert play.survivors() == []


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
async def test_a_timeout_leaves_no_process_alive(play, shape, monkeypatch):
    monkeypatch.setattr("tiller_daemon.processes.command.TIMEOUT_GRACE_S", 0.1)
    timeout_s = 0.25
    while not play.pids:
        timeout_s *= 2
        end = await play.run(f"{shape}\nsleep 1000", timeout_s=timeout_s)
    assert end.timed_out
    assert end.survivors == 0
    assert play.survivors() == []


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
async def test_what_the_shell_leaves_behind_is_ended_and_counted(play, shape):
    # The shell waits for a word of its child, so that there is something to leave behind.
    end = await play.run(f"{{ {shape}\n}} > word\nuntil [ -s word ]; do sleep 0.01; done; cat word")
    if not play.pids:
        pytest.fail(f"the child never spoke: {play.printed!r}")
    assert (end.status, end.leftovers >= 1, end.survivors) == (0, True, 0)
    assert play.survivors() == []


@pytest.mark.promise("B23")
async def test_an_interrupt_ends_the_deaf_and_those_that_left_within_a_second(
    play,
):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(play.run, f"{DEAF} & setsid {STAY} & sleep 100")
        await play.until_ready(2)
        cancelled_at = trio.current_time()
        nursery.cancel_scope.cancel()
    assert trio.current_time() - cancelled_at < 1.0
    assert play.survivors() == []


async def test_orphans_that_died_on_their_own_are_reaped(play):
    await play.run("for i in 1 2 3 4 5; do ( setsid sh -c 'echo ready $$' & ) ; done; sleep 0.05")
    await play.run("true")
    assert len(play.pids) == 5
    assert play.survivors() == []


async def test_orphans_that_die_while_a_command_runs_are_reaped_meanwhile(play):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(play.run, "( setsid sh -c 'echo ready $$' & ); sleep 1000")
        await play.until_ready(1)
        with trio.fail_after(10):
            while play.survivors():
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


async def test_the_end_of_one_command_leaves_another_alone(new_play):
    first, second = new_play(), new_play()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first.run, f"( ( setsid {STAY} & ) & ); sleep 1000")
        await first.until_ready(1)
        await second.run(f"( setsid {DEAF} & ) ; true")
        assert first.survivors() == first.pids
        assert second.survivors() == []
        nursery.cancel_scope.cancel()
    assert first.survivors() == []


@pytest.mark.parametrize("ends", ["the first", "the second"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
async def test_of_two_commands_at_once_only_the_one_that_ends_is_ended(new_play, shape, ends):
    """Whatever a process says of itself: which command it belongs to is the kernel's knowledge."""
    ended, other = new_play(), new_play()
    async with trio.open_nursery() as outer:
        async with trio.open_nursery() as inner:
            for play in (ended, other) if ends == "the first" else (other, ended):
                (inner if play is ended else outer).start_soon(play.run, f"{shape}\nsleep 1000")
                await play.until_ready(1)
            inner.cancel_scope.cancel()
        assert ended.survivors() == []
        assert other.survivors() == other.pids
        outer.cancel_scope.cancel()
    assert other.survivors() == []


async def test_children_that_the_daemon_started_by_other_means_are_spared(play):
    async with trio.open_nursery() as nursery:
        own = await trio.lowlevel.open_process(["sleep", "1000"])
        server = await trio.lowlevel.open_process(
            ["sleep", "1000"], start_new_session=True, env={"TILLER_DAEMON": "LOG-OF-TESTS"}
        )
        await play.run(f"( env -i setsid {STAY} & ) ; true")
        assert (own.poll(), server.poll()) == (None, None)
        for process in (own, server):
            process.kill()
            await process.wait()
        nursery.cancel_scope.cancel()


@pytest.mark.promise("T12")
async def test_a_chain_that_forks_faster_than_it_is_looked_at_is_ended(play):
    chain = """
    cat > chain <<'end'
    trap '' TERM
    [ "$1" = 0 ] && echo ready $$
    sh chain 1 &
end
    setsid sh chain 0 & sleep 1000
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(play.run, chain)
        await play.until_ready(1)
        nursery.cancel_scope.cancel()
    assert not [line for line in _command_lines() if b"chain\0" in line]


def _command_lines() -> list[bytes]:
    lines: list[bytes] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            lines.append(file.read_bytes())
    return lines
