"""Error events: one for each failed turn, which says whether the next turn would fail, too."""

from collections.abc import Generator
from contextlib import contextmanager

import pytest
import trio
import trio.testing
from msgspec import structs

from support.memory_log import MemoryLog
from support.world import World
from tiller_daemon.config import Retry
from tiller_daemon.models.base import ModelErrorKind
from tiller_daemon.models.scripted import CallPart, Failure, HangPart, Script, ScriptStep, TextPart
from tiller_daemon.store.base import Batch, LogError
from tiller_protocol.answers import Rejected, ReplayResult, SessionListResult, SessionResult
from tiller_protocol.events import (
    ErrorRaised,
    Event,
    ItemCompleted,
    StatusChanged,
    TurnEnded,
    WarningRaised,
)
from tiller_protocol.items import Notice, ToolCall
from tiller_protocol.ops import Interrupt, Replay, SessionGet, SessionList
from tiller_protocol.settings import TurnOverrides

DONE = ScriptStep(parts=(TextPart("done"),), repeat=True)


async def errors(world: World, session_id: str) -> list[ErrorRaised]:
    return [e.body for e in await world.events(session_id) if isinstance(e.body, ErrorRaised)]


@pytest.mark.parametrize(
    ("kind", "fatal"),
    [
        ("authentication", True),
        ("quota", True),
        ("not_found", True),
        ("bad_request", True),
        ("content_policy", False),
        ("rate_limit", False),
        ("server", False),
    ],
)
async def test_a_failed_request_is_an_error_that_says_whether_the_user_must_act(
    autojump_clock, start, kind: ModelErrorKind, fatal
):
    failures = tuple(Failure(kind, "It said no.") for _ in range(Retry().attempts))
    world, session_id = await start(ScriptStep(failures=failures), DONE)
    await world.say(session_id, "go")
    ended = await world.ended(session_id)
    assert ended.error is not None
    (raised,) = await errors(world, session_id)
    assert (raised.code, raised.fatal) == (kind, fatal)
    assert (raised.code, raised.message) == (ended.error.code, ended.error.message)
    told = [type(e.body) for e in await world.events(session_id) if e.turn_id]
    assert told.index(ErrorRaised) < told.index(TurnEnded)


async def test_what_the_user_or_a_limit_ended_is_no_error(autojump_clock, start):
    look = ScriptStep(parts=(CallPart("look", arguments={"say": "x"}),), repeat=True)
    world, session_id = await start(look)
    await world.say(session_id, "go", overrides=TurnOverrides(max_steps=2))
    assert (await world.ended(session_id)).outcome == "limit_reached"
    world.scripts["s"] = Script((ScriptStep(parts=(HangPart(),), repeat=True),))
    await world.say(session_id, "go")
    await trio.testing.wait_all_tasks_blocked()
    await world.must(Interrupt(session_id))
    assert (await world.ended(session_id, 2)).outcome == "interrupted"
    assert await errors(world, session_id) == []


async def test_a_turn_that_could_not_be_stored_says_so_once_it_can(autojump_clock, start):
    """No event claims that the daemon stopped, since it did not."""
    look = ScriptStep(parts=(CallPart("look", arguments={"seconds": 50}),))
    world, session_id = await start(look, DONE)
    await world.say(session_id, "go")
    await world.until(session_id, lambda event: getattr(event.body, "state", "") == "running")
    world.log.fail_next = "full"
    await trio.sleep(100)
    await world.say(session_id, "again")
    await world.ended(session_id, 2)
    first = await world.until_body(session_id, TurnEnded)
    assert isinstance(first.body, TurnEnded)
    assert first.body.error is not None
    (raised,) = await errors(world, session_id)
    assert (raised.code, raised.fatal) == ("store", False)
    assert "could not be stored: planned fault" in raised.message
    assert (first.body.outcome, first.body.error.message) == ("interrupted", raised.message)


