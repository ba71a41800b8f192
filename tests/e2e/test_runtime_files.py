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

from support.daemon import Daemon
from tiller_client.connecting import connection as connection_module
from tiller_client.connecting.runtime import lock_holder
from tiller_client.verbs.machine import daemon as daemon_verbs
from tiller_protocol.places import EVENTS_SOCKET, LOCK_FILE, OPS_SOCKET, TOKEN_FILE

TIMEOUT_S = 30


def tiller(daemon: Daemon, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tiller_client", *arguments]
    return subprocess.run(
        command, env=daemon.variables, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", [OPS_SOCKET, EVENTS_SOCKET, LOCK_FILE])
async def test_a_daemon_that_nobody_can_find_any_more_ends(daemon: Daemon, name: str) -> None:
    """Otherwise it would hold the log, and the next daemon could not start."""
    assert daemon.process is not None
    (daemon.places.runtime / name).unlink()
    assert await trio.to_thread.run_sync(daemon.process.wait, TIMEOUT_S) == 0
    assert "runtime_file_removed" in daemon.said
    daemon.start()
    assert tiller(daemon, "ls").returncode == 0


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
