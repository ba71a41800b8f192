"""Keys: from a variable, a command, a file or the keyring; got once, and again when refused."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
import trio
from keyring.backend import KeyringBackend
from keyrings.alt.file import PlaintextKeyring
from trio.testing import MockClock, wait_all_tasks_blocked

from support.http_server import events, serving, status
from support.providers import fixed_key
from tiller_daemon.config import Provider
from tiller_daemon.models.base import ModelError
from tiller_daemon.models.http.client import HttpClient
from tiller_daemon.models.keys import (
    FETCH_TIMEOUT_S,
    KEY_BYTES_MAX,
    KEYRING_SERVICE,
    Key,
    KeyUnavailable,
    key_from_command,
    key_from_file,
    key_from_keyring,
)

KEY = "sk-canary-0123456789"
ENVIRON = {"PATH": os.environ["PATH"], "MY_KEY": "sk-other", "HOME": "/h"}


def command(script: str) -> Key:
    return key_from_command(["sh", "-c", script], ENVIRON, {"MY_KEY"})


async def problem_of(key: Key) -> str:
    with pytest.raises(KeyUnavailable) as caught:
        await key.read()
    return str(caught.value)


def write_key(path: Path, text: str = KEY, mode: int = 0o600) -> None:
    path.write_text(text)
    path.chmod(mode)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    write_key(path, f"{KEY}\n")
    return path


async def test_a_command_is_run_once_and_its_first_line_is_the_key(tmp_path: Path) -> None:
    key = command(f"echo '  {KEY} '; echo 'login: me'; echo x >>{tmp_path}/runs")
    assert key.secrets == ()
    for _ in range(3):
        assert await key.read() == KEY
    assert key.secrets == (KEY,)
    assert (tmp_path / "runs").read_text() == "x\n"


async def test_many_readers_wait_for_one_run(tmp_path: Path) -> None:
    key = command(f"echo x >>{tmp_path}/runs; sleep 0.05; echo {KEY}")
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(key.read)
    assert (tmp_path / "runs").read_text() == "x\n"


@pytest.mark.promise("G13")
async def test_a_command_is_not_told_the_keys_of_others() -> None:
    assert await command("echo key-${MY_KEY}-$HOME").read() == "key--/h"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 3", "`sh` that prints the key failed with status 3. Run it yourself"),
        (f"echo {KEY} >&2; exit 1", "status 1"),
        ("true", "`sh` should print the key, but printed nothing"),
    ],
)
async def test_a_command_that_gives_no_key_is_said_without_what_it_said(
    script: str, said: str
) -> None:
    """G13."""
    problem = await problem_of(command(script))
    assert said in problem
    assert KEY not in problem


async def test_a_command_that_takes_too_long_is_ended(
    mock_clock: MockClock, nursery: trio.Nursery
) -> None:
    async def let_time_pass() -> None:
        while True:  # A slow machine may not have started the command the first time.
            await wait_all_tasks_blocked(0.05)
            mock_clock.jump(FETCH_TIMEOUT_S + 1)

    key = command("echo $$; exec sleep 1000")
    nursery.start_soon(let_time_pass)
    assert f"took longer than {FETCH_TIMEOUT_S:g} seconds" in await problem_of(key)


async def test_a_command_that_never_stops_talking_is_ended() -> None:
    """G12."""
    with trio.fail_after(10):
        assert "failed" in await problem_of(command("exec cat /dev/zero"))


def test_a_command_that_is_not_there_is_seen_before_it_is_needed() -> None:
    assert "`nowhere`" in key_from_command(["nowhere"], ENVIRON, ()).problem()
    assert command("true").problem() == ""


async def test_a_file_of_ours_alone_holds_the_key(key_file: Path) -> None:
    key = key_from_file(key_file)
    assert key.problem() == ""
    assert await key.read() == KEY


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
async def test_a_file_that_others_can_reach_is_refused(key_file: Path, mode: int) -> None:
    """G13."""
    write_key(key_file, mode=mode)
    key = key_from_file(key_file)
    assert f"chmod 600 {key_file}" in key.problem()
    assert await problem_of(key) == key.problem()


async def test_what_is_no_file_with_a_key_is_said(tmp_path: Path, key_file: Path) -> None:
    assert "No such file" in key_from_file(tmp_path / "nowhere").problem()
    assert "is not a regular file" in key_from_file(tmp_path).problem()
    os.mkfifo(tmp_path / "pipe", 0o600)
    assert "is not a regular file" in key_from_file(tmp_path / "pipe").problem()
    write_key(key_file, " \n")
    assert "contains no key" in await problem_of(key_from_file(key_file))
    write_key(key_file, "x" * KEY_BYTES_MAX * 2)
    assert len(await key_from_file(key_file).read()) == KEY_BYTES_MAX


@pytest.fixture
def real_keyring(tmp_path: Path) -> Iterator[KeyringBackend]:
    """A keyring in a file of this test; the desktop's is put back."""
    before = keyring.get_keyring()
    backend = PlaintextKeyring()
    vars(backend)["file_path"] = str(tmp_path / "keyring")
    keyring.set_keyring(backend)
    yield backend
    keyring.set_keyring(before)


