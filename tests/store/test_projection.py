"""Requests are found by their id, in both logs (B40)."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from store.rows import session_row
from support.memory_log import MemoryLog
from tiller_daemon.store.base import Batch, EventRow, Log, LogError, RequestRow
from tiller_daemon.store.log import open_log
from tiller_daemon.store.projection import request_rows
from tiller_protocol.codec import encode_event
from tiller_protocol.events import (
    AnyBody,
    Event,
    RequestOpened,
    RequestResolved,
    StatusChanged,
    WarningRaised,
)
from tiller_protocol.items import Request


def opened(request_id: str) -> RequestOpened:
    return RequestOpened(Request(request_id, "approval", "may I?"))


def batch(session_id: str, first: int, *bodies: AnyBody) -> Batch:
    events = [
        Event(seq, session_id, float(seq), body) for seq, body in enumerate(bodies, start=first)
    ]
    return Batch(
        session_row(session_id, events[-1].seq),
        tuple(EventRow(event.seq, event.time, encode_event(event)) for event in events),
        requests=tuple(request_rows(events)),
    )


async def fill(log: Log) -> None:
    """One request that was answered, one that is open, one that two sessions show."""
    await log.append(batch("a", 1, StatusChanged("busy"), opened("r1"), opened("r2")))
    await log.append(
        batch("a", 4, RequestResolved("r1", "once", "mail"), WarningRaised("w", "request_ or not"))
    )
    await log.append(batch("parent", 1, opened("r3"), RequestResolved("r3", "cancelled")))
    await log.append(batch("child", 1, opened("r3")))


EXPECTED = {
    "r1": [RequestRow("r1", "a", "once", "mail")],
    "r2": [RequestRow("r2", "a")],
    "r3": [RequestRow("r3", "parent", "cancelled"), RequestRow("r3", "child")],
    "r4": [],
}


@pytest.fixture(params=["memory", "sqlite"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Log]:
    if request.param == "memory":
        yield MemoryLog()
    else:
        async with open_log(tmp_path / "tiller.db") as opened_log:
            yield opened_log


async def test_a_request_has_a_row_for_each_session_that_shows_it(log: Log) -> None:
    await fill(log)
    assert {name: await log.requests(name) for name in EXPECTED} == EXPECTED


async def test_a_session_takes_its_requests_with_it(log: Log) -> None:
    await fill(log)
    await log.delete("a")
    await log.delete("parent")
    left = {name: await log.requests(name) for name in EXPECTED}
    assert left == {"r1": [], "r2": [], "r3": [RequestRow("r3", "child")], "r4": []}


async def test_a_rejected_batch_leaves_no_rows_of_requests(log: Log) -> None:
    await fill(log)
    with pytest.raises(LogError):
        await log.append(batch("a", 3, RequestResolved("r2", "once")))
    assert await log.requests("r2") == EXPECTED["r2"]


async def test_a_damaged_row_is_an_error_that_names_the_request(tmp_path: Path) -> None:
    path = tmp_path / "tiller.db"
    async with open_log(path) as log:
        await fill(log)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE requests SET who = 'nobody' WHERE request_id = 'r1'")
    connection.close()
    async with open_log(path) as log:
        with pytest.raises(LogError, match="request r1") as raised:
            await log.requests("r1")
        assert raised.value.kind == "corrupt"
        assert await log.requests("r2") == EXPECTED["r2"]
