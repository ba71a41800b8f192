"""Messages for programs: the user's own command, and Apprise in a process of its own."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from support.http_server import serving, status
from tiller_daemon.config import KeyPlaces
from tiller_daemon.models.keys import find_key
from tiller_daemon.notify.delivery import TargetProblem
from tiller_daemon.notify.messages import Message
from tiller_daemon.notify.programs import Apprise, Command

MESSAGE = Message("01S", "failed", "Pay has failed", "No key.", "/work/shop")


def variables() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "LD_PRELOAD": "/evil.so"}


def command(directory: Path, *arguments: str) -> Command:
    return Command(arguments, directory, variables)


async def test_a_command_gets_the_message_as_json_and_no_variable_that_loads_code(
    tmp_path: Path,
) -> None:
    script = 'cat > told; printenv LD_PRELOAD > loads; echo "$0 $1" > arguments'
    target = command(tmp_path, "/bin/sh", "-c", f"{script}; true", "a b", "$HOME")
    assert await target.show(MESSAGE, "") == ""
    told = (tmp_path / "told").read_text()
    assert told.endswith("}\n"), "a file can take one message a line"
    assert json.loads(told) == {
        "session_id": "01S",
        "moment": "failed",
        "title": "Pay has failed",
        "text": "No key.",
        "workspace": "/work/shop",
        "request_id": "",
    }
    assert (tmp_path / "loads").read_text() == ""
    assert (tmp_path / "arguments").read_text() == "a b $HOME\n", "no shell has read them"


async def test_a_command_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(TargetProblem, match=r"status 3.*no display") as caught:
        await command(tmp_path, "/bin/sh", "-c", "echo no display >&2; exit 3").show(MESSAGE, "")
    assert not caught.value.final
    with pytest.raises(TargetProblem, match="no-such-program was not found"):
        await command(tmp_path, "no-such-program").show(MESSAGE, "")


async def test_a_program_that_commands_can_write_is_not_run(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "notify-me"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / ".git").mkdir()
    path = f"{program.parent}:{os.environ['PATH']}"
    target = Command(("notify-me",), tmp_path, lambda: {**variables(), "PATH": path})
    with pytest.raises(TargetProblem, match="notify-me"):
        await target.show(MESSAGE, "")


async def test_a_command_that_hangs_ends_with_its_attempt(tmp_path: Path) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    async with trio.open_nursery() as nursery:
        script = f"echo $$ > {fifo}; exec sleep 1000"
        nursery.start_soon(command(tmp_path, "/bin/sh", "-c", script).show, MESSAGE, "")
        pid = await trio.to_thread.run_sync(fifo.read_text)
        nursery.cancel_scope.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


async def test_apprise_sends_to_the_services_that_it_knows(tmp_path: Path) -> None:
    pytest.importorskip("apprise")
    async with serving(status(200, b"ok")) as server:
        key = find_key(
            KeyPlaces(api_key_env="A"), {"A": f"json://127.0.0.1:{server.port}/x?:k=s3cret"}, ()
        )
        assert key
        await Apprise(key, tmp_path, variables).show(MESSAGE, "")
    (received,) = server.received
    assert received.path.startswith("/x")
    assert (received.body["title"], received.body["message"]) == ("Pay has failed", "No key.")


async def test_apprise_says_what_is_wrong_without_the_address(tmp_path: Path) -> None:
    pytest.importorskip("apprise")
    key = find_key(KeyPlaces(api_key_env="A"), {"A": "nonsense-s3cret-address"}, ())
    assert key
    with pytest.raises(TargetProblem, match="does not understand") as caught:
        await Apprise(key, tmp_path, variables).show(MESSAGE, "")
    assert "s3cret" not in str(caught.value)


def test_the_daemon_never_imports_apprise() -> None:
    code = "import sys, tiller_daemon.app; assert 'apprise' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
