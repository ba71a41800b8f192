"""What commands leave in the directories of the daemon's variables, the daemon does not run."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from e2e.test_sandbox import DEFAULT, needs_sandbox
from e2e.words import bash, calls, text, write
from support.daemon import Daemon
from support.frontend import Frontend
from support.installation import make_installation
from tiller_daemon.models.scripted import CallPart
from tiller_protocol.items import ToolCall

pytestmark = pytest.mark.whole_start

PROGRAMS = "git rg bwrap bash sh env ps ty ruff python3 uname setpriv git-status"

INSTALLED = """
    bin/bwrap bin/rg bin/git bin/python pyvenv.cfg lib/planted.py
    lib/VERSION/site-packages/planted.pth lib/VERSION/site-packages/sitecustomize.py
    lib/VERSION/site-packages/trio.py lib/VERSION/site-packages/sources.pth
    lib/VERSION/site-packages/tiller_daemon/__init__.py"""


async def run(frontend: Frontend, workspace: Path, *parts: CallPart) -> list[ToolCall]:
    """Call tools one after the other; nobody is asked."""
    session_id = await frontend.session(workspace, *map(calls, parts), text("done"))
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    return frontend.completed_calls(session_id)


@needs_sandbox
@pytest.mark.parametrize(
    "entry",
    [
        "{0}",
        *("node_modules/.bin", ""),
        *(pytest.param(one, marks=pytest.mark.nightly) for one in (".", "{0}/node_modules/.bin")),
    ],
)
async def test_no_program_that_a_command_planted_runs_outside_its_sandbox(
    new_daemon: Callable[..., Daemon],
    nursery: trio.Nursery,
    workspace: Path,
    tmp_path: Path,
    entry: str,
) -> None:
    """The daemon starts git, ripgrep, bubblewrap, a shell and a language server in the turn."""
    mark, place = tmp_path / "mark", f"./{entry.removeprefix('{0}')}"
    path = f"{entry.format(workspace)}:{os.environ['PATH']}"
    planting = (
        f"mkdir -p {place}; for one in {PROGRAMS}; do printf '#!/bin/sh\\n"
        f'echo "$0" >> {mark}; exec "/usr/bin/${{0##*/}}" "$@"\\n\' > {place}/$one; '
        f"chmod +x {place}/$one; done"
    )
    daemon = new_daemon(DEFAULT)
    daemon.start(PATH=path)
    steps = (
        bash(planting),
        bash("echo 1 > new"),
        CallPart("grep", arguments={"pattern": "hello"}),
        write("a.py", "print(1)\n"),
        CallPart("edit", arguments={"path": "a.py", "old": "1", "new": "2"}),
    )
    frontend = await Frontend.connect(daemon, nursery)
    made = await run(frontend, workspace, *steps)
    assert [call.exit_status for call in made[:2]] == [0, 0]
    await frontend.close()
    daemon.kill9()
    daemon.start(PATH=path)
    frontend = await Frontend.connect(daemon, nursery)
    (found,) = await run(frontend, workspace, bash("printf %s $PATH"))
    assert found.output.strip() == path, "the user's PATH is for commands"
    assert not mark.exists(), mark.read_text()
    await frontend.close()


@needs_sandbox
async def test_a_sandbox_does_not_load_the_libraries_of_its_command(
    new_daemon: Callable[..., Daemon], nursery: trio.Nursery, workspace: Path, tmp_path: Path
) -> None:
    """The linker reports each library that it loads, if it gets the command's variables."""
    daemon = new_daemon('env_keep = ["LD_*"]\n' + DEFAULT)
    reports, libraries = tmp_path / "reports", f"{workspace}/lib"
    daemon.start(LD_LIBRARY_PATH=libraries, LD_DEBUG="files", LD_DEBUG_OUTPUT=f"{reports}/of")
    reports.mkdir()
    frontend = await Frontend.connect(daemon, nursery)
    show = "echo 1 > new; echo $LD_LIBRARY_PATH $LD_DEBUG"
    for command in (show, show.partition("; ")[2]):
        (shown,) = await run(frontend, workspace, bash(command))
        assert f"{libraries} files" in shown.output.splitlines()
    assert not list(reports.iterdir())
    await frontend.close()


@needs_sandbox
async def test_a_command_can_not_change_the_installation(
    new_daemon: Callable[..., Daemon], nursery: trio.Nursery, workspace: Path
) -> None:
    """Which is in the workspace, as in a project that has tiller in its virtual environment."""
    daemon = new_daemon(DEFAULT)
    daemon.python = make_installation(workspace / ".venv")
    (version,) = (path.name for path in (workspace / ".venv" / "lib").iterdir())
    before = {path: path.lstat().st_mtime_ns for path in (workspace / ".venv").rglob("*")}
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    paths = INSTALLED.replace("VERSION", version).split()
    attempts = [f"echo x > .venv/{path}" for path in paths]
    attempts += [f"rm -f .venv/{path}" for path in paths if (workspace / ".venv" / path).exists()]
    attempts += ["mv .venv other", "rm -rf .venv/lib", "ln -sfn /tmp .venv", "mkdir .venv/new"]
    await run(frontend, workspace, *map(bash, attempts), bash("echo 1 > allowed"))
    after = {path: path.lstat().st_mtime_ns for path in (workspace / ".venv").rglob("*")}
    assert after == before
    assert (workspace / "allowed").exists()
    await frontend.close()