async def test_the_keyring_holds_the_key(real_keyring: KeyringBackend) -> None:
    real_keyring.set_password(KEYRING_SERVICE, "work", KEY)
    key = key_from_keyring("work")
    assert key.problem() == ""
    assert await key.read() == KEY
    missing = await problem_of(key_from_keyring("home"))
    assert "keyring set tiller home" in missing


async def test_a_keyring_that_can_not_be_read_is_said(real_keyring: KeyringBackend) -> None:
    from keyring.backends.fail import Keyring

    keyring.set_keyring(Keyring())
    assert "keyring get tiller work" in await problem_of(key_from_keyring("work"))


def test_the_keyring_is_not_loaded_before_it_is_asked() -> None:
    code = "import sys, tiller_daemon.app; sys.exit('keyring' in sys.modules)"
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0


async def test_a_refused_key_is_got_again_once_and_the_request_goes_on(key_file: Path) -> None:
    """The key was changed where it is kept, while the daemon ran."""
    key = key_from_file(key_file)
    async with serving(status(401), events(b"data: x\n\n")) as server:
        http = HttpClient("local", Provider("openai_chat", base_url=server.base_url), key)
        assert await key.read() == KEY
        write_key(key_file, "sk-new-0123456789\n")
        async with http.stream("/x", b"{}") as answer:
            assert [piece async for piece in answer] == [b"data: x\n\n"]
        await http.aclose()
    assert [one.headers["authorization"] for one in server.received] == [
        f"Bearer {KEY}",
        "Bearer sk-new-0123456789",
    ]
    assert key.secrets == (KEY, "sk-new-0123456789")


@pytest.mark.parametrize("changed", ["same", "gone", "variable"])
async def test_a_key_that_stays_refused_is_not_asked_with_twice(
    key_file: Path, changed: str
) -> None:
    key = fixed_key(KEY) if changed == "variable" else key_from_file(key_file)
    async with serving(status(401)) as server:
        http = HttpClient("local", Provider("openai_chat", base_url=server.base_url), key)
        await key.read()
        if changed == "gone":
            write_key(key_file, "")
        with pytest.raises(ModelError) as caught:
            async with http.stream("/x", b"{}"):
                pass
        await http.aclose()
    assert caught.value.kind == "authentication"
    assert len(server.received) == 1
    where = "variable LOCAL_KEY" if changed == "variable" else f"file {key_file}"
    assert f"Check the {where}." in caught.value.message


async def test_a_key_that_can_not_be_had_ends_the_request_before_it_is_sent(
    key_file: Path,
) -> None:
    write_key(key_file, mode=0o644)
    async with serving(status(200)) as server:
        provider = Provider("openai_chat", base_url=server.base_url)
        http = HttpClient("local", provider, key_from_file(key_file))
        with pytest.raises(ModelError, match=r"can't be used\. Other users can read") as caught:
            async with http.stream("/x", b"{}"):
                pass
        await http.aclose()
    assert caught.value.kind == "authentication"
    assert server.received == []
