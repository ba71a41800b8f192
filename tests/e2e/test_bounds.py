"""G12: every queue and buffer of the daemon has a bound, whatever a frontend or a tool does."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from e2e.clients import Tillers, deaf_subscribers
from e2e.gates import Gate
from e2e.words import always, bash, calls, calls_in, said_in, text
from support.daemon import Daemon
from support.frontend import Frontend
from support.strangers import Flood, flood
from tiller_daemon.models.scripted import ReasoningPart, ScriptStep, TextPart
from tiller_daemon.processes.capture import SPILL_BYTES_MAX
from tiller_daemon.session.inputs.input_queue import QUEUED_INPUTS_MAX
from tiller_daemon.transport.nng import REFUSALS_MAX
from tiller_daemon.turn.call import LIVE_OUTPUT_CHARS_MAX
from tiller_protocol.answers import Created, DaemonStatusResult, ReplayResult
from tiller_protocol.codec import MESSAGE_BYTES_MAX, Encoding
from tiller_protocol.events import ItemDelta
from tiller_protocol.ops import DaemonStatus, Replay, SessionCreate, SessionDelete, UserInput

pytestmark = pytest.mark.whole_start

EVENTS = int(os.environ.get("TEST_EVENTS", "50000"))
"""How many events a slow frontend misses; `TEST_EVENTS=100000` is the number in B54."""

PARTS = 1_000
PART_BYTES = 3_000

RSS_GROWTH_MAX = 8 * 1024 * 1024
"""The events have several times as many bytes; 4 MB are kept for slow frontends."""

POLL_S = 0.02
"""Time between two looks at the memory of a daemon at work."""

DELAY_S_MAX = 1.0
"""How long nine in ten other requests may wait meanwhile, on a busy machine."""


@pytest.mark.promise("G12", "B54")
@pytest.mark.nightly
async def test_a_slow_frontend_costs_bounded_memory_and_nobody_elses_time(
    new_daemon: Callable[[], Daemon], workspace: Path, nursery: trio.Nursery, tillers: Tillers
) -> None:
    """A slow frontend misses 100,000 events → memory stays flat, others see no delay.

    When it continues, it catches up by replay. Other subscribers never read at all.
    """
    daemon = new_daemon()
    daemon.start()
    parts = [TextPart("t" * PART_BYTES), ReasoningPart("r" * PART_BYTES)] * (PARTS // 2)
    daemon.play("loud", ScriptStep(parts=tuple(parts), repeat=True))
    frontend = await Frontend.connect(daemon, nursery)
    followed = await frontend.session(workspace, always("quiet"))
    await frontend.say(followed)
    await frontend.turn_ended(followed)
    slow = await tillers(daemon, "attach", "--json", followed)
    await slow.until(frontend.events(followed)[-1].seq)
    slow.stop()
    delays: list[float] = []
    with deaf_subscribers(daemon, 3):
        passed = await _be_loud(frontend, workspace, delays)
        rss = daemon.rss_bytes
        turns = 1
        while passed < EVENTS:
            passed += await _be_loud(frontend, workspace, delays)
            turns += 1
            await frontend.say(followed)
            await frontend.turn_ended(followed, turns)
        grown = daemon.rss_bytes - rss
    assert grown < RSS_GROWTH_MAX
    assert _of_nine_in_ten(delays) < DELAY_S_MAX
    slow.go_on()
    await slow.until(frontend.events(followed)[-1].seq)
    assert slow.seen == await frontend.log(followed)
    await frontend.close()


async def _be_loud(frontend: Frontend, workspace: Path, delays: list[float]) -> int:
    """Let a session produce many events, then delete it; return the number of events."""
    created = await frontend.must(SessionCreate(str(workspace), model="scripted/loud"))
    assert isinstance(created, Created)
    await frontend.must(UserInput(created.session_id, "go"))
    at_work = True
    while at_work:
        began = time.monotonic()
        at_work = (await _status(frontend)).turns_running > 0
        delays.append(time.monotonic() - began)
    replay = await frontend.must(Replay(created.session_id, limit=1))
    assert isinstance(replay, ReplayResult)
    await frontend.must(SessionDelete(created.session_id))
    return replay.head


def _of_nine_in_ten(delays: list[float]) -> float:
    return sorted(delays)[len(delays) * 9 // 10]


async def _status(frontend: Frontend) -> DaemonStatusResult:
    status = await frontend.must(DaemonStatus())
    assert isinstance(status, DaemonStatusResult)
    return status


@pytest.mark.promise("G12")
async def test_a_full_queue_hands_the_input_back(frontend: Frontend, workspace: Path) -> None:
    """More input than may wait → `overloaded` with the input; all accepted input is delivered."""
    gate = Gate(workspace)
    steps = (calls(bash(gate.command)), always("ok"))
    session_id = await frontend.session(workspace, *steps, follow_ups="all")
    await frontend.say(session_id)
    await gate.reached()
    for number in range(QUEUED_INPUTS_MAX):
        await frontend.say(session_id, f"{number}", delivery="queue")
    for delivery in ("queue", "steer", "auto"):
        refused = await frontend.refused(UserInput(session_id, "too much", delivery=delivery))
        assert (refused.code, refused.data["input"]["text"]) == ("overloaded", "too much")
    gate.open()
    await frontend.turn_ended(session_id)
    said = said_in(frontend.requests(session_id)[-1].items)
    assert said == ["go", *(f"{number}" for number in range(QUEUED_INPUTS_MAX))]


FLOOD_BYTES = int(os.environ.get("TEST_FLOOD_BYTES", "80_000_000"))
"""How much a tool prints; `TEST_FLOOD_BYTES=1_000_000_000` is the amount in B59."""

BINARY_BYTES = FLOOD_BYTES // 8

FLOODS_BYTES = SPILL_BYTES_MAX + 1_000_000
FLOODS_AT_ONCE = 3

FLOOD_RSS_GROWTH_MAX = 16 * 1024 * 1024
MODEL_SEES_BYTES_MAX = 52 * 1024
"""Head and tail of 50 KiB together, and the words between them."""

FLOODS = {
    "lines, then no newline": (
        f"yes | head -c {FLOOD_BYTES // 2}; head -c {FLOOD_BYTES // 2} /dev/zero | tr '\\0' x"
    ),
    "lines": f"yes | head -c {FLOOD_BYTES}",
    "never a newline": f"head -c {FLOOD_BYTES} /dev/zero | tr '\\0' x",
    "binary": f"head -c {BINARY_BYTES} /dev/urandom",
}

ONE_KIND = ("lines", "never a newline")
"""Floods that are the halves of another one."""


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.nightly] if kind in ONE_KIND else [])
        for kind in FLOODS
    ],
)
@pytest.mark.promise("G12", "B59")
async def test_a_flood_of_output_takes_bounded_memory_and_is_cut_and_spilled(
    frontend: Frontend, workspace: Path, daemon: Daemon, kind: str
) -> None:
    """A tool prints 1 GB, or binary, or never a newline → bounded memory, cut, a spill file.

    Others are answered meanwhile.
    """
    session_id = await frontend.session(workspace, calls(bash(FLOODS[kind])), text("done"))
    before = daemon.rss_bytes
    await frontend.say(session_id)
    highest = 0
    delays: list[float] = []
    while (await _status(frontend)).turns_running:
        highest = max(highest, daemon.rss_bytes)
        began = time.monotonic()
        await _status(frontend)
        delays.append(time.monotonic() - began)
        await trio.sleep(POLL_S)
    assert highest - before < FLOOD_RSS_GROWTH_MAX
    assert _of_nine_in_ten(delays) < DELAY_S_MAX
    await frontend.turn_ended(session_id)
    (call,) = calls_in(frontend.requests(session_id)[-1].items)
    assert (call.state, call.exit_status) == ("completed", 0)
    assert len(call.output.encode()) < MODEL_SEES_BYTES_MAX
    assert call.spill_path in call.output
    spilled = os.stat(call.spill_path)  # noqa: PTH116 - quick
    assert spilled.st_mode & 0o777 == 0o600
    # Of random bytes, the file keeps those that are text.
    least, most = (BINARY_BYTES // 2, BINARY_BYTES) if kind == "binary" else (FLOOD_BYTES,) * 2
    assert min(SPILL_BYTES_MAX, least) <= spilled.st_size <= min(SPILL_BYTES_MAX, most)
    shown = [e.body for e in frontend.events(session_id) if isinstance(e.body, ItemDelta)]
    live = sum(len(body.delta.encode()) for body in shown if body.channel == "output")
    assert live < 4 * LIVE_OUTPUT_CHARS_MAX


@pytest.mark.promise("G12", "B59")
@pytest.mark.nightly
async def test_floods_at_the_same_time_take_bounded_memory_each(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """`scripts/soak/flood.py` does this with ten floods of 1 GiB, and measures others' delay."""
    flood = bash(f"yes | head -c {FLOODS_BYTES}")
    sessions = [
        await frontend.session(workspace, calls(flood), text("done")) for _ in range(FLOODS_AT_ONCE)
    ]
    before = daemon.rss_bytes
    for session_id in sessions:
        await frontend.say(session_id)
    highest = 0
    while (await _status(frontend)).turns_running:
        highest = max(highest, daemon.rss_bytes)
    assert highest - before < FLOODS_AT_ONCE * FLOOD_RSS_GROWTH_MAX
    for session_id in sessions:
        await frontend.turn_ended(session_id)
        (call,) = frontend.completed_calls(session_id)
        assert f"the first {SPILL_BYTES_MAX // 2**20} MiB are in" in call.output
        assert os.stat(call.spill_path).st_size == SPILL_BYTES_MAX  # noqa: PTH116 - quick


