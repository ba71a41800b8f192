"""Requests are found by their id, in both logs, whatever version the file began with (B40)."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from store.rows import batch_of, session_row
from support.memory_log import MemoryLog
from tiller_daemon.store.base import Batch, EventRow, Log, LogError, RequestRow, SessionFigures
from tiller_daemon.store.log import open_log
from tiller_daemon.store.projection import request_rows, request_rows_in
from tiller_daemon.store.schema import SCHEMA_VERSION, checksum
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


async def test_a_log_of_version_1_gets_the_table_from_its_events(tmp_path: Path) -> None:
    path = tmp_path / "tiller.db"
    async with open_log(path) as log:
        await fill(log)
        sessions = await log.sessions(workspace=None, archived=False, limit=9, after=None)
    make_version_1(path)
    for _ in range(2):
        async with open_log(path) as log:
            assert {name: await log.requests(name) for name in EXPECTED} == EXPECTED
            assert sessions == await log.sessions(
                workspace=None, archived=False, limit=9, after=None
            )
            assert await log.head("a") == 5
    with sqlite3.connect(path) as connection:
        (version,) = connection.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()
    connection.close()
    assert version == str(SCHEMA_VERSION)


async def test_a_log_of_version_2_keeps_its_sessions_and_knows_no_figures_of_them(
    tmp_path: Path,
) -> None:
    path = tmp_path / "tiller.db"
    known = SessionFigures(3, 0.5, 2, 300, 1000, "main")
    async with open_log(path) as log:
        for name in ("a", "b"):
            await log.append(batch_of(name, 1, 1, owner_id="owner", figures=known))
    make_older(path, VERSION_2, f"{FIELDS_1}, owner_id")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE sessions SET title = 'another' WHERE session_id = 'b'")
    connection.close()
    for _ in range(2):
        async with open_log(path) as log:
            row = await log.session("a")
            assert row is not None
            assert (row.owner_id, row.figures) == ("owner", SessionFigures(3, 0.5))
            with pytest.raises(LogError, match="row of session b"):
                await log.session("b")
    async with open_log(path) as log:
        await log.append(batch_of("a", 2, 2, figures=known))
        row = await log.session("a")
        assert row is not None
        assert row.figures == known


async def test_a_damaged_event_in_an_older_log_hides_no_other_request(tmp_path: Path) -> None:
    path = tmp_path / "tiller.db"
    async with open_log(path) as log:
        await fill(log)
    make_version_1(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE events SET time = 9 WHERE session_id = 'parent' AND seq = 2")
    connection.close()
    async with open_log(path) as log:
        assert await log.session("parent")
        assert await log.requests("r1") == EXPECTED["r1"]
        assert await log.requests("r3") == [RequestRow("r3", "child"), RequestRow("r3", "parent")]


VERSION_2 = """
ALTER TABLE sessions DROP COLUMN parent_turns;
ALTER TABLE sessions DROP COLUMN context_tokens;
ALTER TABLE sessions DROP COLUMN context_window;
ALTER TABLE sessions DROP COLUMN branch;
UPDATE meta SET value = '2' WHERE key = 'version';
"""
VERSION_1 = """
DROP TABLE requests;
DROP INDEX sessions_by_time;
CREATE INDEX sessions_by_time ON sessions (archived, updated_at, session_id);
ALTER TABLE sessions DROP COLUMN owner_id;
UPDATE meta SET value = '1' WHERE key = 'version';
"""


def make_version_1(path: Path) -> None:
    """What the file was like before there were owners and a table of requests."""
    make_older(path, VERSION_2 + VERSION_1, FIELDS_1)


FIELDS_1 = (
    "session_id, workspace, created_at, updated_at, head, title, archived, turns, cost,"
    " unfinished, parent_id"
)


def make_older(path: Path, script: str, names: str) -> None:
    """Take columns away, and write the checksums over the rest."""
    with sqlite3.connect(path) as connection:
        connection.executescript(script)
        for (session_id,) in connection.execute("SELECT session_id FROM sessions").fetchall():
            (*fields,) = connection.execute(
                f"SELECT {names} FROM sessions WHERE session_id = ?",
                (session_id,),
            ).fetchone()
            fields[6], fields[9] = bool(fields[6]), bool(fields[9])
            connection.execute(
                "UPDATE sessions SET checksum = ? WHERE session_id = ?",
                (checksum(*fields), session_id),
            )
    connection.close()


async def test_a_damaged_session_stays_damaged_after_a_migration(tmp_path: Path) -> None:
    path = tmp_path / "tiller.db"
    async with open_log(path) as log:
        await fill(log)
    make_version_1(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE sessions SET title = 'another' WHERE session_id = 'parent'")
    connection.close()
    async with open_log(path) as log:
        with pytest.raises(LogError, match="row of session parent"):
            await log.session("parent")
        assert await log.session("a")


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


def test_undecodable_events_yield_no_rows() -> None:
    event = Event(1, "a", 1.0, opened("r1"))
    bodies = [b"request_opened", encode_event(event), b""]
    assert list(request_rows_in(bodies)) == [RequestRow("r1", "a")]
