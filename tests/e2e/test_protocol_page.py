"""docs/protocol.md: what it takes from the code is current, and its frontends work."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
import trio

from e2e.gates import Gate
from e2e.words import bash, calls, text
from support.daemon import Daemon
from support.frontend import PATIENCE_S
from tiller_protocol.errors import RejectionCode

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "protocol.md"
PYTHON_FRONTEND = (sys.executable, str(ROOT / "examples" / "frontend.py"))


def test_the_generated_sections_are_current() -> None:
    script = ROOT / "scripts" / "protocol_page.py"
    generate = "import sys, runpy; print(runpy.run_path(sys.argv[1])['filled'](sys.stdin.read()))"
    done = subprocess.run(
        [sys.executable, "-c", generate, str(script)],
        input=(page := PAGE.read_text(encoding="utf-8")),
        capture_output=True,
        check=True,
        text=True,
        encoding="utf-8",
    )
    assert done.stdout.rstrip() == page.rstrip(), "run: .venv/bin/python scripts/protocol_page.py"


def test_every_rejection_code_is_explained() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [code for code in get_args(RejectionCode) if f"\n| `{code}` | " not in page] == []


def variables(daemon: Daemon) -> dict[str, str]:
    """The environment of a frontend that finds `tiller`."""
    path = f"{Path(sys.executable).parent}:{daemon.variables['PATH']}"
    return daemon.variables | {"PATH": path}


@pytest.mark.parametrize("frontend", [PYTHON_FRONTEND], ids=["python"])
async def test_a_frontend_of_the_page_prints_the_answer_of_a_turn(
    daemon: Daemon, workspace: Path, frontend: tuple[str, ...]
) -> None:
    daemon.play("main", calls(bash("cat greeting.txt")), text("one, two, three", 3))
    with trio.fail_after(PATIENCE_S):
        done = await trio.run_process(
            [*frontend, str(workspace), "count"], env=variables(daemon), capture_stdout=True
        )
    assert done.stdout.decode().strip() == "one, two, three"


@pytest.mark.parametrize("frontend", [PYTHON_FRONTEND], ids=["python"])
async def test_a_frontend_of_the_page_goes_on_when_the_daemon_is_killed_and_started(
    new_daemon: Callable[..., Daemon],
    workspace: Path,
    nursery: trio.Nursery,
    frontend: tuple[str, ...],
) -> None:
    daemon = new_daemon()
    daemon.start(TILLER_RESUME="auto")
    gate = Gate(workspace)
    daemon.play("main", calls(bash(gate.command)), text("after all"))
    process = await trio.lowlevel.open_process(
        [*frontend, str(workspace), "go"], env=variables(daemon), stdout=subprocess.PIPE
    )
    await gate.reached()
    daemon.kill9()
    gate.close()
    daemon.start(TILLER_RESUME="auto")
    assert process.stdout
    said = b""
    with trio.fail_after(PATIENCE_S):
        while piece := await process.stdout.receive_some():
            said += piece
        assert await process.wait() == 0
    await process.stdout.aclose()
    assert said.decode().strip() == "after all"
