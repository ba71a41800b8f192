"""The log in memory and the one in a file agree after any operations."""

import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from store.rows import batch_of, submission_row
from support.memory_log import MemoryLog
from tiller_daemon.store.base import Log, LogError, RequestRow, cursor_of
from tiller_daemon.store.log import open_log

Step = Callable[[Log], Awaitable[Any]]

ids = st.sampled_from(["a", "b", "c"])
submission_ids = st.sampled_from([None, None, "s1", "s2", "s3"])
request_ids = st.lists(st.sampled_from(["r1", "r2"]), max_size=2)
resolutions = st.sampled_from(["", "once", "cancelled"])
small = st.integers(0, 6)


@st.composite
def appends(draw: st.DrawFn) -> Step:
    """A batch that mostly follows the head, and sometimes does not."""
    session_id, events, off = draw(ids), draw(small), draw(st.sampled_from([0, 0, 0, 0, 1, -1]))
    submission_id = draw(submission_ids)
    requests = tuple(RequestRow(r, session_id, draw(resolutions)) for r in draw(request_ids))
    changes = {
        "updated_at": float(draw(small)),
        "archived": draw(st.booleans()),
        "unfinished": draw(st.booleans()),
        "workspace": draw(st.sampled_from(["/w", "/x"])),
        "summary": draw(st.binary(max_size=3)),
    }

    async def step(log: Log) -> str:
        first = await log.head(session_id) + 1 + off
        if first < 1:
            return "not possible"
        submission = submission_row(submission_id) if submission_id else None
        last = first + events - 1
        batch = batch_of(
            session_id, first, last, submission=submission, requests=requests, **changes
        )
        try:
            await log.append(batch)
        except LogError as error:
            return error.kind
        return "stored"

    return step


@st.composite
def records(draw: st.DrawFn) -> Step:
    submission_id = draw(st.sampled_from(["s1", "s2", "s3"]))

    async def step(log: Log) -> str:
        try:
            await log.record(submission_row(submission_id, b"recorded"))
        except LogError as error:
            return error.kind
        return "stored"

    return step


@st.composite
def deletes(draw: st.DrawFn) -> Step:
    session_id = draw(ids)
    return lambda log: log.delete(session_id)


@st.composite
def reads(draw: st.DrawFn) -> Step:
    session_id, after, limit = draw(ids), draw(small), draw(small)
    bytes_max = draw(st.sampled_from([1, 10, 1000]))
    return lambda log: log.events(session_id, after, limit, bytes_max)


@st.composite
def lists(draw: st.DrawFn) -> Step:
    workspace, archived = draw(st.sampled_from([None, "/w", "/x"])), draw(st.booleans())
    limit = draw(st.integers(1, 3))

    async def step(log: Log) -> Any:
        pages, after = [], None
        while page := await log.sessions(
            workspace=workspace, archived=archived, limit=limit, after=after
        ):
            pages.append(page)
            after = cursor_of(page[-1])
        return pages, await log.unfinished(), await log.count()

    return step


REOPEN = "reopen"
steps = st.lists(
    st.one_of(
        appends(), appends(), appends(), records(), deletes(), reads(), lists(), st.just(REOPEN)
    ),
    max_size=40,
)


@given(steps)
@settings(max_examples=60, deadline=None)
def test_both_logs_answer_the_same_to_any_program_across_restarts(program: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        trio.run(_run_both, Path(directory, "tiller.db"), program)


async def _run_both(path: Path, program: list[Any]) -> None:
    memory = MemoryLog()
    async with AsyncExitStack() as stack:
        sqlite = await stack.enter_async_context(open_log(path))
        for step in program:
            if step == REOPEN:
                await stack.aclose()
                sqlite = await stack.enter_async_context(open_log(path))
            else:
                assert await step(sqlite) == await step(memory)
        for session_id in ("a", "b", "c"):
            assert await sqlite.session(session_id) == await memory.session(session_id)
            assert await sqlite.events(session_id, 0, 1000, 1 << 20) == await memory.events(
                session_id, 0, 1000, 1 << 20
            )
        for request_id in ("r1", "r2"):
            assert await sqlite.requests(request_id) == await memory.requests(request_id)
        for submission_id in ("s1", "s2", "s3"):
            assert await sqlite.submission(submission_id) == await memory.submission(submission_id)
