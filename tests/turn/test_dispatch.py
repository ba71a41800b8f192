"""Which calls are begun in which order; what runs beside what is in test_early_calls."""

from functools import partial

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.deterministic import run_from_seed
from support.world import World
from tiller_daemon.models.scripted import CallPart, Script, ScriptStep, TextPart
from tiller_protocol.events import RequestOpened
from tiller_protocol.ops import Interrupt

TEXT = ScriptStep(parts=(TextPart("done"),))


async def _opened(count: int) -> list[tuple[str, ...]]:
    """What the requests are about that `count` calls of one response open, in their order."""
    names = [f"place{number}" for number in range(count)]
    parts = tuple(CallPart("peek", arguments={"say": name}) for name in names)
    async with trio.open_nursery() as nursery:
        world = await World.start(nursery, {"s": Script((ScriptStep(parts=parts), TEXT))})
        session_id = await world.session()
        await world.say(session_id, "go")
        await world.until_body(session_id, RequestOpened, count)
        await world.must(Interrupt(session_id))
        await world.ended(session_id)
        bodies = [event.body for event in world.published[session_id]]
        nursery.cancel_scope.cancel()
    return [body.request.subjects for body in bodies if isinstance(body, RequestOpened)]


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 8), st.integers(0, 2**32 - 1))
def test_requests_of_calls_beside_each_other_open_in_call_order(count: int, seed: int) -> None:
    opened = run_from_seed(partial(_opened, count), seed)
    assert opened == [(f"place{number}",) for number in range(count)]
