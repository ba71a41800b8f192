"""The client for TypeScript, and the frontend in docs/protocol.md, in node over real sockets."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from e2e.test_protocol_page import check_it_goes_on, variables
from e2e.words import bash, calls, text
from support.daemon import Daemon
from support.frontend import TIMEOUT_S, Frontend
from support.typescript import compile_ts, install
from tiller_daemon.models.scripted import ScriptStep, TextPart

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "client" / "typescript"
PROGRAMS = Path(__file__).with_name("typescript")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the compiled package in `dist`, and the programs of these tests."""
    directory = tmp_path_factory.mktemp("typescript")
    install(PACKAGE, directory)
    shutil.copytree(PROGRAMS, directory, dirs_exist_ok=True)
    compile_ts(directory)
    return directory


def test_the_lock_file_names_no_registry() -> None:
    assert "http" not in (PACKAGE / "package-lock.json").read_text(encoding="utf-8")


def test_a_stream_gives_every_event_once_however_slow_its_loop_is(built: Path) -> None:
    done = subprocess.run(
        ["node", "--test", "stream.test.mjs"],
        cwd=built,
        capture_output=True,
        check=False,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout[-3000:]


async def test_the_example_of_the_readme_runs(built: Path, daemon: Daemon, workspace: Path) -> None:
    readme = (PACKAGE / "README.md").read_text(encoding="utf-8")
    example = re.search(r"```typescript\n(.*?)```", readme, re.DOTALL)
    assert example
    used = "declare const process: { cwd(): string; stdout: { write(text: string): void } };\n"
    source = used + example[1].replace('"tiller-client"', '"./dist/index.js"')
    (built / "readme.mts").write_text(source, encoding="utf-8")
    options = ("--module", "nodenext", "--target", "es2022", "--strict")
    compile_ts(built, *options, "readme.mts")
    daemon.play("main", calls(bash("ls")), text("a greeting", 3))
    with trio.fail_after(TIMEOUT_S):
        done = await trio.run_process(
            ["node", str(built / "readme.mjs")],
            cwd=workspace,
            env=variables(daemon),
            capture_stdout=True,
        )
    assert done.stdout == b"a greeting"


@pytest.mark.promise("G2")
async def test_events_come_once_and_in_order_when_the_daemon_is_stopped_and_started(
    built: Path, new_daemon: Callable[[], Daemon], workspace: Path, nursery: trio.Nursery
) -> None:
    daemon = new_daemon()
    daemon.start()
    noisy = ScriptStep(parts=(TextPart("words " * 100, 100), bash("seq 100")))
    model = daemon.script(*[noisy, text("done")] * 2)
    process = await trio.lowlevel.open_process(
        ["node", str(built / "follow.mjs"), str(workspace), model],
        env=variables(daemon),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin
    assert process.stdout
    said = b""
    async with process.stdin, process.stdout:
        with trio.fail_after(2 * TIMEOUT_S):
            while b"turn\n" not in said:
                piece = await process.stdout.receive_some()
                assert piece
                said += piece
            await daemon.terminate()
            daemon.start()
            await process.stdin.send_all(b"go on\n")
            async for piece in process.stdout:
                said += piece
            assert await process.wait() == 0
    result = json.loads(said.splitlines()[-1])
    frontend = await Frontend.connect(daemon, nursery)
    log = [event.seq for event in await frontend.log(result["session_id"])]
    assert result["seqs"] == log[: len(result["seqs"])]
    assert result["rest"] == result["seqs"][2:]
    # The last state may be reported after the last event, when the program has ended.
    assert result["states"][:2] == ["connected", "reconnecting"]
    assert result["states"][2:] in ([], ["connected"])
    assert result["same"]
    refused, no_session, ended = result["codes"]
    assert refused == "not_found"
    assert "no session" in no_session
    assert "has ended" in ended
    await frontend.close()


@pytest.mark.nightly
async def test_a_program_that_is_not_there_is_an_error(built: Path) -> None:
    program = (
        "import { Client } from './dist/index.js';"
        "await Client.connect({ command: ['/no/such/tiller'] }).catch((e) => console.log(e.code));"
    )
    done = await trio.run_process(
        ["node", "--input-type=module", "-e", program],
        cwd=built,
        capture_stdout=True,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.stdout == b"ENOENT\n"


@pytest.mark.nightly
async def test_the_frontend_of_the_page_goes_on_when_the_daemon_is_killed_and_started(
    built: Path, new_daemon: Callable[[], Daemon], workspace: Path
) -> None:
    shutil.copy(ROOT / "client" / "examples" / "frontend.ts", built / "frontend.mts")
    options = ("--noCheck", "--module", "nodenext", "--target", "es2022")
    compile_ts(built, *options, "frontend.mts")
    await check_it_goes_on(new_daemon(), workspace, "node", str(built / "frontend.mjs"))
