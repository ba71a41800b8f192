"""Error events: one for each failed turn, which says whether the next turn would fail, too."""

import pytest
import trio
import trio.testing
from msgspec import structs

from support.world import World
from tiller_daemon.config import Retry
from tiller_daemon.models.base import ModelErrorKind
from tiller_daemon.models.scripted import CallPart, Failure, HangPart, Script, ScriptStep, TextPart
from tiller_protocol.events import ErrorRaised, TurnEnded
from tiller_protocol.ops import Interrupt
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


@pytest.mark.parametrize(("kind", "told"), [("authentication", True), ("server", False)])
async def test_a_key_that_does_not_fit_the_small_model_is_told_and_the_turn_is_fine(
    autojump_clock, start, kind: ModelErrorKind, told
):
    world, session_id = await start(DONE)
    title = ScriptStep(failures=(Failure(kind, "It said no."),))
    world.scripts["small"] = Script((DONE,), title=title)
    world.configuration = structs.replace(world.configuration, small_model="scripted/small")
    await world.say(session_id, "go")
    assert (await world.ended(session_id)).outcome == "completed"
    await trio.testing.wait_all_tasks_blocked()
    found = await errors(world, session_id)
    assert [(one.code, one.fatal) for one in found] == ([(kind, False)] if told else [])
    assert all("scripted/small" in one.message for one in found)
