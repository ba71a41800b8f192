"""Damage in the write-ahead log is found before SQLite passes over it in silence."""

import os
import random
import shutil
import sqlite3
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.rows import batch_of
from tiller_daemon.store.base import LogError
from tiller_daemon.store.checking import check_log
from tiller_daemon.store.log import open_log
from tiller_daemon.store.wal import FRAME, FRAME_BYTES, HEADER, is_damaged, wal_of


class Killed(NamedTuple):
    """A file and its write-ahead log, as `kill -9` would leave them."""

    file: bytes
    wal: bytes

    def is_damaged(self, directory: Path) -> bool:
        path = directory / "tiller.db"
        path.write_bytes(self.file)
        wal_of(path).write_bytes(self.wal)
        return is_damaged(path)


def written(path: Path, commits: int, *, again: int = 0) -> Killed:
    """A file with some commits; `again`, so many are written over the beginning of an older log."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE things (content BLOB)")
    content = random.Random(1)
    for number in range(commits + again):
        if number == commits:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        connection.execute("INSERT INTO things VALUES (?)", (content.randbytes(900),))
    killed = Killed(path.read_bytes(), wal_of(path).read_bytes())
    connection.close()
    return killed


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    return written(tmp_path_factory.mktemp("wal") / "tiller.db", 20)


@pytest.fixture(scope="module")
def reused(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    return written(tmp_path_factory.mktemp("wal") / "tiller.db", 20, again=5)


def test_a_sound_log_is_not_damaged_wherever_the_process_was_killed(
    killed: Killed, reused: Killed, place: Path
) -> None:
    assert not reused.is_damaged(place)
    for end in range(0, len(killed.wal), 297):
        assert not killed._replace(wal=killed.wal[:end]).is_damaged(place), end
    assert [found.name for found in place.glob("*-shm")] == []


def test_a_frame_that_was_half_written_over_an_old_one_is_no_damage(
    reused: Killed, place: Path
) -> None:
    wal = reused.wal
    salts = HEADER.unpack_from(wal)[4:6]
    starts = range(HEADER.size, len(wal), FRAME_BYTES)
    last = [at for at in starts if FRAME.unpack_from(wal, at)[2:4] == salts][-1]
    torn = wal[: last + 2000] + bytes(300) + wal[last + 2300 :]
    assert not reused._replace(wal=torn).is_damaged(place)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_no_wrong_bit_goes_unseen(killed: Killed, place: Path, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(killed.wal) - 1))
    damaged = bytearray(killed.wal)
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    assert killed._replace(wal=bytes(damaged)).is_damaged(place)


def test_a_block_of_zeros_does_not_go_unseen(killed: Killed, place: Path) -> None:
    for at in (0, len(killed.wal) // 2):
        zeroed = killed.wal[:at] + bytes(4096) + killed.wal[at + 4096 :]
        assert killed._replace(wal=zeroed).is_damaged(place), at


async def test_a_damaged_write_ahead_log_is_kept_as_a_copy(tmp_path: Path) -> None:
    path, killed = tmp_path / "tiller.db", tmp_path / "killed" / "tiller.db"
    killed.parent.mkdir()
    async with open_log(path) as log:
        for number in range(10):
            await log.append(batch_of(f"s{number}", 1, 3))
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{killed}{suffix}")
    data = bytearray(wal_of(killed).read_bytes())
    data[len(data) // 2] ^= 1
    wal_of(killed).write_bytes(data)
    async with open_log(killed) as log:
        assert await log.count() < 10
        (problem,) = log.problems()
    (copy,) = killed.parent.glob("tiller.db-wal.damaged-*")
    assert copy.read_bytes() == data
    assert copy.stat().st_mode & 0o777 == 0o600
    assert str(copy) in problem
    async with open_log(killed) as log:
        assert log.problems() == (problem,)
        copy.unlink()
        assert log.problems() == ()


async def test_a_write_ahead_log_that_was_cut_short_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "tiller.db"
    async with open_log(path) as log:
        for number in range(10):
            await log.append(batch_of(f"s{number}", 1, 3))
        size = wal_of(path).stat().st_size
        cuts = (0, 10, HEADER.size, HEADER.size + FRAME_BYTES, size // 2, size - FRAME_BYTES)
        for cut in (*cuts, size - 1, size):
            killed = tmp_path / str(cut) / "tiller.db"
            killed.parent.mkdir()
            for suffix in ("", "-wal", "-wal-length"):
                shutil.copy(f"{path}{suffix}", f"{killed}{suffix}")
            os.truncate(wal_of(killed), cut)
    for cut in (*cuts, size - 1):
        killed = tmp_path / str(cut) / "tiller.db"
        with pytest.raises(LogError, match="write-ahead log"):
            check_log(killed)
        async with open_log(killed) as log:
            assert await log.count() < 10, cut
            assert "could not be read" in log.problems()[0], cut
    async with open_log(tmp_path / str(size) / "tiller.db") as log:
        assert (await log.count(), log.problems()) == (10, ())


async def test_what_a_power_failure_leaves_is_no_damage(tmp_path: Path) -> None:
    path, left = tmp_path / "tiller.db", tmp_path / "left" / "tiller.db"
    left.parent.mkdir()
    async with open_log(path) as log:
        await log.append(batch_of("a", 1, 3))
        for suffix in ("", "-wal", "-wal-length"):
            shutil.copy(f"{path}{suffix}", f"{left}{suffix}")
    os.truncate(wal_of(left), wal_of(left).stat().st_size - FRAME_BYTES)
    # The length was written down before the machine was started.
    os.utime(left.with_name("tiller.db-wal-length"), (1, 1))
    async with open_log(left) as log:
        assert log.problems() == ()


async def test_a_log_that_was_closed_or_killed_has_no_problem(tmp_path: Path) -> None:
    path, killed = tmp_path / "tiller.db", tmp_path / "killed" / "tiller.db"
    killed.parent.mkdir()
    async with open_log(path) as log:
        await log.append(batch_of("a", 1, 3))
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{killed}{suffix}")
    for one in (path, killed):
        async with open_log(one) as log:
            assert log.problems() == ()
            assert await log.count() == 1
