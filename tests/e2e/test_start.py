"""Starting: what a daemon that can't start says, and that only one daemon runs at a time."""

import os
import pty
import re
import select
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.daemon import CONFIG, START_S, Daemon, DaemonEnded
from tiller_client.connecting.runtime import lock_is_held, token_stamp
from tiller_client.connecting.starting import DaemonStart
from tiller_client.errors import NoDaemon, StartFailed
from tiller_protocol.places import DAEMON_OUTPUT_FILE, LOG_FILE, OPS_SOCKET, TOKEN_FILE, Places

NewDaemon = Callable[..., Daemon]

CONSOLE = ("--log-format", "console")
LINE_BYTES_MAX = 4096


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (CONFIG.replace("model =", "modell =", 1), ("modell", "model", "line 1")),
        (CONFIG.replace('"scripted"\nscripts', '"skripted"\nscripts'), ("api", "scripted")),
        ("max_steps = 'many'\n" + CONFIG, ("max_steps", "line 1")),
        ("model = \n", ("line 1",)),
        (CONFIG.replace("scripted/main", "nobody/main"), ("nobody", "scripted")),
        (CONFIG.replace("../scripts", "/nowhere"), ("/nowhere", "does not exist")),
    ],
    ids=["a typo", "a wrong value", "a wrong type", "no TOML", "no provider", "no directory"],
)
def test_a_configuration_that_is_wrong_is_named_with_its_place(
    new_daemon: NewDaemon, wrong: str, said: tuple[str, ...]
) -> None:
    """A config typo → exit 2 and a message with the file, the key and what to write instead."""
    daemon = new_daemon(wrong)
    with pytest.raises(DaemonEnded) as ended:
        daemon.start()
    assert ended.value.status == 2
    assert "config.toml" in ended.value.said
    assert "Traceback" not in ended.value.said
    for word in said:
        assert word in ended.value.said


def test_a_configuration_file_that_is_missing_is_named(new_daemon: NewDaemon) -> None:
    """Also by a path that is relative to the current directory, here `/`."""
    daemon = new_daemon()
    with daemon.spawn("--config", "missing.toml") as process:
        assert process.wait(START_S) == 2
    assert "/missing.toml" in daemon.said
    assert "Traceback" not in daemon.said


def test_a_second_daemon_leaves_with_a_sentence_and_harms_nothing(new_daemon: NewDaemon) -> None:
    """A second daemon in the same place → it exits with 0, names the first, and the first stays."""
    daemon = new_daemon()
    daemon.start()
    assert daemon.process is not None
    token = (daemon.places.runtime / TOKEN_FILE).read_text()
    with daemon.spawn() as second:
        assert second.wait(START_S) == 0
    assert f"pid {daemon.process.pid}" in daemon.said
    assert daemon.process.poll() is None
    assert (daemon.places.runtime / TOKEN_FILE).read_text() == token


def test_five_starters_over_a_stale_socket_have_one_winner(new_daemon: NewDaemon) -> None:
    """Five daemons start at once after a daemon was killed → one stays, four exit with status 0."""
    daemon = new_daemon()
    daemon.start()
    daemon.kill9()
    assert (daemon.places.runtime / OPS_SOCKET).is_socket()
    starters = [daemon.spawn() for _ in range(5)]
    poll = select.poll()
    for one in starters:
        poll.register(os.pidfd_open(one.pid), select.POLLIN)
    while sum(one.poll() is not None for one in starters) < 4:
        ended = poll.poll(START_S * 1_000)
        assert ended, "four of them leave"
        for watched, _ in ended:
            poll.unregister(watched)
            os.close(watched)
    (winner,) = [one for one in starters if one.returncode is None]
    assert {one.returncode for one in starters if one is not winner} == {0}
    # The others may leave before the winner is ready, and until then SIGTERM just ends it.
    client = [sys.executable, "-m", "tiller_client", "ls", "--all"]
    subprocess.run(client, env=daemon.variables, check=True, capture_output=True)
    winner.send_signal(signal.SIGTERM)
    assert winner.wait(START_S) == 0


def test_a_stale_socket_is_no_hindrance_and_the_token_is_new(new_daemon: NewDaemon) -> None:
    """`kill -9` leaves sockets, lock and token → the next daemon starts, with a new token."""
    daemon = new_daemon()
    daemon.start()
    token = (daemon.places.runtime / TOKEN_FILE).read_text()
    daemon.restart()
    assert (daemon.places.runtime / TOKEN_FILE).read_text() != token


def test_a_file_in_the_place_of_a_socket_is_left_alone(new_daemon: NewDaemon) -> None:
    """A regular file where a socket belongs → exit 1 with a message; the file is untouched."""
    daemon = new_daemon()
    daemon.places.runtime.mkdir(mode=0o700, parents=True)
    precious = daemon.places.runtime / OPS_SOCKET
    precious.write_text("precious")
    with pytest.raises(DaemonEnded) as ended:
        daemon.start()
    assert ended.value.status == 1
    assert str(precious) in ended.value.said
    assert precious.read_text() == "precious"


def test_a_runtime_directory_that_others_write_into_is_refused(new_daemon: NewDaemon) -> None:
    """A runtime directory open to others → exit 1 and what to do about it."""
    daemon = new_daemon()
    daemon.places.runtime.mkdir(parents=True)
    daemon.places.runtime.chmod(0o777)
    with pytest.raises(DaemonEnded) as ended:
        daemon.start()
    assert ended.value.status == 1
    assert f"chmod 700 {daemon.places.runtime}" in ended.value.said


