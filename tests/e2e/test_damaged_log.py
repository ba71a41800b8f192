"""A log that is damaged, or removed under a running daemon, is reported at once (B51)."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import trio

from e2e.words import always
from support.daemon import Daemon, DaemonEnded
from support.frontend import Frontend
from tiller_daemon.store.wal import wal_of
from tiller_protocol.answers import Rejected
from tiller_protocol.ops import UserInput
from tiller_protocol.places import LOG_FILE

MARK = "a quite singular answer"

PAGE = 4096
"""Bytes in a page of the SQLite file."""


@pytest.fixture
def daemon(new_daemon: Callable[[], Daemon]) -> Daemon:
    daemon = new_daemon()
    daemon.start()
    return daemon


@contextmanager
def read_only(path: Path) -> Generator[None]:
    """A file that can't be written, even by root."""
    try:
        subprocess.run(["mount", "--bind", path, path], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a file can't be mounted read-only here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", path], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def tiller(daemon: Daemon, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tiller_client", *arguments]
    variables = {**daemon.variables, "COLUMNS": "1000"}
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


@pytest.mark.promise("B51")
async def test_a_bit_that_flips_in_the_write_ahead_log_is_no_secret(
    daemon: Daemon, nursery: trio.Nursery, workspace: Path
) -> None:
    """After `kill -9` whole sessions may be only there; `ls` and `doctor` report their loss."""
    frontend = await Frontend.connect(daemon, nursery)
    for number in range(3):
        session_id = await frontend.session(workspace, always(f"answer {number}"))
        await frontend.say(session_id)
        await frontend.turn_ended(session_id)
    await frontend.disconnect()
    daemon.kill9()
    path = daemon.places.state / LOG_FILE
    data = bytearray(wal_of(path).read_bytes())
    data[len(data) // 4] ^= 1
    wal_of(path).write_bytes(data)

    daemon.start()
    listed, doctor = tiller(daemon, "ls"), tiller(daemon, "doctor")
    (copy,) = path.parent.glob("*.damaged-*")
    assert copy.read_bytes() == data
    assert listed.returncode == 0
    assert f"The damaged part is kept as {copy}." in listed.stderr
    assert doctor.returncode == 1
    assert "fail  log" in doctor.stdout
    copy.unlink()
    assert tiller(daemon, "ls").stderr == ""
    assert "fail  log" not in tiller(daemon, "doctor").stdout


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.promise("B51")
async def test_a_log_that_is_deleted_under_the_daemon_takes_nothing_more(
    daemon: Daemon, nursery: trio.Nursery, workspace: Path, *, restarted: bool
) -> None:
    """No turn runs whose events a restart would lose."""
    frontend = await Frontend.connect(daemon, nursery)
    session_id = await frontend.session(workspace, always("answer"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    if restarted:  # nothing has been stored by this daemon yet
        daemon.restart()
        await frontend.reconnect()
    for file in (daemon.places.state).glob(f"{LOG_FILE}*"):
        file.unlink()
    answer = await frontend.ask(UserInput(session_id, "more"))
    assert isinstance(answer, Rejected)
    assert answer.code == "unavailable"
    assert f"{LOG_FILE} was removed or replaced while tillerd was using it" in answer.message
    assert "restart tillerd" in answer.message
    doctor = await trio.to_thread.run_sync(tiller, daemon, "doctor")
    assert doctor.returncode == 1
    assert f"fail  log            {daemon.places.state / LOG_FILE} was removed" in doctor.stdout
    await frontend.disconnect()


def check_log(daemon: Daemon) -> str:
    """What `tillerd --check-log` complains about."""
    command = [sys.executable, "-m", "tiller_daemon", "--check-log"]
    done = subprocess.run(
        command, env=daemon.variables, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr.removeprefix("tillerd: ").strip()


async def _one_session(daemon: Daemon, nursery: trio.Nursery, workspace: Path) -> str:
    """Store a session whose answer is `MARK`, and stop the daemon."""
    frontend = await Frontend.connect(daemon, nursery)
    session_id = await frontend.session(workspace, always(MARK))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    await frontend.disconnect()
    await daemon.terminate()
    return session_id


@pytest.mark.promise("B51")
@pytest.mark.nightly
async def test_doctor_sees_a_log_whose_file_can_not_be_written(
    daemon: Daemon, nursery: trio.Nursery, workspace: Path
) -> None:
    """With and without a daemon; a daemon that can't start says the same."""
    await _one_session(daemon, nursery, workspace)
    path = daemon.places.state / LOG_FILE
    sound = tiller(daemon, "doctor").stdout
    assert f"ok    log            {path} can be read and written" in sound
    daemon.start()
    with read_only(path):
        living = tiller(daemon, "doctor")
        assert living.returncode == 1
        assert f"fail  log            {path} can't be written: make it writable" in living.stdout
        await daemon.terminate()
        dead = tiller(daemon, "doctor")
        assert dead.returncode == 1
        assert "fail  log            cannot use the log" in dead.stdout
        assert "is read-only: make it writable" in dead.stdout
        with pytest.raises(DaemonEnded, match="is read-only: make it writable"):
            daemon.start()
    assert "ok    log" in tiller(daemon, "doctor").stdout
    daemon.start()


@pytest.mark.parametrize("first", [0, pytest.param(2, marks=pytest.mark.nightly)])
@pytest.mark.promise("B51")
async def test_a_log_whose_pages_are_damaged_is_said_by_doctor_and_by_who_needs_it(
    daemon: Daemon, nursery: trio.Nursery, workspace: Path, first: int
) -> None:
    """Doctor names the damage in a sentence, before anybody reads the page, and changes nothing."""
    await _one_session(daemon, nursery, workspace)
    path = daemon.places.state / LOG_FILE
    sound = path.read_bytes()
    pages = [sound[at : at + PAGE] for at in range(0, len(sound), PAGE)]
    path.write_bytes(
        b"".join([*pages[:first], *(b"\xff" * 100 + page[100:] for page in pages[first:])])
    )
    damaged = path.read_bytes()
    doctor = tiller(daemon, "doctor")
    assert doctor.returncode == 1
    assert f"fail  log            the log {path} failed: " in doctor.stdout
    assert "the file is damaged: stop tillerd, copy the file" in doctor.stdout
    assert path.read_bytes() == damaged
    with pytest.raises(DaemonEnded, match="the file is damaged: stop tillerd") as ended:
        daemon.start()
    assert "Traceback" not in ended.value.said
    path.write_bytes(sound)
    assert tiller(daemon, "doctor").returncode == 0
    daemon.start()


@pytest.mark.promise("B51")
async def test_damage_that_was_met_is_said_by_doctor_and_ls_until_the_restart(
    daemon: Daemon, nursery: trio.Nursery, workspace: Path
) -> None:
    """The damage is in one row, so that no check of pages finds it."""
    session_id = await _one_session(daemon, nursery, workspace)
    path = daemon.places.state / LOG_FILE
    sound = path.read_bytes()
    for row, field in (("event", b"last_message"), ("the row", b"last_line")):
        at = sound.index(MARK.encode(), sound.index(field))
        path.write_bytes(sound[:at] + MARK[::-1].encode() + sound[at + len(MARK) :])
        daemon.start()
        shown = tiller(daemon, "show", session_id)
        assert shown.returncode == 1
        said = f"of session {session_id} in the log {path} is damaged"
        assert row in shown.stderr
        assert said in shown.stderr
        doctor, listed = tiller(daemon, "doctor"), tiller(daemon, "ls")
        assert doctor.returncode == 1
        assert said in doctor.stdout
        assert listed.returncode == 0
        assert (session_id[-8:] in listed.stdout) == (row == "event")
        assert "is damaged" in listed.stderr
        await daemon.terminate()


@pytest.mark.parametrize(("version", "advice"), [(999, "the newer"), (1, "the older")])
@pytest.mark.nightly
async def test_who_checks_a_log_of_another_version_hears_what_a_starting_daemon_says(
    daemon: Daemon, version: int, advice: str
) -> None:
    await daemon.terminate()
    path = daemon.places.state / LOG_FILE
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'version'", (version,))
        connection.commit()
    problem = check_log(daemon)
    assert f"{path} has version {version}" in problem
    assert f"install {advice} tillerd again" in problem
    doctor = tiller(daemon, "doctor")
    assert doctor.returncode == 1
    assert f"fail  log            {problem}\n" in doctor.stdout
    with pytest.raises(DaemonEnded) as ended:
        daemon.start()
    assert f"tillerd: {problem}\n" in ended.value.said


@pytest.mark.parametrize("name", [LOG_FILE, f"{LOG_FILE}-wal"])
@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("a FIFO", os.mkfifo),
        ("a directory", os.mkdir),
        ("a link", lambda path: path.symlink_to("/nowhere")),
    ],
)
@pytest.mark.nightly
async def test_what_is_no_file_in_place_of_the_log_is_named_at_once(
    daemon: Daemon, name: str, kind: str, make: Callable[[Path], None]
) -> None:
    await daemon.terminate()
    path = daemon.places.state / name
    path.unlink(missing_ok=True)
    make(path)
    problem = check_log(daemon)
    assert f"at {path}, but {kind} is there: move it away" in problem
    assert f"fail  log            {problem}\n" in tiller(daemon, "doctor").stdout
    with pytest.raises(DaemonEnded) as ended:
        daemon.start()
    assert f"tillerd: {problem}\n" in ended.value.said


async def test_a_log_that_a_running_daemon_has_is_not_waited_for(daemon: Daemon) -> None:
    problem = check_log(daemon)
    assert f"{daemon.places.state / LOG_FILE} open, probably a running tillerd" in problem
    assert "tiller daemon stop" in problem
