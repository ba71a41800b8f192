"""Language servers over the wire: an edit's result lists the errors that the edit causes."""

import json
import shutil
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
import trio

from e2e.words import always, calls, calls_in, read, text, write
from support import misbehaving_lsp
from support.daemon import CONFIG, Daemon, gone
from support.frontend import Frontend
from support.jail import PYTHON
from tiller_daemon.models.scripted import CallPart
from tiller_daemon.sandbox.detect import find_sandbox
from tiller_protocol.answers import CatalogResult
from tiller_protocol.ops import Catalog, Interrupt
from tiller_protocol.places import TOKEN_FILE

AT_ONCE_S = 1.0
"""Seconds that an interrupt may take, whatever a server does."""

needs_sandbox = pytest.mark.skipif(
    find_sandbox(sys.platform).sandbox is None, reason=find_sandbox(sys.platform).problem
)

RUFF = shutil.which("ruff", path=str(Path(sys.executable).parent))


def rude(name: str, how: str, end: str, notes: Path) -> str:
    """Return the configuration of a language server that is a test script."""
    command = [sys.executable, "-SEs", misbehaving_lsp.__file__, how, str(notes)]
    return f'[lsp.{name}]\ncommand = {command}\nfiles = {{ "{end}" = "text" }}\n'


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("n") / "notes"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, notes: Path) -> Generator[Daemon]:
    servers = f'[lsp.ruff]\ncommand = ["{RUFF}", "server"]\n'
    servers += rude("deaf", "deaf", ".deaf", notes)
    servers += rude("crash", "crash", ".crash", notes)
    servers += '[lsp.absent]\ncommand = ["no-such-server"]\nfiles = { ".absent" = "absent" }\n'
    daemon = Daemon(tmp_path_factory.mktemp("d"), CONFIG + servers)
    daemon.start(PATH="/usr/bin:/bin")
    yield daemon
    daemon.close()


def edit(path: str, old: str, new: str) -> CallPart:
    return CallPart("edit", arguments={"path": path, "old": old, "new": new})


async def test_an_edit_that_breaks_a_file_says_so_in_its_result(
    frontend: Frontend, workspace: Path
) -> None:
    (workspace / "sum.py").write_text("def total(numbers):\n    return sum(numbers)\n")
    session_id = await frontend.session(
        workspace,
        calls(read("sum.py")),
        calls(edit("sum.py", "sum(numbers)", "sum(numbers")),
        calls(edit("sum.py", "sum(numbers", "sum(numbers) + 1")),
        calls(write("new.py", "print(unknown)\n")),
        calls(CallPart("diagnostics", arguments={"path": "new.py"})),
        text("done"),
    )
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    _, broken, repaired, new, looked = calls_in(frontend.requests(session_id)[-1].items)
    assert broken.state == "completed"
    assert "Edited sum.py" in broken.output
    assert "New errors in sum.py (ruff):\n  3:1 error: unexpected EOF" in broken.output
    assert "error" not in repaired.output
    assert "Created new.py" in new.output
    assert "New errors in new.py (ruff):\n  1:7 error: Undefined name `unknown`" in new.output
    assert looked.effect == "read"
    assert "1:7 error: Undefined name `unknown`" in looked.output


