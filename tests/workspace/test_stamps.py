"""Stamps tell that a file has changed, however fast the changes follow each other."""

import os
import time
from pathlib import Path

import pytest

from support.file_clock import wait_for_tick
from tiller_daemon.stamps import take_stamps


def stamps(*paths: Path) -> object:
    return take_stamps(paths, time.time_ns())


def test_the_stamps_of_a_young_file_are_not_trusted(tmp_path: Path) -> None:
    """A second change within one tick of the clock would leave the stamp as it is."""
    file = tmp_path / "a"
    file.write_text("x")
    assert stamps(file) is None
    wait_for_tick(tmp_path)
    assert stamps(file) == stamps(file) is not None


def test_a_change_during_a_long_reading_is_not_trusted(tmp_path: Path) -> None:
    begun_ns = time.time_ns()
    (tmp_path / "a").write_text("x")
    wait_for_tick(tmp_path)
    assert take_stamps([tmp_path / "a"], begun_ns) is None


@pytest.mark.parametrize("how", ["write", "forge", "replace", "delete", "chmod", "link"])
def test_each_kind_of_change_shows(tmp_path: Path, how: str) -> None:
    (tmp_path / "other").write_text("y")
    (file := tmp_path / "a").write_text("x")
    (link := tmp_path / "link").symlink_to(file)
    wait_for_tick(tmp_path)
    before = stamps(link)
    changed_at = file.stat().st_mtime_ns
    match how:
        case "write":
            file.write_text("y")
        case "forge":
            file.write_text("y")
            os.utime(file, ns=(changed_at, changed_at))
        case "replace":
            (tmp_path / "other").replace(file)
        case "delete":
            file.unlink()
        case "chmod":
            file.chmod(0o600)
        case _:
            link.unlink()
            link.symlink_to("other")
    wait_for_tick(tmp_path)
    assert stamps(link) not in (before, None)


def test_a_missing_file_is_noticed_when_it_appears(tmp_path: Path) -> None:
    (link := tmp_path / "link").symlink_to("b/a")
    wait_for_tick(tmp_path)
    before = stamps(link, tmp_path / "\0")
    wait_for_tick(tmp_path)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "a").touch()
    assert stamps(link, tmp_path / "\0") != before
