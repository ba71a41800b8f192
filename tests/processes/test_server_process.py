"""A program that serves the daemon: talked to over pipes, ended with all that it has started."""

import os
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import trio

from processes.test_escapes import DEAF, SHAPES, STAY
from support.each import each
from tiller_daemon.processes.command import CommandProblem
from tiller_daemon.processes.environment import child_environment
from tiller_daemon.processes.server_process import ServerProcess

VARIABLES = child_environment(os.environ, (), "LOG-OF-TESTS", "")


def start(command: str) -> ServerProcess:
    return ServerProcess(["bash", "-c", command], Path("/"), VARIABLES)


async def announced(service: ServerProcess, count: int) -> list[int]:
    """The pids that were announced as ready."""
    said = b""
    while said.count(b"ready ") < count or not said.endswith(b"\n"):
        said += await service.stdout.receive_some()
    return [int(line.split()[1]) for line in said.splitlines() if line.startswith(b"ready ")]


def survivors(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.fixture
async def echo() -> AsyncGenerator[ServerProcess]:
    service = start("echo problem >&2; exec cat")
    yield service
    await service.end()


async def test_a_service_reads_answers_and_complains(echo: ServerProcess):
    await echo.stdin.send_all(b"hello\n")
    assert await echo.stdout.receive_some() == b"hello\n"
    assert await echo.stderr.receive_some() == b"problem\n"


async def test_a_service_leaves_by_itself_when_its_input_ends(echo: ServerProcess):
    with trio.fail_after(10):
        assert (await echo.end()).processes == 0
    assert echo.status() == 0


@each("shape", SHAPES.values())
async def test_the_end_of_a_service_leaves_no_process_alive(shape: str):
    service = start(f"{shape}\nsleep 1000")
    pids = await announced(service, 1)
    ended = await service.end()
    assert ended.survivors == 0
    assert survivors([*pids, service.pid]) == []


async def test_a_service_that_died_leaves_nothing_behind_either():
    service = start(f"setsid {STAY} & {DEAF} & wait -n; exit 3")
    pids = await announced(service, 2)
    os.kill(service.pid, 9)
    await service.exited()
    await service.end()
    assert survivors(pids) == []
    assert service.status() == -9


async def test_an_end_is_not_cut_short_by_cancellation():
    service = start(DEAF)
    pids = await announced(service, 1)
    with trio.CancelScope() as scope:
        scope.cancel()
        await service.end()
    assert survivors(pids) == []


async def test_a_command_ends_its_own_strangers_and_leaves_a_service_alone(play):
    service = start(f"setsid {STAY} & ( ( {STAY} & ) & ); wait")
    pids = await announced(service, 2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(play.run, f"( ( env -i setsid {STAY} & ) & )\nsleep 1000")
        await play.until_ready(1)
        nursery.cancel_scope.cancel()
    assert play.survivors() == []
    assert len(survivors(pids)) == 2
    await service.end()
    assert survivors(pids) == []


@pytest.mark.parametrize(
    ("arguments", "directory", "said"),
    [
        (["no-such-program"], "/", "The program no-such-program was not found."),
        (["cat"], "/nowhere", "cat could not be started in /nowhere: No such file or directory."),
        (["ca\0t"], "/", "could not be started: embedded null byte."),
    ],
)
def test_what_can_not_be_started_is_said(arguments: list[str], directory: str, said: str):
    before = set(Path("/proc/self/fd").iterdir())
    with pytest.raises(CommandProblem) as problem:
        ServerProcess(arguments, Path(directory), VARIABLES)
    assert said in str(problem.value)
    assert set(Path("/proc/self/fd").iterdir()) <= before