STRANGERS: dict[str, tuple[int, int, Encoding, bool]] = {
    "many small ones": (50_000, 50, "msgpack", True),
    "many small ones, answers unread": (50_000, 50, "msgpack", False),
    "some larger ones in JSON": (1_000, 64 * 1024, "json", False),
    "the largest": (20, MESSAGE_BYTES_MAX - 1024, "msgpack", True),
    "the largest in JSON": (20, MESSAGE_BYTES_MAX - 1024, "json", False),
}

STRANGERS_RSS_GROWTH_MAX = 16 * 1024 * 1024
ANSWERS_MIN = 5
"""How many answers the frontend gets beside floods. A starved frontend gets one for each flood."""

LARGEST_AT_ONCE = 4
"""Submissions that nng may hold for a stranger who is cut off and connects again."""


LENIENT = ("many small ones", "the largest")
"""Kinds of strangers with a worse one of the same sizes."""


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.nightly] if kind in LENIENT else [])
        for kind in STRANGERS
    ],
)
@pytest.mark.promise("G12")
async def test_strangers_with_a_wrong_token_cost_nothing_that_grows(
    frontend: Frontend, daemon: Daemon, kind: str
) -> None:
    """The daemon cuts them off, again and again, and answers a frontend meanwhile.

    `scripts/soak/strangers.py` does this for longer, and measures the delay of others.
    """
    count, size, encoding, reads = STRANGERS[kind]
    done: list[Flood] = []
    highest = before = daemon.rss_bytes
    answered = 0

    async def answer() -> None:
        nonlocal answered, highest
        while True:
            await _status(frontend)
            answered += 1
            highest = max(highest, daemon.rss_bytes)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer)
        # On a busy machine, a flood is over before the frontend gets to run.
        while not done or answered < ANSWERS_MIN:
            done.append(await trio.to_thread.run_sync(_flood, daemon, count, size, encoding, reads))
        nursery.cancel_scope.cancel()
    for flooded in done:
        assert flooded.sent >= count
        assert flooded.connections > 1
        assert flooded.answers <= flooded.connections * REFUSALS_MAX
    assert len(done) < ANSWERS_MIN
    larger = LARGEST_AT_ONCE * size
    assert highest - before < STRANGERS_RSS_GROWTH_MAX + larger
    assert (await _status(frontend)).rss_bytes - before < STRANGERS_RSS_GROWTH_MAX + size


def _flood(daemon: Daemon, count: int, size: int, encoding: Encoding, reads: bool) -> Flood:  # noqa: FBT001
    return flood(daemon.places.runtime, count, size, encoding, reads=reads)
