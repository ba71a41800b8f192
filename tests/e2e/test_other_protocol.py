"""A daemon that speaks another protocol can be seen, stopped and replaced, as an upgrade needs."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from e2e.test_remote import OTHER_PROTOCOL
from support.daemon import Daemon
from tiller_protocol import VERSION

NewDaemon = Callable[..., Daemon]

SAID = "this tiller speaks protocol {}, but the running daemon speaks another"

THIS = ("-m", "tiller_client")
LATER = ("-c", OTHER_PROTOCOL.format("tiller_client"))


def run(daemon: Daemon, client: tuple[str, ...], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", *client, "daemon", *words]
    return subprocess.run(
        command, env=daemon.variables, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture(params=["the daemon is newer", "the client is newer"])
def pair(request: pytest.FixtureRequest, new_daemon: NewDaemon) -> tuple[Daemon, tuple[str, ...]]:
    """A running daemon and a client that do not speak the same protocol."""
    daemon = new_daemon()
    is_newer = request.param == "the daemon is newer"
    if is_newer:
        daemon.program = ("-c", OTHER_PROTOCOL.format("tiller_daemon"))
    daemon.start()
    return daemon, THIS if is_newer else LATER


def test_status_shows_its_pid_and_version_and_stop_stops_it(
    pair: tuple[Daemon, tuple[str, ...]],
) -> None:
    daemon, client = pair
    assert daemon.process
    status = run(daemon, client, "status")
    assert status.returncode == 1
    assert f"tillerd {VERSION}, pid {daemon.process.pid}" in status.stdout
    assert SAID.format(1 if client is THIS else 99) in status.stderr
    said = json.loads(run(daemon, client, "status", "--json").stdout)
    assert (said["type"], said["pid"]) == ("unreachable", daemon.process.pid)
    drained = run(daemon, client, "stop", "--drain")
    assert drained.returncode == 1
    assert "without --drain, they are interrupted" in drained.stderr
    stopped = run(daemon, client, "stop")
    assert (stopped.returncode, stopped.stdout) == (0, "stopped\n")
    assert daemon.process.wait() == 0


def test_restart_puts_a_daemon_of_this_protocol_in_its_place(new_daemon: NewDaemon) -> None:
    daemon = new_daemon()
    daemon.program = ("-c", OTHER_PROTOCOL.format("tiller_daemon"))
    daemon.start()
    assert daemon.process
    restarted = run(daemon, THIS, "restart")
    assert restarted.returncode == 0, restarted.stderr
    assert daemon.process.wait() == 0
    pid: int = json.loads(run(daemon, THIS, "status", "--json").stdout)["pid"]
    assert pid != daemon.process.pid
    assert run(daemon, THIS, "stop").returncode == 0
