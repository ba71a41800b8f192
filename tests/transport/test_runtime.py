"""The runtime directory: modes, owner, lock, token, and starters that race (T6, T14)."""

import fcntl
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tiller_client.connecting.runtime import token_stamp
from tiller_daemon.transport import lock_file
from tiller_daemon.transport.runtime import (
    AlreadyRunning,
    NotNeeded,
    RuntimeDirectory,
    RuntimeDirectoryError,
)
from tiller_protocol.places import EVENTS_SOCKET, LOCK_FILE, OPS_SOCKET, TOKEN_FILE

ROUNDS = int(os.environ.get("TILLER_RACE_ROUNDS", "100"))
STARTERS = 4
CHILD = Path(__file__).with_name("race_to_start.py")


def leave_stale_socket(path: Path) -> None:
    """A socket file whose process is gone, as `kill -9` leaves it."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.promise("T14")
def test_only_the_owner_can_look_into_the_directory_or_read_the_token(tmp_path: Path) -> None:
    """G14, T14: also when the directory was made with too many rights."""
    path = tmp_path / "runtime"
    path.mkdir()
    path.chmod(0o755)
    with RuntimeDirectory(path) as held:
        assert mode_of(path) == 0o700
        assert mode_of(path / TOKEN_FILE) == mode_of(path / LOCK_FILE) == 0o600
        assert (path / TOKEN_FILE).read_text() == held.token
        assert len(held.token) >= 43
        assert (path / LOCK_FILE).read_text() == f"{os.getpid()}\n"
    assert [found.name for found in path.iterdir()] == [LOCK_FILE]


def test_each_start_has_a_new_token_even_after_a_crash_left_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "runtime"
    with RuntimeDirectory(path) as held:
        first = held.token
    (path / TOKEN_FILE).write_text(first)
    (path / f".{TOKEN_FILE}.new").write_text("half")
    with RuntimeDirectory(path) as held:
        assert held.token != first
        assert (path / TOKEN_FILE).read_text() == held.token


def test_a_second_daemon_is_told_the_pid_of_the_first_and_touches_nothing(tmp_path: Path) -> None:
    path = tmp_path / "runtime"
    with RuntimeDirectory(path) as held:
        leave_stale_socket(path / OPS_SOCKET)
        with pytest.raises(AlreadyRunning, match=f"pid {os.getpid()}"):
            RuntimeDirectory(path).__enter__()
        assert (path / OPS_SOCKET).is_socket()
        assert (path / TOKEN_FILE).read_text() == held.token
    with RuntimeDirectory(path):
        assert not (path / OPS_SOCKET).exists()


@pytest.mark.promise("T6")
def test_a_file_in_place_of_a_socket_is_not_deleted(tmp_path: Path) -> None:
    """T6: nng's listen would delete it."""
    (tmp_path / EVENTS_SOCKET).write_text("precious")
    with pytest.raises(RuntimeDirectoryError, match="is not a socket"):
        RuntimeDirectory(tmp_path).__enter__()
    assert (tmp_path / EVENTS_SOCKET).read_text() == "precious"
    (tmp_path / EVENTS_SOCKET).unlink()
    with RuntimeDirectory(tmp_path):
        pass


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """T14: neither in place of the directory nor of the lock file."""
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir(mode=0o700)
    link.symlink_to(real)
    with pytest.raises(RuntimeDirectoryError, match="is a link"):
        RuntimeDirectory(link).__enter__()
    (real / LOCK_FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RuntimeDirectoryError, match="cannot use"):
        RuntimeDirectory(real).__enter__()
    assert not (tmp_path / "elsewhere").exists()


def test_a_directory_writable_by_others_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "runtime"
    path.mkdir()
    path.chmod(0o770)
    with pytest.raises(RuntimeDirectoryError, match="chmod 700"):
        RuntimeDirectory(path).__enter__()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "runtime"
    path.mkdir(mode=0o700)
    os.chown(path, 12345, -1)
    with pytest.raises(RuntimeDirectoryError, match="uid 12345"):
        RuntimeDirectory(path).__enter__()


