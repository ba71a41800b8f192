"""Damage in the write-ahead log is found before SQLite passes over it in silence."""

import random
import shutil
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.rows import batch_of
from tiller_daemon.store.log import open_log
from tiller_daemon.store.wal import FRAME, HEADER, is_damaged, kept_copies, wal_of

FRAME_BYTES = FRAME.size + 4096


def written(path: Path, commits: int, *, again: int = 0) -> bytes:
    """The write-ahead log of a file as `kill -9` would leave it.

    With `again`, so many commits are written over the beginning of an older one.
    """
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE things (content BLOB)")
    content = random.Random(1)
    for number in range(commits + again):
        if number == commits:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        connection.execute("INSERT INTO things VALUES (?)", (content.randbytes(900),))
    data = wal_of(path).read_bytes()
    connection.close()
    return data


@pytest.fixture(scope="module")
def wal(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return written(tmp_path_factory.mktemp("wal") / "tiller.db", 20)


@pytest.fixture(scope="module")
def reused(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return written(tmp_path_factory.mktemp("wal") / "tiller.db", 20, again=5)


def test_a_sound_log_is_not_damaged_wherever_the_process_was_killed(
    wal: bytes, reused: bytes
) -> None:
    assert not is_damaged(reused)
    for end in range(0, len(wal), 97):
        assert not is_damaged(wal[:end]), end


def test_a_frame_that_was_half_written_over_an_old_one_is_no_damage(reused: bytes) -> None:
    salts = HEADER.unpack_from(reused)[4:6]
    starts = range(HEADER.size, len(reused), FRAME_BYTES)
    of_now = [at for at in starts if FRAME.unpack_from(reused, at)[2:4] == salts]
    last = of_now[-1]
    torn = reused[: last + 2000] + bytes(300) + reused[last + 2300 :]
    assert not is_damaged(torn)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_no_wrong_bit_goes_unseen(wal: bytes, data: st.DataObject) -> None:
    # All but the version, the number of checkpoints, and unused words have a checksum.
    at = data.draw(st.integers(0, len(wal) - 1))
    bit = data.draw(st.integers(0, 7))
    damaged = bytearray(wal)
    damaged[at] ^= 1 << bit
    assert is_damaged(bytes(damaged))


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
    (copy,) = kept_copies(killed)
    assert copy.read_bytes() == data
    assert copy.stat().st_mode & 0o777 == 0o600
    assert str(copy) in problem
    async with open_log(killed) as log:
        assert log.problems() == (problem,)
        copy.unlink()
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
