"""SQLite calls most failures a disk I/O error; the log says what the disk's problem is."""

import errno
import os
import sqlite3
import subprocess
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest

from tiller_daemon.store.schema import log_error


@pytest.fixture
def disk(tmp_path: Path) -> Generator[Path]:
    """A small file system in memory."""
    words = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", tmp_path]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("a small file system can't be mounted here")
    yield tmp_path
    subprocess.run(["umount", "--lazy", tmp_path], check=True)


def io_error() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
    return error


def test_a_read_only_file_system_is_named(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    told = log_error(io_error(), disk / "tiller.db")
    assert told.kind == "read_only"
    assert "Read-only file system; the file or its file system is read-only" in told.message


def test_a_full_disk_is_named(disk: Path) -> None:
    with suppress(OSError), (disk / "ballast").open("wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(4096))
    told = log_error(io_error(), disk / "tiller.db")
    assert told.kind == "full"
    assert "the disk is full: free some space" in told.message


def test_a_quota_is_named(tmp_path: Path) -> None:
    told = log_error(OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), tmp_path / "tiller.db")
    assert told.kind == "full"
    assert "your quota on this disk is used up: free some space" in told.message


def test_a_failure_that_leaves_the_disk_writable_stays_what_it_was(tmp_path: Path) -> None:
    told = log_error(io_error(), tmp_path / "tiller.db")
    assert told.kind == "io"
    assert "disk I/O error; the disk or file system failed" in told.message
