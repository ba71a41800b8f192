"""Retries, over real HTTP: a provider sets limits, fails, breaks off, or can't be reached."""

import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
import trio

from e2e.provider import call_frames, check_all, config_for, said, text_frames
from e2e.test_attachments import tiller
from support.daemon import Daemon
from support.frontend import Frontend
from support.http_server import Answer, LocalServer, events, raw, serving, status
from tiller_daemon.turn.retry import REFUSED_S_FIRST
from tiller_protocol.events import ErrorRaised, Event, ItemCompleted, ItemDelta, StatusChanged
from tiller_protocol.items import AssistantMessage, ToolCall
from tiller_protocol.ops import Interrupt

Asking = Callable[..., AbstractAsyncContextManager[tuple[Frontend, LocalServer, str]]]

WORDS = ("one ", "two ", "three")


@pytest.fixture
def asking(daemon: Daemon, workspace: Path, nursery: trio.Nursery) -> Asking:
    """Lets a provider give these answers, and sends input to a new session."""

    @asynccontextmanager
    async def asking(
        *answers: Answer, limits: str = "", **settings: Any
    ) -> AsyncGenerator[tuple[Frontend, LocalServer, str]]:
        async with serving(*answers) as server:
            daemon.configure(config_for(server.base_url) + limits)
            frontend = await Frontend.connect(daemon, nursery)
            session_id = await frontend.session(workspace, model="local/m", **settings)
            await frontend.say(session_id)
            yield frontend, server, session_id
            await frontend.close()
            check_all(server)

    return asking


def _waits(frontend: Frontend, session_id: str) -> list[StatusChanged]:
    bodies = [event.body for event in frontend.events(session_id)]
    return [b for b in bodies if isinstance(b, StatusChanged) and b.status == "retry"]


def _items(frontend: Frontend, session_id: str) -> list[AssistantMessage | ToolCall]:
    bodies = [event.body for event in frontend.events(session_id)]
    items = [body.item for body in bodies if isinstance(body, ItemCompleted)]
    return [item for item in items if isinstance(item, AssistantMessage | ToolCall)]


async def _retry(frontend: Frontend, session_id: str, number: int = 1) -> StatusChanged:
    """Wait for the `number`-th announcement of a retry."""

    def wanted(event: Event) -> bool:
        return isinstance(event.body, StatusChanged) and event.body.status == "retry"

    event = await frontend.until(session_id, wanted, number)
    assert isinstance(event.body, StatusChanged)
    return event.body


@pytest.mark.promise("B46")
async def test_the_delay_that_the_provider_asks_for_is_waited(asking: Asking) -> None:
    """429 with `retry-after-ms` → that delay, then the same request again; the turn completes."""
    limit = status(429, {"error": {"message": "slow down"}}, retry_after_ms="30")
    async with asking(limit, said(*WORDS)) as (frontend, server, session_id):
        ended = await frontend.turn_ended(session_id)
        assert (ended.outcome, ended.last_message, ended.steps) == ("completed", "one two three", 1)
        (wait,) = _waits(frontend, session_id)
        assert (wait.attempt, wait.limit, wait.delay_s) == (2, 8, 0.03)
        assert "slow down" in wait.cause
        first, second = server.received
        assert first.data == second.data


@pytest.mark.promise("B46")
async def test_seconds_and_dates_are_understood(asking: Asking) -> None:
    """429 with `retry-after: 77` or a date in 77 s → that delay; an interrupt ends the delay."""
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=77), usegmt=True)
    limits = [status(429, retry_after=form) for form in ("77", date)]
    async with asking(*limits) as (frontend, server, session_id):
        assert (await _retry(frontend, session_id)).delay_s == 77
        await frontend.must(Interrupt(session_id))
        assert (await frontend.turn_ended(session_id)).outcome == "interrupted"
        await frontend.say(session_id, "again")
        delay_s = (await _retry(frontend, session_id, 2)).delay_s
        assert delay_s is not None
        assert 60 < delay_s <= 77
        await frontend.must(Interrupt(session_id))
        await frontend.turn_ended(session_id, 2)
        assert len(server.received) == 2