async def test_a_turn_is_known_to_have_ended_while_its_end_can_not_be_stored(autojump_clock, start):
    """Nobody is left waiting, although no event can say that the turn has ended."""
    look = ScriptStep(parts=(CallPart("look", arguments={"seconds": 50}),))
    world, session_id = await start(look, DONE)
    await world.say(session_id, "go")
    await world.until(session_id, lambda event: getattr(event.body, "state", "") == "running")
    with full(world.log):
        await trio.sleep(100)
        events = await world.events(session_id)
        answer = await world.ask(Replay(session_id, after=events[-1].seq))
        assert isinstance(answer, Rejected)
        assert (answer.code, answer.data) == ("unavailable", {"turn_ended": True})
        assert answer.message.endswith("its end could not be stored: the disk is full")
        now = await world.must(SessionGet(session_id))
        listed = await world.must(SessionList())
        assert isinstance(now, SessionResult)
        assert isinstance(listed, SessionListResult)
        assert now.snapshot.turn is not None
        assert (now.snapshot.status, listed.sessions[0].status) == ("idle", "idle")
    again = await world.must(Replay(session_id, after=events[-1].seq))
    assert isinstance(again, ReplayResult)
    assert isinstance(again.events[-2].body, TurnEnded)
    assert again.events[-1].body == StatusChanged("idle")


async def test_the_model_is_told_that_the_log_failed_not_that_the_daemon_stopped(
    autojump_clock, start
):
    look = ScriptStep(parts=(CallPart("look", arguments={"seconds": 50}),))
    world, session_id = await start(look, DONE)
    await world.say(session_id, "go")
    await world.until(session_id, lambda event: getattr(event.body, "state", "") == "running")
    with full(world.log):
        await trio.sleep(100)
    await world.say(session_id, "again")
    await world.ended(session_id, 2)
    completed = [e.body.item for e in await world.events(session_id) if is_completed(e)]
    (call,) = [item for item in completed if isinstance(item, ToolCall)]
    (notice,) = [item for item in completed if isinstance(item, Notice)]
    assert call.output.startswith("The daemon could not write its log while this call was running")
    assert notice.text.startswith("The daemon could not write its log during this turn")


async def test_a_turn_whose_last_events_could_not_be_stored_says_so(autojump_clock, start):
    """The turn had ended in memory only, so it is closed again, for the true reason."""
    world, session_id = await start(DONE)
    append = world.log.append

    async def append_unless_ended(batch: Batch) -> None:
        if any(b"turn_ended" in row.body for row in batch.events):
            world.log.append = append
            world.log.fail_next = "full"
        await append(batch)

    world.log.append = append_unless_ended
    await world.say(session_id, "go")
    await trio.sleep(100)
    await world.say(session_id, "again")
    await world.ended(session_id, 2)
    first = await world.until_body(session_id, TurnEnded)
    assert first.body.error is not None
    assert (first.body.outcome, first.body.error.code) == ("interrupted", "store")


@contextmanager
def full(log: MemoryLog) -> Generator[None]:
    """Let every write fail, as on a full disk."""

    async def fail() -> None:
        raise LogError("full", "the disk is full")

    before, log.before_commit = log.before_commit, fail
    yield
    log.before_commit = before


def is_completed(event: Event) -> bool:
    return isinstance(event.body, ItemCompleted)


@pytest.mark.parametrize("kind", ["authentication", "server"])
async def test_a_failure_of_the_small_model_is_told_and_the_turn_is_fine(
    autojump_clock, start, kind: ModelErrorKind
):
    world, session_id = await start(DONE)
    title = ScriptStep(failures=(Failure(kind, "It said no."),))
    world.scripts["small"] = Script((DONE,), title=title)
    world.configuration = structs.replace(world.configuration, small_model="scripted/small")
    await world.say(session_id, "go")
    assert (await world.ended(session_id)).outcome == "completed"
    warning = (await world.until_body(session_id, WarningRaised)).body
    assert warning.code == "no_title"
    assert "It said no." in warning.message
    assert await errors(world, session_id) == []
