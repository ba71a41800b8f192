"""B51 with a real full disk, a real limit and a real read-only file system, each in a child."""

import subprocess
import sys
from pathlib import Path

import pytest

CHILD = Path(__file__).with_name("meet_faults.py")


def mounted(directory: Path, kilobytes: int, *command: str) -> list[str]:
    """The command with a small file system of its own at `directory`, seen by nobody else."""
    mount = f"mount -t tmpfs -o size={kilobytes}k tmpfs {directory}"
    return ["unshare", "-rm", "sh", "-c", f'{mount} && exec "$@"', "sh", *command]


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    try:
        works = subprocess.run(mounted(tmp_path, 64, "true"), capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no unshare here to mount a small file system with")
    if works.returncode:
        pytest.skip(f"mounting is not allowed here: {works.stderr.decode().strip()}")
    return tmp_path


def test_a_full_disk_fails_what_does_not_fit_and_goes_on_when_there_is_room(disk: Path) -> None:
    run(*mounted(disk, 2000, sys.executable, str(CHILD), "full", str(disk)))


def test_a_read_only_file_system_is_named_and_nothing_is_changed(disk: Path) -> None:
    run(*mounted(disk, 2000, sys.executable, str(CHILD), "read_only", str(disk)))


def test_a_failing_write_is_an_error_and_later_ones_succeed(tmp_path: Path) -> None:
    run(sys.executable, str(CHILD), "limited", str(tmp_path))