@pytest.mark.promise("B46")
async def test_a_longer_delay_than_allowed_ends_the_turn_and_says_when_to_come_back(
    asking: Asking,
) -> None:
    """`retry-after: 7200` → no second request; the turn fails and names the time."""
    limits = [status(429, {"error": {"message": "slow down"}}, retry_after="7200"), said("fine")]
    async with asking(*limits) as (frontend, server, session_id):
        ended = await frontend.turn_ended(session_id)
        assert ended.error is not None
        assert (ended.outcome, ended.error.code) == ("failed", "rate_limit")
        assert "Try again in 2 h 0 min, after 20" in ended.error.message
        assert (_waits(frontend, session_id), len(server.received)) == ([], 1)
        await frontend.say(session_id, "again")
        assert (await frontend.turn_ended(session_id, 2)).last_message == "fine"


@pytest.mark.promise("B46")
async def test_without_advice_the_delay_is_short_and_random(asking: Asking) -> None:
    """500, 502, 503, 529 without `retry-after` → the second attempt after 0.5 to 1 s."""
    codes = (500, 502, 503, 529)
    delays: set[float] = set()
    async with asking(*map(status, codes)) as (frontend, server, session_id):
        for number in range(1, len(codes) + 1):
            wait = await _retry(frontend, session_id, number)
            assert wait.attempt == 2
            assert wait.delay_s is not None
            assert 0.5 <= wait.delay_s <= 1.0
            delays.add(wait.delay_s)
            await frontend.must(Interrupt(session_id))
            await frontend.turn_ended(session_id, number)
            if number < len(codes):
                await frontend.say(session_id, "again")
        assert len(server.received) == len(delays) == len(codes)


LIMITS = """
[retry]
attempts = 3
delay_s = 0.01
retry_after_s = 5
total_s = 0.05
"""


@pytest.mark.promise("B46")
async def test_the_limits_of_the_configuration_hold(asking: Asking) -> None:
    """`[retry]` limits attempts, each delay, and the total delay of a request."""
    pause = status(429, {"error": {"message": "slow down"}}, retry_after_ms="30")
    too_long = status(429, {"error": {"message": "slow down"}}, retry_after="6")
    answers = *[status(500)] * 3, pause, pause, too_long
    async with asking(*answers, limits=LIMITS) as (frontend, server, session_id):
        for turn, requests in ((1, 3), (2, 5), (3, 6)):
            assert (await frontend.turn_ended(session_id, turn)).outcome == "failed"
            assert len(server.received) == requests
            if turn < 3:
                await frontend.say(session_id, "again")
        first, second, asked_for = _waits(frontend, session_id)
        assert [(w.attempt, w.limit) for w in (first, second)] == [(2, 3), (3, 3)]
        assert max(first.delay_s or 1, second.delay_s or 1) <= 0.01
        assert asked_for.delay_s == 0.03


@pytest.mark.promise("B46")
async def test_what_would_fail_again_is_not_tried_again(asking: Asking) -> None:
    """400, 401, 403 → no retry; the turn fails with a message, and a later turn works."""
    codes = (400, 401, 403)
    async with asking(*map(status, codes), said("fine")) as (frontend, server, session_id):
        for number in range(1, len(codes) + 1):
            ended = await frontend.turn_ended(session_id, number)
            assert ended.outcome == "failed"
            assert ended.error is not None
            assert ended.error.message
            raised = await frontend.until_body(session_id, ErrorRaised, number)
            assert raised.body == ErrorRaised(ended.error.code, ended.error.message, fatal=True)
            assert len(server.received) == number
            await frontend.say(session_id, "again")
        assert (await frontend.turn_ended(session_id, len(codes) + 1)).last_message == "fine"
        assert _waits(frontend, session_id) == []


BROKEN = {
    "before": (raw(b""), ""),
    "in the middle": (events(*text_frames(*WORDS)[:2], end=False), "one two "),
    "just before the end": (events(*text_frames(*WORDS)[:-2], end=False), "one two three"),
}


@pytest.mark.parametrize("where", BROKEN)
@pytest.mark.promise("B47")
async def test_a_stream_that_breaks_is_asked_for_again_in_the_same_turn(
    asking: Asking, where: str
) -> None:
    """The stream breaks before, in the middle of, or just before the end of a response → retried.

    Frontends can tell the discarded text from the text that counts.
    """
    broken, seen = BROKEN[where]
    async with asking(broken, said(*WORDS), said("on")) as (frontend, server, session_id):
        ended = await frontend.turn_ended(session_id)
        assert (ended.outcome, ended.last_message, ended.steps) == ("completed", "one two three", 1)
        pieces = [i for i in _items(frontend, session_id) if isinstance(i, AssistantMessage)]
        expected = [("discarded", seen)] * bool(seen) + [("completed", "one two three")]
        assert [(item.state, item.text) for item in pieces] == expected
        deltas = [e.body for e in frontend.events(session_id) if isinstance(e.body, ItemDelta)]
        for item in pieces:
            assert "".join(d.delta for d in deltas if d.item_id == item.id) == item.text
        await frontend.say(session_id, "go on")
        await frontend.turn_ended(session_id, 2)
        first, second, third = server.received
        assert first.data == second.data
        assert [m["content"] for m in third.body["messages"] if m["role"] == "assistant"] == [
            "one two three"
        ]


