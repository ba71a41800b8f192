"""A write-ahead log that belongs to another file, or to another state of it, is never replayed."""

import shutil
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from store.rows import batch_of
from tiller_daemon.store.base import LogError
from tiller_daemon.store.checking import check_log
from tiller_daemon.store.database import Database
from tiller_daemon.store.log import SqliteLog, open_log
from tiller_daemon.store.schema import open_file
from tiller_daemon.store.wal import wal_of


class Home:
    """A log that takes sessions, and whose files can be copied as `kill -9` would leave them."""

    def __init__(self, path: Path, log: SqliteLog, database: Database) -> None:
        self.path, self.log = path, log
        self._transactions = database._transactions  # pyright: ignore[reportPrivateUsage]
        self._count = 0

    async def grow(self, sessions: int = 3) -> None:
        for _ in range(sessions):
            self._count += 1
            await self.log.append(batch_of(f"{self.path.parent.name}{self._count}", 1, 3))

    async def rest(self) -> bool:
        """Empty the write-ahead log, as the daemon does once nothing was written for a while.

        Returns whether the daemon would have no more to do then.
        """
        self._transactions.checkpoint(empty=True)
        return self._transactions.is_empty

    async def move_on(self) -> None:
        """Move the write-ahead log into the file, as the daemon does while much is written."""
        self._transactions.checkpoint(empty=False)

    def copy(self, to: Path, *ends: str) -> Path:
        """Copy the file, its write-ahead log, or both into a directory."""
        to.mkdir(exist_ok=True)
        for end in ends:
            shutil.copy(f"{self.path}{end}", f"{to / self.path.name}{end}")
        return to / self.path.name


@asynccontextmanager
async def home(directory: Path) -> AsyncGenerator[Home]:
    """Open or create a log in a directory."""
    path = directory / "tiller.db"
    connection, log_id = open_file(path)
    database = Database(connection, path)
    try:
        yield Home(path, SqliteLog(database, path, log_id), database)
    finally:
        await database.close()


async def newer_beside_backup(one: Home, other: Home, to: Path) -> None:
    await one.grow()
    await one.rest()
    one.copy(to, "")
    await one.grow()
    await one.rest()
    await one.grow()
    one.copy(to, "-wal")


async def older_beside_newer(one: Home, other: Home, to: Path) -> None:
    await one.grow()
    one.copy(to, "-wal")
    await one.rest()
    await one.grow()
    await one.rest()
    one.copy(to, "")


async def strangers(one: Home, other: Home, to: Path) -> None:
    await one.grow()
    await one.rest()
    one.copy(to, "")
    await other.grow()
    await other.rest()
    await other.grow()
    other.copy(to, "-wal")


async def cut_before_what_was_moved(one: Home, other: Home, to: Path) -> None:
    await one.grow()
    one.copy(to, "-wal")
    await one.grow()
    await one.move_on()
    one.copy(to, "")


async def newer_after_a_move(one: Home, other: Home, to: Path) -> None:
    await one.grow()
    await one.move_on()
    one.copy(to, "")
    await one.grow()
    await one.move_on()
    await one.grow()
    one.copy(to, "-wal")


async def left_without_file(one: Home, other: Home, to: Path) -> None:
    await one.grow()
    await one.rest()
    await one.grow()
    one.copy(to, "-wal")
    (to / one.path.name).touch()


async def of_a_copy_that_was_only_opened(one: Home, other: Home, to: Path) -> None:
    await one.grow()
    await one.rest()
    one.copy(to, "")
    await one.grow()
    await one.rest()
    copied = one.copy(to.parent / "copied", "")
    async with home(copied.parent) as opened:  # which stores another id
        opened.copy(to, "-wal")


async def of_another_program(one: Home, other: Home, to: Path) -> None:
    await one.grow()
    await one.rest()
    path = one.copy(to, "")
    with closing(sqlite3.connect(to.parent / "another.db")) as connection:
        connection.executescript("PRAGMA journal_mode = WAL; CREATE TABLE things (content)")
        shutil.copy(to.parent / "another.db-wal", wal_of(path))


@pytest.mark.parametrize(
    "arrange",
    [
        newer_beside_backup,
        older_beside_newer,
        strangers,
        cut_before_what_was_moved,
        newer_after_a_move,
        left_without_file,
        of_a_copy_that_was_only_opened,
        of_another_program,
    ],
)
@pytest.mark.promise("B51")
async def test_what_does_not_belong_is_put_aside_and_told(
    tmp_path: Path, arrange: Callable[[Home, Home, Path], Awaitable[None]]
) -> None:
    restored = tmp_path / "restored"
    async with home(tmp_path / "a") as one, home(tmp_path / "b") as other:
        await arrange(one, other, restored)
    path = restored / "tiller.db"
    wal = wal_of(path).read_bytes()
    alone = tmp_path / "alone.db"
    shutil.copy(path, alone)
    with pytest.raises(LogError, match="does not belong to"):
        check_log(path)
    async with open_log(path) as log, open_log(alone) as right:
        rows = await log.sessions(workspace=None, archived=False, limit=100, after=None)
        assert rows == await right.sessions(workspace=None, archived=False, limit=100, after=None)
        for row in rows:
            assert len(await log.events(row.session_id, 0, 100, 1 << 20)) == row.head
        (problem,) = log.problems()
    (copy,) = restored.glob("tiller.db-wal.foreign-*")
    assert copy.read_bytes() == wal
    assert str(copy) in problem
    copy.unlink()
    async with open_log(path) as log:
        assert log.problems() == ()


async def killed_at_once(one: Home) -> None:
    await one.grow()


async def killed_after_rests(one: Home) -> None:
    for _ in range(3):
        await one.grow()
        await one.rest()
    await one.grow()


async def killed_after_moves(one: Home) -> None:
    for _ in range(3):
        await one.grow()
        await one.move_on()
    await one.grow()


async def killed_right_after_a_move(one: Home) -> None:
    await one.grow(200)
    await one.move_on()


async def killed_at_rest(one: Home) -> None:
    await one.grow()
    await one.rest()


@pytest.mark.parametrize(
    "live",
    [
        killed_at_once,
        killed_after_rests,
        killed_after_moves,
        killed_right_after_a_move,
        killed_at_rest,
    ],
)
async def test_what_belongs_is_replayed_whenever_the_process_was_killed(
    tmp_path: Path, live: Callable[[Home], Awaitable[None]]
) -> None:
    async with home(tmp_path / "a") as one:
        await live(one)
        count = await one.log.count()
        killed = one.copy(tmp_path / "killed", "", "-wal")
    for _ in range(2):
        check_log(killed)
        async with open_log(killed) as log:
            assert (await log.count(), log.problems()) == (count, ())
            await log.append(batch_of(f"more{count}", 1, 3))
            count += 1


async def test_a_copy_of_a_log_has_another_id(tmp_path: Path) -> None:
    """Frontends that followed one log must not take the events of the other for its."""
    path, copy = tmp_path / "tiller.db", tmp_path / "copy.db"
    async with open_log(path) as log:
        log_id = log.log_id
        await log.append(batch_of("a", 1, 3))
    shutil.copy(path, copy)
    async with open_log(path) as log, open_log(copy) as other:
        assert log.log_id == log_id
        assert other.log_id != log_id
        assert await other.count() == 1
        copied_id = other.log_id
    async with open_log(copy) as other:
        assert other.log_id == copied_id
