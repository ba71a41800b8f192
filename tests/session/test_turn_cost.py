"""A turn's cost does not grow with the session.

The tests count function calls, which do not depend on the machine's load.
"""

import sys
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import CodeType, FrameType

import pytest
import trio
import trio.testing
from msgspec import structs

from support.world import World
from tiller_daemon.models.base import ModelRequest
from tiller_daemon.models.dialects.anthropic_messages import request as messages
from tiller_daemon.models.dialects.openai_chat import request as chat
from tiller_daemon.models.dialects.openai_responses import request as responses
from tiller_daemon.models.scripted import CallPart, ScriptedUsage, ScriptStep, TextPart
from tiller_daemon.session.loaded_sessions import UNLOAD_CHECK_S
from tiller_daemon.session.turns import idle_histories
from tiller_daemon.session.turns.idle_histories import IDLE_S_MAX, SESSIONS_MAX
from tiller_daemon.turn.history import History
from tiller_protocol.events import TurnEnded
from tiller_protocol.ops import Revert, SessionDelete

SHORT, LONG = 5, 150
"""Earlier turns in a session; each has a call, its output and two answers."""

SPREAD = 5
"""How many function calls two turns of the same kind may differ by."""

COUNTED = ("/models/dialects/", "/models/history_", "/turn/history", "/turn/tokens")

DIALECTS: dict[str, Callable[[ModelRequest], object]] = {
    "chat": chat.build_body,
    "responses": responses.build_body,
    "messages": messages.build_body,
}


@contextmanager
def counted_calls() -> Generator[Counter[str]]:
    """Count the calls of functions that convert, encode or count history, and what these call."""
    calls: Counter[str] = Counter()
    wanted: dict[CodeType, bool] = {}

    def profile(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if code not in wanted:
            wanted[code] = any(part in code.co_filename for part in COUNTED)
        if wanted[code] and event in ("call", "c_call"):
            calls[code.co_qualname if event == "call" else getattr(argument, "__name__", "")] += 1

    sys.setprofile(profile)
    try:
        yield calls
    finally:
        sys.setprofile(None)


async def turns(world: World, session_id: str, first: int, last: int) -> None:
    for number in range(first, last + 1):
        await world.say(session_id, f"go {number}")
        await world.ended(session_id, number)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.nightly
async def test_a_turn_of_a_long_session_costs_what_one_of_a_short_session_does(
    autojump_clock, start, dialect
):
    look = ScriptStep((TextPart("so"), CallPart("look")), usage=ScriptedUsage(100, 0, 9))
    done = ScriptStep((TextPart("done"),), usage=ScriptedUsage(100, 0, 9))
    world, session_id = await start(*(look, done) * (LONG + 2))
    stream, bodies = world.model.stream, []

    def encoded(request: ModelRequest):
        if request.purpose == "turn":
            bodies.append(DIALECTS[dialect](request))
        return stream(request)

    world.model.stream = encoded
    await turns(world, session_id, 1, SHORT)
    with counted_calls() as of_short:
        await turns(world, session_id, SHORT + 1, SHORT + 1)
    await turns(world, session_id, SHORT + 2, LONG)
    with counted_calls() as of_long:
        await turns(world, session_id, LONG + 1, LONG + 1)
    assert len(bodies) == 2 * (LONG + 1)
    assert of_long.total() - of_short.total() <= SPREAD, of_long - of_short


@pytest.mark.promise("G12")
async def test_histories_rest_for_a_while_and_only_those_of_a_few_sessions(autojump_clock, start):
    world, first = await start(ScriptStep((TextPart("done"),), repeat=True))
    resting = world.services.histories
    await turns(world, first, 1, 1)
    await trio.testing.wait_all_tasks_blocked()
    assert len(resting) == 1
    for _ in range(SESSIONS_MAX + 2):
        await turns(world, await world.session(), 1, 1)
    await trio.testing.wait_all_tasks_blocked()
    assert len(resting) == SESSIONS_MAX
    deleted = await world.session()
    await turns(world, deleted, 1, 1)
    await world.must(SessionDelete(deleted))
    assert len(resting) == SESSIONS_MAX - 1
    await trio.sleep(IDLE_S_MAX + 2 * UNLOAD_CHECK_S)
    assert len(resting) == 0
    # Without it the next turn sends the same.
    await turns(world, first, 2, 2)
    texts = [getattr(item, "text", "") for item in world.model.requests[-1].items]
    assert texts == ["go 1", "done", "go 2"]


@pytest.mark.promise("G12")
async def test_histories_that_rest_have_a_limit_in_bytes(autojump_clock, start, monkeypatch):
    # The real limit is more than fits into a context.
    monkeypatch.setattr(idle_histories, "BYTES_MAX", 10_000)
    world, session_id = await start(ScriptStep((TextPart("done"),), repeat=True))
    world.model.stream = _with_body(world)
    resting = world.services.histories
    for session in (session_id, await world.session(), await world.session()):
        await world.say(session, "x" * 4_000)
        await world.ended(session)
        await trio.testing.wait_all_tasks_blocked()
    assert len(resting) == 2
    assert resting.take(session_id) is None


async def test_what_rests_does_not_outlive_a_revert(autojump_clock, start):
    """After a revert history is shorter, so values cached from it are no longer valid."""
    world, session_id = await start(ScriptStep((TextPart("done"),), repeat=True))
    world.model.stream = _with_body(world)
    await turns(world, session_id, 1, 3)
    turn_ids = [e.turn_id for e in await world.events(session_id) if isinstance(e.body, TurnEnded)]
    await world.must(Revert(session_id, turn_ids[1] or ""))
    await world.say(session_id, "go elsewhere")
    await world.ended(session_id, 4)
    request = world.model.requests[-1]
    assert [getattr(item, "text", "") for item in request.items] == ["go 1", "done", "go elsewhere"]
    assert chat.build_body(request) == chat.build_body(structs.replace(request, history_cache=None))
    nothing_kept = History(request.items)
    assert request.items == nothing_kept.for_request()


def _with_body(world: World):
    stream = world.model.stream

    def encoded(request: ModelRequest):
        chat.build_body(request)
        return stream(request)

    return encoded
