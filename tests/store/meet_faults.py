"""A process whose disk fills up, whose files may not grow, or whose file system is read-only.

Run as `meet_faults.py full|limited|read_only DIRECTORY` with DIRECTORY a small file system of its
own (not for `limited`). It ends with 0 when the log did what it should.
"""

import resource
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))
from store.rows import batch_of, body_of
from tiller_daemon.store.base import LogError
from tiller_daemon.store.log import SqliteLog, open_log

EVENT_BYTES = 2000


async def append_until_error(log: SqliteLog) -> tuple[int, LogError]:
    """Two writers at a time; the head of the first session when it failed, and how."""
    for seq in range(1, 10_000):
        try:
            await log.append(batch_of("a", seq, seq, bytes_min=EVENT_BYTES))
        except LogError as error:
            return seq - 1, error
    raise AssertionError("the disk did not fill up")


async def check(log: SqliteLog, head: int) -> None:
    assert await log.head("a") == head
    found = await log.events("a", 0, 100_000, 1 << 30)
    assert found == [body_of("a", seq, EVENT_BYTES) for seq in range(1, head + 1)]


async def fail_and_recover(log: SqliteLog, kind: str, make_room: Callable[[], object]) -> int:
    head, error = await append_until_error(log)
    assert error.kind == kind, error.message
    assert log.path in error.message
    for _ in range(3):
        _, error = await append_after(log, head)
        assert error is not None
        assert error.kind == kind
    await check(log, head)
    make_room()
    for _ in range(20):
        head, error = await append_after(log, head)
        assert error is None, error
    await check(log, head)
    return head


async def append_after(log: SqliteLog, head: int) -> tuple[int, LogError | None]:
    try:
        await log.append(batch_of("a", head + 1, head + 1, bytes_min=EVENT_BYTES))
    except LogError as error:
        return head, error
    return head + 1, None


async def full(directory: Path) -> None:
    ballast = directory / "ballast"
    ballast.write_bytes(bytes(1_500_000))
    async with open_log(directory / "tiller.db") as log:
        head = await fail_and_recover(log, "full", ballast.unlink)
    async with open_log(directory / "tiller.db") as log:
        await check(log, head)


async def limited(directory: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with open_log(directory / "tiller.db") as log:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
        head = await fail_and_recover(
            log, "io", lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        )
    async with open_log(directory / "tiller.db") as log:
        await check(log, head)


async def read_only(directory: Path) -> None:
    path = directory / "tiller.db"
    async with open_log(path) as log:
        await log.append(batch_of("a", 1, 1))
    before = path.read_bytes()
    await trio.run_process(["mount", "-o", "remount,ro", str(directory)])
    with pytest.raises(LogError) as raised:
        async with open_log(path):
            pass
    assert raised.value.kind == "read_only", raised.value.message
    assert str(path) in raised.value.message
    assert path.read_bytes() == before


if __name__ == "__main__":
    trio.run(globals()[sys.argv[1]], Path(sys.argv[2]))
