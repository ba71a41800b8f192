"""Commands work where nothing can be created."""

import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path

import pytest
import trio

from e2e.words import CallPart, bash, calls, read, text
from support.daemon import CONFIG, Daemon
from support.frontend import Frontend
from tiller_daemon.sandbox.detect import find_sandbox

FOUND = find_sandbox(sys.platform).sandbox

pytestmark = pytest.mark.skipif(FOUND is None or FOUND.name != "bubblewrap", reason="no bubblewrap")


@pytest.fixture
async def sandbox(
    new_daemon: Callable[..., Daemon], nursery: trio.Nursery
) -> AsyncGenerator[tuple[Daemon, Frontend]]:
    """A daemon whose configuration does not mention the sandbox."""
    daemon = new_daemon(CONFIG.replace('sandbox = { mode = "full_access" }\n', ""))
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    yield daemon, frontend
    await frontend.close()


@pytest.fixture
def read_only(tmp_path: Path) -> Generator[Path]:
    """A workspace on a read-only file system."""
    (place := tmp_path / "read-only").mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "none", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.decode()}")
    (place / "Makefile").write_text("test:\n\t@echo all good\n")
    subprocess.run(["mount", "-o", "remount,ro", place], check=True)
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def names(workspace: Path) -> set[str]:
    return {path.name for path in workspace.iterdir()}


async def test_commands_and_builds_run_in_a_workspace_on_a_read_only_file_system(
    sandbox: tuple[Daemon, Frontend], read_only: Path
) -> None:
    _, frontend = sandbox
    edit = CallPart("edit", arguments={"path": "Makefile", "old": "all", "new": "any"})
    session_id = await frontend.session(
        read_only,
        calls(bash("make test"), bash("cat Makefile | sh -c 'wc -l'; echo $$ > /dev/shm/x; id")),
        calls(read("Makefile"), edit),
        text("done"),
    )
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    build, command, _, edited = frontend.completed_calls(session_id)
    assert (build.exit_status, build.output) == (0, "all good\n")
    assert command.exit_status == 0, command.output
    assert "Makefile is read-only: its file system does not allow changes." in edited.output