@pytest.mark.promise("B47")
async def test_a_call_in_a_stream_that_breaks_does_not_run(asking: Asking, workspace: Path) -> None:
    """A response with a whole call breaks just before its end → the call runs only once."""
    frames = call_frames(("bash", {"command": "echo x >> effects"}))
    broken = events(*frames[:-2], end=False)
    async with asking(broken, events(*frames), said("done")) as (frontend, server, session_id):
        assert (await frontend.turn_ended(session_id)).last_message == "done"
        assert (workspace / "effects").read_text() == "x\n"
        calls = [item for item in _items(frontend, session_id) if isinstance(item, ToolCall)]
        assert [(c.discarded, c.state) for c in calls] == [(True, "error"), (False, "completed")]
        results = [m for m in server.received[-1].body["messages"] if m["role"] == "tool"]
        assert len(results) == 1


@pytest.fixture
def taken_port() -> Generator[int]:
    """A port that refuses connections, and that only this test's server can take."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.mark.promise("B48")
async def test_a_server_that_is_not_there_is_waited_for(
    daemon: Daemon, workspace: Path, nursery: trio.Nursery, taken_port: int
) -> None:
    """Connection refused → waits without using up retries, until the server is there."""
    daemon.configure(config_for(f"http://127.0.0.1:{taken_port}/v1"))
    frontend = await Frontend.connect(daemon, nursery)
    session_id = await frontend.session(workspace, model="local/m")
    await frontend.say(session_id)
    wait = await _retry(frontend, session_id)
    assert (wait.attempt, wait.limit) == (2, None)
    assert wait.delay_s == pytest.approx(REFUSED_S_FIRST, abs=0.5)
    assert str(taken_port) in wait.cause
    async with serving(said("here"), port=taken_port) as server:
        ended = await frontend.turn_ended(session_id)
        assert (ended.outcome, ended.last_message) == ("completed", "here")
        assert [w.attempt for w in _waits(frontend, session_id)] == [2]
        assert len(check_all(server)) == 1
        await frontend.close()


@pytest.mark.promise("B48")
async def test_how_long_a_server_is_waited_for_is_configured(
    daemon: Daemon, workspace: Path, nursery: trio.Nursery, taken_port: int
) -> None:
    """`outage_s` shorter than the first delay → no wait; the turn fails and says why."""
    url = f"http://127.0.0.1:{taken_port}/v1"
    daemon.configure(f"{config_for(url)}[retry]\noutage_s = {REFUSED_S_FIRST - 1}\n")
    frontend = await Frontend.connect(daemon, nursery)
    session_id = await frontend.session(workspace, model="local/m")
    await frontend.say(session_id)
    ended = await frontend.turn_ended(session_id)
    assert ended.error is not None
    assert (ended.outcome, ended.error.code) == ("failed", "refused")
    assert _waits(frontend, session_id) == []
    await frontend.close()


async def test_exec_does_not_wait_beyond_the_limit_says_until_when_and_exits_with_1(
    daemon: Daemon, workspace: Path
) -> None:
    """429 with a `retry-after` of 30 hours → one request, the provider's words, and the time."""
    limit = status(429, {"error": {"message": "slow down"}}, retry_after="108000")
    async with serving(limit, limit) as server:
        daemon.configure(config_for(server.base_url))
        before = datetime.now(UTC)
        done = await tiller(daemon, "exec", "go", cwd=workspace)
        assert done.returncode == 1
        assert done.stdout == b""
        told = done.stderr.decode()
        assert "slow down. Try again in 1 d 6 h, after " in told
        until = datetime.fromisoformat(told.partition("6 h, after ")[2][:16]).replace(tzinfo=UTC)
        assert abs(until - before - timedelta(hours=30)) < timedelta(minutes=5)
        assert len(server.received) == 1
        again = await tiller(daemon, "exec", "--json", "go", cwd=workspace)
        assert again.returncode == 1
        assert b'"code":"rate_limit"' in again.stdout.replace(b" ", b"")
        assert len(server.received) == 2
