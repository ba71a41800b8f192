"""The contract of a log, for the one in a file and the one in memory."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from store.rows import batch_of, body_of, session_row, submission_row
from support.memory_log import MemoryLog
from tiller_daemon.store.base import (
    BadCursor,
    Batch,
    EventRow,
    Log,
    LogError,
    SessionRow,
    SubmissionRow,
    cursor_of,
)
from tiller_daemon.store.log import open_log

MUCH = 1_000_000


@pytest.fixture(params=["memory", "sqlite"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Log]:
    if request.param == "memory":
        yield MemoryLog()
    else:
        async with open_log(tmp_path / "tiller.db") as opened:
            yield opened


async def test_what_was_appended_is_read_in_order(log: Log) -> None:
    await log.append(batch_of("a", 1, 3))
    await log.append(batch_of("b", 1, 1))
    await log.append(batch_of("a", 4, 5))
    assert await log.events("a", 0, 100, MUCH) == [body_of("a", seq) for seq in range(1, 6)]
    assert await log.events("a", 3, 1, MUCH) == [body_of("a", 4)]
    assert await log.events("a", 5, 100, MUCH) == []
    assert (await log.head("a"), await log.head("b"), await log.head("c")) == (5, 1, 0)


async def test_a_page_of_events_stays_under_its_bytes_but_is_never_empty(log: Log) -> None:
    await log.append(batch_of("a", 1, 5, bytes_min=100))
    assert len(await log.events("a", 0, 100, 300)) == 3
    assert len(await log.events("a", 0, 100, 299)) == 2
    assert len(await log.events("a", 0, 100, 1)) == 1
    assert await log.events("a", 0, 0, 1) == []


@pytest.mark.parametrize("batch", [batch_of("a", 1, 1), batch_of("a", 4, 5), batch_of("b", 2, 2)])
async def test_events_that_do_not_follow_the_head_are_refused_whole(log: Log, batch: Batch) -> None:
    """G2: a gap or a number used twice never gets into the log."""
    await log.append(batch_of("a", 1, 2))
    with pytest.raises(LogError) as raised:
        await log.append(batch)
    assert raised.value.kind == "conflict"
    assert await log.events("a", 0, 100, MUCH) == [body_of("a", 1), body_of("a", 2)]
    assert await log.session("b") is None


async def test_events_with_a_gap_inside_are_refused_whole(log: Log) -> None:
    events = (EventRow(1, 1.0, b"1"), EventRow(3, 1.0, b"3"))
    with pytest.raises(LogError, match="have a gap, or do not end at its last event"):
        await log.append(Batch(session_row("a", 2), events))
    assert await log.count() == 0


@pytest.mark.promise("T5")
async def test_a_submission_takes_effect_once_and_keeps_its_answer(log: Log) -> None:
    """G3, T5: the events and the answer are one transaction, so a re-send changes nothing."""
    first = submission_row("s1", b"first")
    await log.append(batch_of("a", 1, 2, submission=first))
    with pytest.raises(LogError) as raised:
        await log.append(batch_of("a", 3, 3, submission=submission_row("s1", b"second")))
    assert raised.value.kind == "conflict"
    with pytest.raises(LogError):
        await log.record(submission_row("s1", b"third"))
    assert await log.submission("s1") == first
    assert await log.head("a") == 2


async def test_a_rejected_batch_leaves_no_answer(log: Log) -> None:
    """G3: an answer without its events would say that an op took effect which did not."""
    with pytest.raises(LogError):
        await log.append(batch_of("a", 2, 2, submission=submission_row("s1")))
    assert await log.submission("s1") is None


async def test_a_rejection_is_stored_without_events(log: Log) -> None:
    await log.record(submission_row("s1", b"no"))
    assert await log.submission("s1") == submission_row("s1", b"no")
    assert await log.submission("s2") is None
    assert await log.count() == 0


async def test_a_row_changes_alone_when_the_batch_has_no_events(log: Log) -> None:
    await log.append(batch_of("a", 1, 1))
    row = session_row("a", 1, title="t", archived=True, unfinished=True, summary=b"\0summary")
    await log.append(Batch(row, ()))
    assert await log.session("a") == row
    assert await log.unfinished() == ["a"]


async def test_numbers_that_are_whole_come_back_equal(log: Log) -> None:
    """A float column makes 1.0 of 1; the checksum of a row must not mind."""
    row = SessionRow("a", "/w", 1, 2, 1, summary=b"x")
    await log.append(Batch(row, (EventRow(1, 4, b"body"),)))
    assert await log.session("a") == row
    assert await log.events("a", 0, 1, MUCH) == [b"body"]


async def test_a_deleted_session_is_gone_but_its_submissions_are_not(log: Log) -> None:
    await log.append(batch_of("a", 1, 3, submission=submission_row("s1")))
    await log.append(batch_of("b", 1, 1))
    await log.delete("a")
    await log.delete("never there")
    assert await log.events("a", 0, 100, MUCH) == []
    assert (await log.head("a"), await log.session("a"), await log.count()) == (0, None, 1)
    assert await log.submission("s1") == submission_row("s1")
    await log.append(batch_of("a", 1, 1))
    assert await log.events("a", 0, 100, MUCH) == [body_of("a", 1)]


async def test_sessions_come_newest_first_in_pages_without_one_twice(log: Log) -> None:
    for number in range(7):
        place = "/x" if number % 2 else "/w"
        await log.append(
            batch_of(f"s{number}", 1, 1, updated_at=float(number // 2), workspace=place)
        )
    await log.append(batch_of("old", 1, 1, archived=True))
    seen: list[str] = []
    after = None
    while page := await log.sessions(workspace=None, archived=False, limit=3, after=after):
        seen += [row.session_id for row in page]
        after = cursor_of(page[-1])
    assert seen == ["s6", "s5", "s4", "s3", "s2", "s1", "s0"]
    of_x = await log.sessions(workspace="/x", archived=False, limit=10, after=None)
    assert [row.session_id for row in of_x] == ["s5", "s3", "s1"]
    archived = await log.sessions(workspace=None, archived=True, limit=10, after=None)
    assert [row.session_id for row in archived] == ["old"]


@pytest.mark.parametrize("cursor", ["", "x", "1.0", "1.0 ", "nan s1", "one s1"])
async def test_an_invalid_cursor_is_an_error(log: Log, cursor: str) -> None:
    with pytest.raises(BadCursor, match="request the first page"):
        await log.sessions(workspace=None, archived=False, limit=3, after=cursor)


async def test_many_sessions_append_at_the_same_time_and_one_bad_batch_fails_alone(
    log: Log,
) -> None:
    failed: list[str] = []

    async def run(session_id: str) -> None:
        for seq in range(1, 11):
            try:
                await log.append(batch_of(session_id, seq, seq))
            except LogError as error:
                failed.append(f"{session_id} {seq} {error.kind}")

    async def intrude() -> None:
        for seq in range(5, 10):
            with pytest.raises(LogError):
                await log.append(batch_of("bad", seq, seq))

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(run, f"s{number}")
        nursery.start_soon(intrude)
    assert failed == []
    for number in range(20):
        assert len(await log.events(f"s{number}", 0, 100, MUCH)) == 10
    assert await log.session("bad") is None


async def test_a_cancelled_append_is_whole_or_absent(log: Log) -> None:
    """The caller does not hear of it, but never is half of it there."""
    for number in range(30):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(
                    log.append, batch_of(f"s{number}", 1, 5, submission=submission_row(f"{number}"))
                )
                for _ in range(number % 4):
                    await trio.lowlevel.checkpoint()
                scope.cancel()
    for number in range(30):
        events = await log.events(f"s{number}", 0, 100, MUCH)
        answer = await log.submission(f"{number}")
        assert (len(events), await log.head(f"s{number}"), answer is not None) in [
            (5, 5, True),
            (0, 0, False),
        ]


async def test_an_odd_body_and_an_odd_name_come_back_as_they_were(log: Log) -> None:
    name = "a'b\"c\u2028\n \u00e9"
    body = bytes(range(256)) * 40
    await log.append(Batch(session_row(name, 1, title="\0"), (EventRow(1, 1.0, body),)))
    assert await log.events(name, 0, 1, 1) == [body]
    assert await log.session(name) == session_row(name, 1, title="\0")
    row = SubmissionRow(name, b"", b"")
    await log.record(row)
    assert await log.submission(name) == row


@pytest.mark.promise("T16")
async def test_text_that_can_not_be_stored_fails_its_own_batch_only(tmp_path: Path) -> None:
    """A lone surrogate is refused by SQLite: T16's mistake must not stop the thread."""
    async with open_log(tmp_path / "tiller.db") as log:
        batch = batch_of("a", 1, 1, submission=submission_row("s1"), title="\ud800")
        with pytest.raises(UnicodeEncodeError):
            await log.append(batch)
        assert await log.submission("s1") is None
        await log.append(batch_of("a", 1, 1))
        assert await log.head("a") == 1
