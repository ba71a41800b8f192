"""A log is backed up while it is used, and gives the space of deleted sessions back."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from store.rows import batch_of
from store.test_belonging import home
from tiller_daemon.store.base import LogError
from tiller_daemon.store.log import open_log
from tiller_daemon.store.wal import wal_of


@pytest.mark.parametrize("over_original", [False, True])
async def test_a_backup_is_a_whole_log_with_an_id_of_its_own(
    tmp_path: Path, *, over_original: bool
) -> None:
    """Even if its bytes replace those of the original, whose write-ahead log is left beside it."""
    backup = tmp_path / "backup.db"
    async with home(tmp_path / "a") as one:
        await one.grow(5)
        size = await one.log.back_up(backup)
        log_id = one.log.log_id
        await one.grow(5)
        killed = one.copy(tmp_path / "killed", "", "-wal")
    assert backup.stat().st_size == size
    assert backup.stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / ".backup.db.new").exists()
    if over_original:
        shutil.copyfile(backup, killed)
        backup = killed
    async with open_log(backup) as log:
        assert (await log.count(), len(log.problems())) == (5, int(over_original))
        assert log.log_id != log_id
        for row in await log.sessions(workspace=None, archived=False, limit=100, after=None):
            assert len(await log.events(row.session_id, 0, 100, 1 << 20)) == row.head


async def test_a_backup_that_can_not_be_made_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    there, file = tmp_path / "there.db", tmp_path / "file"
    there.write_text("precious")
    file.touch()
    async with open_log(tmp_path / "tiller.db") as log:
        await log.append(batch_of("a", 1, 3))
        for target, reason in (
            (there, "exists: choose another name"),
            (tmp_path, "exists: choose another name"),
            (tmp_path / "missing" / "b.db", "No such file or directory"),
            (file / "b.db", "Not a directory"),
            (Path("/proc/b.db"), "was not made"),
        ):
            with pytest.raises(LogError, match=reason):
                await log.back_up(target)
        assert await log.count() == 1
    assert there.read_text() == "precious"
    assert not (tmp_path / ".there.db.new").exists()


async def test_deleted_sessions_give_their_space_back(tmp_path: Path) -> None:
    async with home(tmp_path / "a") as one:
        for number in range(5):
            await one.log.append(batch_of(f"large{number}", 1, 200, bytes_min=25_000))
        await one.rest()
        full = one.path.stat().st_size
        for number in range(5):
            await one.log.delete(f"large{number}")
        await one.grow()
        rests = [await one.rest() for _ in range(3)]
        assert rests == [False, True, True]  # 6,000 pages are too many for one rest
        assert one.path.stat().st_size < full / 50
        assert wal_of(one.path).stat().st_size == 0
        assert await one.log.count() == 3


async def test_a_log_of_an_older_release_keeps_its_space_and_shrinks_by_a_backup(
    tmp_path: Path,
) -> None:
    path, backup = tmp_path / "tiller.db", tmp_path / "backup.db"
    async with open_log(path) as log:
        for number in range(10):
            await log.append(batch_of(f"s{number}", 1, 40, bytes_min=20_000))
    with closing(sqlite3.connect(path, isolation_level=None)) as older:
        older.executescript("PRAGMA journal_mode = DELETE; PRAGMA auto_vacuum = NONE; VACUUM")
    shutil.move(path, tmp_path / "older.db")
    (tmp_path / "a").mkdir()
    shutil.move(tmp_path / "older.db", tmp_path / "a" / "tiller.db")
    async with home(tmp_path / "a") as one:
        for number in range(10):
            await one.log.delete(f"s{number}")
        assert await one.rest()
        size = await one.log.back_up(backup)
        assert size < one.path.stat().st_size / 10
    with closing(sqlite3.connect(backup)) as copy:
        assert copy.execute("PRAGMA auto_vacuum").fetchone() == (2,)
