"""The frontends in docs/protocol.md work: here the one in Python."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import trio

from e2e.gates import Gate
from e2e.words import bash, calls, text
from support.daemon import Daemon
from support.frontend import TIMEOUT_S
from tiller_daemon.models.scripted import ScriptStep, TextPart

ROOT = Path(__file__).parents[2]
PYTHON_FRONTEND = (sys.executable, str(ROOT / "client" / "examples" / "frontend.py"))


def variables(daemon: Daemon) -> dict[str, str]:
    """The environment of a frontend that finds `tiller`."""
    path = f"{Path(sys.executable).parent}:{daemon.variables['PATH']}"
    return daemon.variables | {"PATH": path}


async def test_the_python_frontend_prints_the_answer_of_a_turn(
    daemon: Daemon, workspace: Path
) -> None:
    daemon.play("main", calls(bash("cat greeting.txt")), text("one, two, three", 3))
    with trio.fail_after(TIMEOUT_S):
        done = await trio.run_process(
            [*PYTHON_FRONTEND, str(workspace), "count"],
            env=variables(daemon),
            capture_stdout=True,
        )
    assert done.stdout.decode() == "one, two, three"


async def test_the_python_frontend_goes_on_when_the_daemon_is_killed_and_started(
    new_daemon: Callable[..., Daemon], workspace: Path
) -> None:
    await check_it_goes_on(new_daemon(), workspace, *PYTHON_FRONTEND)


async def check_it_goes_on(daemon: Daemon, workspace: Path, *command: str) -> None:
    """Run a turn whose daemon is killed in the middle, and resumes it when it is started again."""
    daemon.start(TILLER_RESUME="auto")
    gate = Gate(workspace)
    begin = ScriptStep(parts=(TextPart("it begins, and "), bash(gate.command)))
    daemon.play("main", begin, text("after all, it ends", 4))
    process = await trio.lowlevel.open_process(
        [*command, str(workspace), "go"], env=variables(daemon), stdout=subprocess.PIPE
    )
    await gate.reached()
    assert process.stdout
    async with process.stdout:
        with trio.fail_after(TIMEOUT_S):
            said = await process.stdout.receive_some()
            daemon.kill9()
            gate.close()
            daemon.start(TILLER_RESUME="auto")
            async for piece in process.stdout:
                said += piece
            assert await process.wait() == 0
    assert said.decode() == "it begins, and after all, it ends"
