"""`tiller` finds the daemon of its state directory, whatever runtime directory either was told."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from e2e.words import always
from support.daemon import CONFIG, START_S, Daemon
from tiller_client.connecting import daemons as daemons_module
from tiller_client.connecting.connection import DaemonConnection
from tiller_client.errors import NoAnswer, NoDaemon
from tiller_protocol.places import STATE_LOCK_FILE, find_places

NewDaemon = Callable[..., Daemon]

RUNTIME = "XDG_RUNTIME_DIR"

HOOK = """
[[hooks]]
on = "turn_start"
command = "PYTHON -m tiller_client daemon status --json >../status.json"
"""


@pytest.fixture
def session_daemon(new_daemon: NewDaemon) -> Daemon:
    """A daemon, not yet started, whose directories follow from the XDG variables, as for a user."""
    daemon = new_daemon()
    del daemon.variables["TILLER_HOME"]
    runtime = daemon.home / "run"
    runtime.mkdir(mode=0o700)
    daemon.variables[RUNTIME] = str(runtime)
    daemon.places = find_places(daemon.variables, sys.platform, os.getuid())
    daemon.places.config.mkdir(parents=True)
    daemon.configure(CONFIG)
    return daemon


def without_runtime(daemon: Daemon) -> dict[str, str]:
    """The environment of cron, `su` and the daemon's commands."""
    return {name: value for name, value in daemon.variables.items() if name != RUNTIME}


def tiller(variables: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tiller_client", *arguments]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def pid_of(status: subprocess.CompletedProcess[str]) -> int:
    assert status.returncode == 0, status.stdout + status.stderr
    return int(msgspec.json.decode(status.stdout)["pid"])


def test_a_verb_without_the_variable_uses_the_daemon_that_runs(session_daemon: Daemon) -> None:
    """Neither a second daemon nor `no daemon is running`."""
    session_daemon.start()
    assert session_daemon.process is not None
    status = tiller(without_runtime(session_daemon), "daemon", "status", "--json")
    assert pid_of(status) == session_daemon.process.pid
    assert msgspec.json.decode(status.stdout)["ops_socket"].startswith(
        str(session_daemon.places.runtime)
    )
    assert tiller(without_runtime(session_daemon), "ls").returncode == 0


def test_a_daemon_that_was_started_without_the_variable_is_found_and_stopped(
    session_daemon: Daemon,
) -> None:
    """As when cron starts the daemon, and the user logs in afterwards."""
    started = tiller(without_runtime(session_daemon), "daemon", "start", "--json")
    assert pid_of(tiller(session_daemon.variables, "daemon", "status", "--json")) == pid_of(started)
    assert tiller(session_daemon.variables, "daemon", "stop").stdout == "stopped\n"
    assert tiller(without_runtime(session_daemon), "daemon", "status").returncode == 1


def test_a_second_daemon_in_another_runtime_directory_leaves_at_once(
    session_daemon: Daemon,
) -> None:
    """It names the first daemon, instead of waiting for the log."""
    session_daemon.start()
    assert session_daemon.process is not None
    with session_daemon.spawn("--runtime", str(session_daemon.home / "other")) as second:
        assert second.wait(START_S) == 0
    assert f"pid {session_daemon.process.pid} is running in" in session_daemon.said
    assert "database is locked" not in session_daemon.said


def test_a_record_of_a_daemon_that_was_killed_is_not_followed(session_daemon: Daemon) -> None:
    """The next daemon is where its own environment says, whatever the old directory has become."""
    session_daemon.start()
    session_daemon.kill9()
    session_daemon.places.runtime.chmod(0o755)
    variables = without_runtime(session_daemon)
    assert tiller(variables, "daemon", "status").returncode == 1
    assert tiller(variables, "ls").returncode == 0
    status = tiller(session_daemon.variables, "daemon", "status", "--json")
    assert msgspec.json.decode(status.stdout)["ops_socket"].startswith(
        str(session_daemon.places.state)
    )
    tiller(session_daemon.variables, "daemon", "stop")


def test_a_daemon_that_crashed_elsewhere_is_replaced_once(session_daemon: Daemon) -> None:
    """A frontend that replaces only crashed daemons knows the crash by the last daemon's token."""
    session_daemon.start()
    session_daemon.kill9()
    variables = without_runtime(session_daemon)
    places = find_places(variables, sys.platform, os.getuid())
    with DaemonConnection(places, "test", only_crashed=True, environ=variables):
        assert tiller(session_daemon.variables, "daemon", "stop").stdout == "stopped\n"
    with pytest.raises(NoDaemon):
        DaemonConnection(places, "test", only_crashed=True, environ=variables)


def test_a_verb_waits_for_a_daemon_whose_runtime_directory_was_removed(
    session_daemon: Daemon,
) -> None:
    """As at a logout: the daemon ends, the verb starts the next daemon and works."""
    session_daemon.start()
    shutil.rmtree(session_daemon.places.runtime)
    listed = tiller(session_daemon.variables, "ls")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert tiller(session_daemon.variables, "daemon", "stop").stdout == "stopped\n"


def test_a_daemon_that_has_no_sockets_here_is_named_with_its_pid(
    session_daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemons_module, "CONNECT_DEADLINE_S", 0.2)
    session_daemon.start()
    assert session_daemon.process is not None
    session_daemon.process.send_signal(signal.SIGSTOP)  # so that it does not notice and end
    runtime = session_daemon.places.runtime
    shutil.rmtree(runtime)
    reason = f"the daemon with pid {session_daemon.process.pid} is running, .*: there is no .*"
    with pytest.raises(NoAnswer, match=f"{reason}{runtime}"):
        DaemonConnection(session_daemon.places, "test")


@pytest.mark.promise("G14")
def test_a_record_that_others_can_write_is_not_followed(session_daemon: Daemon) -> None:
    session_daemon.start()
    record = session_daemon.places.state / STATE_LOCK_FILE
    record.chmod(0o660)
    listed = tiller(session_daemon.variables, "ls")
    assert (listed.returncode, listed.stdout) == (1, "")
    assert f"{record} belongs to another user or is open to other users" in listed.stderr


def test_a_hook_that_uses_tiller_reaches_the_daemon_that_runs_it(
    new_daemon: NewDaemon, tmp_path: Path
) -> None:
    """Its own variables would lead to another daemon, or to a second one."""
    daemon = new_daemon(CONFIG + HOOK.replace("PYTHON", sys.executable))
    daemon.play("main", always("done"))
    daemon.start()
    assert daemon.process is not None
    workspace = tmp_path / "w"
    workspace.mkdir()
    done = tiller(daemon.variables, "exec", "-C", str(workspace), "hello")
    assert done.returncode == 0, done.stderr
    assert (
        msgspec.json.decode((daemon.home / "status.json").read_bytes())["pid"] == daemon.process.pid
    )