def test_a_path_that_no_socket_can_have_is_refused_by_length(tmp_path: Path) -> None:
    with pytest.raises(RuntimeDirectoryError, match="too long"):
        RuntimeDirectory(tmp_path / ("d" * 90)).__enter__()


@pytest.mark.nightly
@pytest.mark.promise("T6")
def test_of_daemons_that_race_over_stale_sockets_exactly_one_wins(tmp_path: Path) -> None:
    """T6: real processes, which open real sockets; `TILLER_RACE_ROUNDS` sets how often."""
    path = tmp_path / "r"
    path.mkdir(mode=0o700)
    with starting(path) as starters:
        for number in range(ROUNDS):
            assert race(path, starters) == ["lost"] * (STARTERS - 1) + ["won"], f"round {number}"


def test_a_crashed_daemon_is_replaced_once_although_the_one_that_did_stops_at_once(
    tmp_path: Path,
) -> None:
    """Real processes: those that come late find the lock free, and must not take it."""
    path = tmp_path / "r"
    path.mkdir(mode=0o700)
    with starting(path) as starters:
        for number in range(ROUNDS):
            (path / TOKEN_FILE).write_text(f"of the daemon that crashed in round {number}")
            stamp = token_stamp(path)
            for starter in starters:
                tell(starter, stamp)
            outcomes = sorted(hear(starter) for starter in starters)
            assert outcomes == ["lost"] * (STARTERS - 1) + ["won"], f"round {number}"
            assert token_stamp(path) == ""


def test_a_daemon_whose_token_was_replaced_and_left_by_another_crash_is_not_replaced(
    tmp_path: Path,
) -> None:
    path = tmp_path / "r"
    path.mkdir(mode=0o700)
    (path / TOKEN_FILE).write_text("first")
    stamp = token_stamp(path)
    with RuntimeDirectory(path, stamp):
        second = (path / TOKEN_FILE).read_text()
    (path / TOKEN_FILE).write_text(second)
    with pytest.raises(NotNeeded, match="another took its place"):
        RuntimeDirectory(path, stamp).__enter__()
    assert (path / TOKEN_FILE).read_text() == second
    with RuntimeDirectory(path, token_stamp(path)):
        pass


@contextmanager
def starting(path: Path) -> Generator[list[subprocess.Popen[str]]]:
    starters = [
        subprocess.Popen(
            [sys.executable, str(CHILD), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(STARTERS)
    ]
    try:
        yield starters
    finally:
        for starter in starters:
            starter.communicate()


def race(path: Path, starters: list[subprocess.Popen[str]]) -> list[str]:
    for name in (OPS_SOCKET, EVENTS_SOCKET):
        leave_stale_socket(path / name)
    for starter in starters:
        tell(starter, "go")
    outcomes = sorted(hear(starter) for starter in starters)
    for starter in starters:
        tell(starter, "stop")
    assert [hear(starter) for starter in starters] == ["stopped"] * len(starters)
    return outcomes


def tell(starter: subprocess.Popen[str], word: str) -> None:
    assert starter.stdin is not None
    starter.stdin.write(f"{word}\n")
    starter.stdin.flush()


def hear(starter: subprocess.Popen[str]) -> str:
    assert starter.stdout is not None
    return starter.stdout.readline().strip()


def test_a_frontend_that_asks_whether_a_daemon_runs_keeps_none_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To ask it takes the lock for a moment; the daemon waits for that moment to pass."""
    monkeypatch.setattr(lock_file, "LOCK_TIMEOUT_S", 10.0)
    path = tmp_path / "runtime"
    tried = threading.Event()
    path.mkdir(mode=0o700)
    with (path / LOCK_FILE).open("w") as asked:
        fcntl.flock(asked, fcntl.LOCK_SH)
        flock = fcntl.flock

        def noting(lock: int, operation: int) -> None:
            try:
                flock(lock, operation)
            except BlockingIOError:
                tried.set()
                raise

        monkeypatch.setattr(fcntl, "flock", noting)
        releasing = threading.Thread(target=lambda: (tried.wait(10), flock(asked, fcntl.LOCK_UN)))
        releasing.start()
        with RuntimeDirectory(path) as held:
            assert (path / TOKEN_FILE).read_text() == held.token
        releasing.join()
        assert tried.is_set()