@pytest.mark.parametrize("kind", ["newer", "no database", "another database"])
@pytest.mark.promise("B51")
def test_a_log_that_is_not_ours_is_said_and_left_as_it_is(new_daemon: NewDaemon, kind: str) -> None:
    """A log of a newer version, or another file → exit 1 with a message; the file is untouched."""
    daemon = new_daemon()
    path = daemon.places.state / LOG_FILE
    if kind == "newer":
        daemon.start()
        daemon.kill9()
    else:
        path.parent.mkdir(parents=True)
    if kind == "no database":
        path.write_bytes(b"a diary, not a database\n" * 500)
    else:
        _change(path, kind)
    before = path.read_bytes()
    with pytest.raises(DaemonEnded) as ended:
        daemon.start()
    assert ended.value.status == 1
    assert str(path) in ended.value.said
    assert "Traceback" not in ended.value.said
    assert path.read_bytes() == before


@pytest.mark.promise("G14")
def test_the_places_are_for_their_owner_only(new_daemon: NewDaemon) -> None:
    """Directories 0700; log, token and sockets 0600."""
    daemon = new_daemon()
    daemon.start()
    modes = {
        path: path.stat().st_mode & 0o777
        for place in (daemon.places.runtime, daemon.places.state)
        for path in (place, *place.iterdir())
    }
    assert {m for path, m in modes.items() if path.is_dir()} == {0o700}
    assert {m for path, m in modes.items() if not path.is_dir()} == {0o600}


DEFECT = """
import structlog
from tiller_daemon.program import _set_up_logging
from tiller_daemon.config import Configuration
_set_up_logging(Configuration(), console={console})
def fail(key):
    raise ZeroDivisionError("a defect")
try:
    fail("canary-" + "of-the-test")
except ZeroDivisionError:
    structlog.get_logger().exception("turn_crashed")
"""


@pytest.mark.parametrize("console", [False, True])
@pytest.mark.promise("G13")
def test_a_defect_is_logged_whole_without_the_values_of_variables(*, console: bool) -> None:
    """A traceback in the log names every place, but shows no variables: they may hold keys."""
    command = [sys.executable, "-c", DEFECT.format(console=console)]
    said = subprocess.run(command, capture_output=True, check=True).stderr.decode()
    assert "ZeroDivisionError" in said
    assert "fail" in said
    assert "canary-of-the-test" not in said


@pytest.mark.parametrize(
    ("options", "begins"), [((), b"20"), (("--log-format", "json"), b"{"), (CONSOLE, b"20")]
)
def test_the_log_on_a_terminal_is_text_unless_json_is_asked_for(
    new_daemon: NewDaemon, options: tuple[str, ...], begins: bytes
) -> None:
    daemon = new_daemon()
    terminal, slave = pty.openpty()
    command = [sys.executable, "-P", *daemon.program, *options]
    with subprocess.Popen(command, stderr=slave, env=daemon.variables) as process:
        os.close(slave)
        line = re.sub(rb"\x1b\[[0-9;]*m", b"", os.read(terminal, LINE_BYTES_MAX))
        process.terminate()
    os.close(terminal)
    assert line.startswith(begins)
    logs = [sys.executable, "-m", "tiller_client", "daemon", "logs"]
    shown = subprocess.run(logs, env=daemon.variables, capture_output=True, check=False)
    assert shown.returncode == 1
    assert b"daemon.log does not exist: no daemon has run in the background" in shown.stderr


def _change(path: Path, kind: str) -> None:
    connection = sqlite3.connect(path)
    if kind == "newer":
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'version'")
    else:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def test_who_comes_late_to_replace_a_crashed_daemon_starts_none_after_it_was_stopped(
    new_daemon: NewDaemon,
) -> None:
    """One frontend's new daemon is stopped before another frontend tries to start a daemon."""
    daemon = new_daemon()
    places, variables = daemon.places, daemon.variables
    stop = [sys.executable, "-m", "tiller_client", "daemon", "stop"]
    daemon.start()
    daemon.kill9()
    noticed = token_stamp(places.runtime)
    assert noticed
    first = DaemonStart(places, variables, noticed)
    first.wait(lambda: "ready" in _output(places))
    assert lock_is_held(places.runtime)
    subprocess.run(stop, env=variables, check=True)
    late = DaemonStart(places, variables, noticed)
    with pytest.raises(NoDaemon, match="one crashed, and the daemon that replaced it has ended"):
        late.wait(lambda: False)
    assert (first.process.wait(), late.process.wait()) == (0, 0)
    assert "another took its place" in _output(places)
    assert not lock_is_held(places.runtime)


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGKILL, "SIGKILL"), (signal.SIGRTMIN + 1, "signal 35")]
)
def test_a_daemon_that_is_killed_while_it_starts_is_reported_with_the_signal(
    new_daemon: NewDaemon, number: int, name: str
) -> None:
    """The kernel kills processes like this when memory runs out; then they leave no output."""
    daemon = new_daemon()
    start = DaemonStart(daemon.places, daemon.variables)
    start.process.send_signal(number)
    with pytest.raises(StartFailed, match=f"killed by {name} while it started"):
        start.wait(lambda: False)


def _output(places: Places) -> str:
    return (places.state / DAEMON_OUTPUT_FILE).read_text()
