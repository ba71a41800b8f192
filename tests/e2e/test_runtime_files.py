"""No user is locked out by removed files of the runtime directory, or by a daemon that hangs."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trio

from e2e.gates import Gate
from e2e.words import always, bash, calls
from support.daemon import Daemon
from support.frontend import Frontend
from tiller_client.connecting import connection as connection_module
from tiller_client.connecting.runtime import lock_holder
from tiller_client.verbs.machine import daemon as daemon_verbs
from tiller_protocol.ops import UserInput
from tiller_protocol.places import (
    EVENTS_SOCKET,
    LOCK_FILE,
    LOG_FILE,
    OPS_SOCKET,
    STATE_LOCK_FILE,
    TOKEN_FILE,
)

TIMEOUT_S = 30


def tiller(daemon: Daemon, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tiller_client", *arguments]
    return subprocess.run(
        command, env=daemon.variables, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", [OPS_SOCKET, EVENTS_SOCKET, LOCK_FILE])
@pytest.mark.nightly
async def test_a_daemon_that_nobody_can_find_any_more_ends(daemon: Daemon, name: str) -> None:
    """Otherwise it would hold the log, and the next daemon could not start."""
    assert daemon.process is not None
    (daemon.places.runtime / name).unlink()
    assert await trio.to_thread.run_sync(daemon.process.wait, TIMEOUT_S) == 0
    assert "runtime_file_removed" in daemon.said
    daemon.start()
    assert tiller(daemon, "ls").returncode == 0


@pytest.mark.parametrize("activity", ["none", "a submission", "a stop", "a turn"])
@pytest.mark.promise("T10")
async def test_a_daemon_ends_once_another_uses_its_state_in_spite_of_the_lock(
    new_daemon: Callable[[], Daemon], nursery: trio.Nursery, workspace: Path, activity: str
) -> None:
    """As on a file system whose locks have no effect; it must not write into the other's log."""
    daemon = new_daemon()
    daemon.start()
    assert daemon.process is not None
    frontend = await Frontend.connect(daemon, nursery)
    gate = Gate(workspace)
    session_id = await frontend.session(workspace, calls(bash(gate.command)), always("done"))
    if activity == "a turn":
        await frontend.say(session_id)
        await gate.reached()
    lock = daemon.places.state / STATE_LOCK_FILE
    of_other = b"1 0.1.0 0123456789abcdef\n/elsewhere\n"
    lock.write_bytes(of_other)
    before = [(daemon.places.state / f"{LOG_FILE}{end}").read_bytes() for end in ("", "-wal")]
    if activity == "a turn":
        gate.open()
    elif activity == "a submission":
        nursery.start_soon(frontend.ask, UserInput(session_id, "go"))
    elif activity == "a stop":
        daemon.process.terminate()
    assert await trio.to_thread.run_sync(daemon.process.wait, TIMEOUT_S) == 1
    assert "give each its own --state" in daemon.said
    after = [(daemon.places.state / f"{LOG_FILE}{end}").read_bytes() for end in ("", "-wal")]
    assert (after, lock.read_bytes()) == (before, of_other)
    nursery.cancel_scope.cancel()


async def test_a_token_that_was_removed_is_written_again(daemon: Daemon) -> None:
    token = daemon.places.runtime / TOKEN_FILE
    before = token.read_text()
    token.unlink()
    with trio.fail_after(TIMEOUT_S):
        while not token.exists():  # noqa: ASYNC110 - nothing reports it
            await trio.sleep(0.05)
    assert token.read_text() == before
    assert token.stat().st_mode & 0o777 == 0o600
    assert tiller(daemon, "daemon", "status").returncode == 0


@pytest.mark.nightly
def test_stop_ends_a_daemon_that_hangs(
    new_daemon: Callable[[], Daemon],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(connection_module, "ANSWER_DEADLINE_S", 0.2)
    monkeypatch.setattr(daemon_verbs, "STOP_DEADLINE_S", 0.2)
    daemon = new_daemon()
    daemon.start()
    assert daemon.process is not None
    assert lock_holder(daemon.places.runtime) == daemon.process.pid
    daemon.process.send_signal(signal.SIGSTOP)
    assert daemon_verbs.stop(daemon.places, drain=False)
    assert daemon.process.wait(TIMEOUT_S) == -signal.SIGKILL
    assert "so it was killed" in capfd.readouterr().err
    assert lock_holder(daemon.places.runtime) is None


@pytest.mark.nightly
def test_stop_lets_a_daemon_that_has_not_answered_end_by_itself(
    new_daemon: Callable[[], Daemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`stop` first sends SIGTERM, so a daemon that is only slow can end its turns and say why."""
    monkeypatch.setattr(connection_module, "ANSWER_DEADLINE_S", 0.2)
    daemon = new_daemon()
    daemon.start()
    assert daemon.process is not None
    pid = daemon.process.pid
    daemon.process.send_signal(signal.SIGSTOP)
    with ThreadPoolExecutor(1) as threads:
        stop = threads.submit(daemon_verbs.stop, daemon.places, drain=False)
        while not _is_pending(pid, signal.SIGTERM) and not stop.done():
            os.sched_yield()
        daemon.process.send_signal(signal.SIGCONT)
        assert stop.result(TIMEOUT_S)
    assert daemon.process.wait(TIMEOUT_S) == 0


def _is_pending(pid: int, number: int) -> bool:
    """Whether a signal is pending for a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    (pending,) = [line.split()[1] for line in status.splitlines() if line.startswith("ShdPnd")]
    return bool(int(pending, 16) & 1 << number - 1)
