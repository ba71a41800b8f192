"""The planned faults of the log in memory."""

import pytest
import trio

from store.rows import batch_of, submission_row
from support.memory_log import MemoryLog
from tiller_daemon.store.base import LogError


class _Crash(Exception):
    pass


async def test_a_planned_fault_fails_only_the_next_write() -> None:
    log = MemoryLog()
    log.fail_next = "full"
    with pytest.raises(LogError) as raised:
        await log.append(batch_of("a", 1, 1, submission=submission_row("s1")))
    assert raised.value.kind == "full"
    assert (await log.head("a"), await log.submission("s1")) == (0, None)
    await log.append(batch_of("a", 1, 1))
    assert await log.head("a") == 1


async def test_a_crash_before_the_commit_stores_nothing_and_one_after_it_everything() -> None:
    async def crash() -> None:
        await trio.lowlevel.checkpoint()
        raise _Crash

    for point, head in (("before_commit", 0), ("after_commit", 2)):
        log = MemoryLog()
        setattr(log, point, crash)
        with pytest.raises(_Crash):
            await log.append(batch_of("a", 1, 2, submission=submission_row("s1")))
        assert await log.head("a") == head
        assert (await log.submission("s1") is not None) == bool(head)