@needs_sandbox
async def test_a_server_that_only_reads_tells_no_more_than_commands_see(
    new_daemon: Callable[..., Daemon], nursery: trio.Nursery, workspace: Path
) -> None:
    """It is the built-in server `clangd` as far as the daemon knows."""
    shutil.copy(misbehaving_lsp.__file__, workspace / "server.py")
    command = [PYTHON, "-SEs", str(workspace / "server.py"), "tell"]
    daemon = new_daemon(CONFIG + f"[lsp.clangd]\ncommand = {command}\n")
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    private = daemon.home / "private"
    for path in (workspace / ".env", private, workspace / "plain"):
        path.write_text(f"content of {path.name}")
    (workspace / "link.h").symlink_to(".env")
    (workspace / "away.h").symlink_to(private)
    token = daemon.places.runtime / TOKEN_FILE
    named = ("plain", ".env", "link.h", "away.h", private, token)
    (workspace / "a.c").write_text("".join(f"{workspace / name}\n" for name in named))
    look = CallPart("diagnostics", arguments={"path": "a.c"})
    session_id = await frontend.session(workspace, calls(look), text("1"), calls(look), text("2"))
    for turn in (1, 2):
        await frontend.say(session_id)
        await frontend.turn_ended(session_id, turn)
        output = frontend.completed_calls(session_id)[-1].output
        assert "content of plain" in output
        assert "content of .env" not in output
        assert "content of private" not in output
        assert token.read_text() not in output
        assert output.count("PermissionError") + output.count("FileNotFoundError") == 5, output
        # Editors replace a file when they save it.
        (workspace / "new").write_text("content of .env")
        (workspace / "new").rename(workspace / ".env")
    await frontend.close()


async def test_a_server_that_is_missing_or_dies_is_no_error_of_a_turn(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(
        workspace,
        calls(write("a.absent", "bad"), write("a.crash", "bad"), write("b.crash", "bad")),
        always("done"),
    )
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    for call in frontend.completed_calls(session_id):
        assert call.state == "completed"
        created, *more = call.output.split("\n\n")
        assert created.startswith("Created ")
        assert not more or "crash. It ended with status 3." in more[0]
        assert bool(more) == ("crash" in created)
    catalog = await frontend.must(Catalog())
    assert isinstance(catalog, CatalogResult)
    found = {one.name: one for one in catalog.language_servers}
    assert (found["absent"].program, found["absent"].chosen) == ("", True)
    assert "status 3" in found["crash"].problem
    assert found["ruff"].program == RUFF
    assert found["ty"].program == ""


async def test_an_interrupt_does_not_wait_for_a_language_server(
    frontend: Frontend, workspace: Path, notes: Path
) -> None:
    (workspace / "a.deaf").write_text("bad")
    look = CallPart("diagnostics", arguments={"path": "a.deaf"})
    session_id = await frontend.session(workspace, calls(look), always("done"))
    await frontend.say(session_id)
    await _until(lambda: '"textDocument/diagnostic"' in _text(notes))
    began = trio.current_time()
    await frontend.must(Interrupt(session_id))
    ended = await frontend.turn_ended(session_id)
    assert trio.current_time() - began < AT_ONCE_S
    assert ended.outcome == "interrupted"
    (call,) = frontend.completed_calls(session_id)
    assert call.error_kind == "aborted"


async def test_no_server_outlives_the_daemon(
    frontend: Frontend, workspace: Path, daemon: Daemon, notes: Path
) -> None:
    """`kill -9`: the guard ends what the daemon has started."""
    session_id = await frontend.session(workspace, calls(write("x.deaf", "bad")), always("done"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    pids = [note["pid"] for note in map(json.loads, _text(notes).splitlines()) if "pid" in note]
    assert pids
    daemon.restart()
    await frontend.reconnect()
    assert all(gone(pid, timeout_s=5.0) for pid in pids)


async def test_doctor_says_once_which_servers_there_are_and_which_are_missing(
    daemon: Daemon,
) -> None:
    command = [sys.executable, "-m", "tiller_client", "doctor"]
    done = await trio.run_process(
        command, env=daemon.variables, capture_stdout=True, check=False, stdin=b""
    )
    lines = [line.split(None, 2) for line in done.stdout.decode().splitlines() if " lsp " in line]
    said = [(verdict, text) for verdict, _, text in lines]
    assert ("ok", f"ruff for python at {RUFF}") in said
    assert ("warn", "absent is configured, but its program was not found") in said
    (without,) = [text for verdict, text in said if "no language server for" in text]
    assert "typescript" in without
    assert "python" not in without


async def _until(comes_true: Callable[[], bool]) -> None:
    with trio.fail_after(20):
        while not comes_true():  # noqa: ASYNC110 - nobody announces what a server hears
            await trio.sleep(0.01)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
