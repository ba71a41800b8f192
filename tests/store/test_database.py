"""Where transactions run, on the loop or in the thread, and which of them are synced."""

import sqlite3
import tempfile
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from tiller_daemon.store.base import LogError
from tiller_daemon.store.database import INLINE_BYTES_MAX, Database
from tiller_daemon.store.schema import open_file
from tiller_daemon.store.transactions import CHECKPOINT_PAGES, FAST_SYNCS

MEMORY = Path("/dev/shm")
NORMAL, FULL = 1, 2
"""Values of SQLite's `PRAGMA synchronous`."""

SLOW_COMMIT_S = 0.005
SLOW_WRITES = 20


@asynccontextmanager
async def database(path: Path) -> AsyncGenerator[tuple[Database, sqlite3.Connection]]:
    connection, _ = open_file(path / "tiller.db")
    opened = Database(connection, path / "tiller.db")
    try:
        yield opened, connection
    finally:
        await opened.close()


class Threads:
    """The threads that ran a write, in order."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def work(self, connection: sqlite3.Connection) -> None:
        assert connection.in_transaction
        self.seen.append(threading.get_ident())

    def ran_here(self) -> bool:
        """Whether the last one ran in this thread."""
        return self.seen[-1] == threading.get_ident()


async def test_a_short_write_runs_on_the_loop_and_a_long_one_in_the_thread(tmp_path: Path) -> None:
    threads = Threads()
    async with database(tmp_path) as (opened, _):
        await opened.write(threads.work, size=INLINE_BYTES_MAX)
        assert threads.ran_here()
        await opened.write(threads.work, size=INLINE_BYTES_MAX + 1)
        assert not threads.ran_here()


async def test_a_look_up_runs_on_the_loop_and_a_read_in_the_thread(tmp_path: Path) -> None:
    async with database(tmp_path) as (opened, _):
        assert await opened.look_up(lambda _: threading.get_ident()) == threading.get_ident()
        assert await opened.read(lambda _: threading.get_ident()) != threading.get_ident()


async def test_while_the_thread_works_everything_waits_for_it_in_order(tmp_path: Path) -> None:
    threads = Threads()
    may_end = threading.Event()
    order: list[str] = []

    def read(_: sqlite3.Connection) -> None:
        may_end.wait()
        order.append("read")

    async def write() -> None:
        await opened.write(threads.work)
        order.append("write")

    async def look_up() -> None:
        await opened.look_up(lambda _: None)
        order.append("look up")

    async with database(tmp_path) as (opened, _):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(opened.read, read)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(write)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(look_up)
            await trio.testing.wait_all_tasks_blocked()
            assert order == []
            may_end.set()
        assert order[0] == "read"
        assert not threads.ran_here()
        await opened.write(threads.work)
        assert threads.ran_here()


@pytest.mark.skipif(not MEMORY.is_dir(), reason="no file system in memory, where syncs are fast")
async def test_the_disk_decides_whether_a_synced_write_runs_on_the_loop() -> None:
    threads = Threads()
    with trio.fail_after(60):
        async with _in_memory() as (opened, connection):
            connection.set_trace_callback(_take_long_to_commit)
            for _ in range(SLOW_WRITES):
                await opened.write(threads.work)
            assert not threads.ran_here()
            await opened.write(threads.work, synced=False)
            assert threads.ran_here(), "an unsynced write does not wait for the disk"
            connection.set_trace_callback(None)
            for _ in range(FAST_SYNCS):
                await opened.write(threads.work)
                assert not threads.ran_here()
            while not threads.ran_here():
                await opened.write(threads.work)


@asynccontextmanager
async def _in_memory() -> AsyncGenerator[tuple[Database, sqlite3.Connection]]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        async with database(Path(directory)) as both:
            yield both


@pytest.mark.parametrize("size", [0, INLINE_BYTES_MAX + 1])
@pytest.mark.promise("G1")
async def test_sqlite_syncs_the_commits_that_must_survive_a_power_failure(
    tmp_path: Path, size: int
) -> None:
    levels: list[int] = []

    def work(connection: sqlite3.Connection) -> None:
        levels.append(connection.execute("PRAGMA synchronous").fetchone()[0])

    async with database(tmp_path) as (opened, _):
        for synced in (True, False, False, True):
            await opened.write(work, size, synced=synced)
    assert levels == [FULL, NORMAL, NORMAL, FULL]


async def test_one_synced_write_makes_its_whole_group_synced(tmp_path: Path) -> None:
    levels: list[int] = []
    may_end = threading.Event()

    def work(connection: sqlite3.Connection) -> None:
        levels.append(connection.execute("PRAGMA synchronous").fetchone()[0])

    async with database(tmp_path) as (opened, _), trio.open_nursery() as nursery:
        nursery.start_soon(opened.read, lambda _: may_end.wait())
        await trio.testing.wait_all_tasks_blocked()
        for synced in (False, True, False):
            nursery.start_soon(partial(opened.write, work, synced=synced))
        await trio.testing.wait_all_tasks_blocked()
        may_end.set()
    assert levels == [FULL, FULL, FULL]


@pytest.mark.parametrize("size", [0, INLINE_BYTES_MAX + 1])
async def test_what_was_committed_without_a_sync_is_synced_soon(tmp_path: Path, size: int) -> None:
    """The file is taken away, so that the sync, which opens it, has something to report."""
    with capture_logs() as lines, trio.fail_after(60):
        async with database(tmp_path) as (opened, _):
            await opened.write(_touch)
            await opened.write(partial(_touch_and_hide, tmp_path), size, synced=False)
            while not lines:  # noqa: ASYNC110 - the thread tells nobody
                await trio.sleep(0.01)
            (tmp_path / "moved").rename(tmp_path / "tiller.db-wal")
    assert [line["event"] for line in lines] == ["log_not_synced"]


@pytest.mark.parametrize("fails", [True, False])
async def test_a_write_that_stores_nothing_is_no_sync_of_earlier_ones(
    tmp_path: Path,
    fails: bool,  # noqa: FBT001
) -> None:
    def store_nothing(connection: sqlite3.Connection) -> None:
        if fails:
            _touch_and_hide(tmp_path, connection)
            raise ValueError("planned")
        _hide(tmp_path)

    with capture_logs() as lines, trio.fail_after(60):
        async with database(tmp_path) as (opened, _):
            await opened.write(_touch)
            await opened.write(_touch, synced=False)
            with pytest.raises(ValueError, match="planned") if fails else nullcontext():
                await opened.write(store_nothing)
            while not lines:  # noqa: ASYNC110 - the thread tells nobody
                await trio.sleep(0.01)
            (tmp_path / "moved").rename(tmp_path / "tiller.db-wal")
    assert [line["event"] for line in lines] == ["log_not_synced"]


async def test_the_write_ahead_log_is_empty_some_time_after_the_last_write(tmp_path: Path) -> None:
    async with database(tmp_path) as (opened, _):
        for number in range(3):
            await opened.write(partial(_add, number=number))
        with trio.fail_after(60):
            while (tmp_path / "tiller.db-wal").stat().st_size:  # noqa: ASYNC110 - nothing tells
                await trio.sleep(0.1)
        await opened.write(partial(_add, number=3))
        assert (tmp_path / "tiller.db-wal").stat().st_size > 0


@pytest.mark.parametrize("name", ["tiller.db", "tiller.db-wal"])
async def test_a_file_that_is_removed_or_replaced_is_an_error_at_the_next_write(
    tmp_path: Path, name: str
) -> None:
    async with database(tmp_path) as (opened, _):
        await opened.write(_touch)
        (tmp_path / name).rename(tmp_path / "moved")
        with pytest.raises(LogError, match=f"{name} was removed or replaced"):
            await opened.write(_touch)
        (tmp_path / name).write_bytes((tmp_path / "moved").read_bytes())
        with pytest.raises(LogError, match="put it back"):
            await opened.write(_touch)
        (tmp_path / "moved").rename(tmp_path / name)
        await opened.write(_touch)


async def test_the_write_ahead_log_is_moved_into_the_main_file_now_and_then(tmp_path: Path) -> None:
    async with database(tmp_path) as (opened, _):
        small = (tmp_path / "tiller.db").stat().st_size
        for number in range(CHECKPOINT_PAGES):
            await opened.write(lambda connection, n=number: _add(connection, n))
        await opened.read(lambda _: None)
        assert (tmp_path / "tiller.db").stat().st_size > small
        assert (tmp_path / "tiller.db-wal").stat().st_size < 2 * CHECKPOINT_PAGES * 4096


def _touch_and_hide(directory: Path, connection: sqlite3.Connection) -> None:
    _touch(connection)
    _hide(directory)


def _hide(directory: Path) -> None:
    (directory / "tiller.db-wal").rename(directory / "moved")


def _take_long_to_commit(statement: str) -> None:
    if statement == "COMMIT":
        time.sleep(SLOW_COMMIT_S)


def _touch(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE meta SET value = value WHERE key = 'version'")


def _add(connection: sqlite3.Connection, number: int) -> None:
    connection.execute("INSERT INTO meta VALUES (?, ?)", (f"n{number}", "x" * 2000))
