"""G12: finished objects are freed at once, as a full collection may be hours away (see `app`)."""

import gc
from collections import Counter
from collections.abc import Callable, Generator

import pytest
import trio
from msgspec import structs

from support.world import World
from tiller_daemon.config import Agent
from tiller_daemon.mcp.servers import OfferedTools
from tiller_daemon.models.scripted import CallPart, Script, ScriptStep, TextPart
from tiller_daemon.session.actor import Session
from tiller_daemon.session.loaded_sessions import UNLOAD_AFTER_S, UNLOAD_CHECK_S
from tiller_daemon.session.sub_agents.owner import Owner
from tiller_daemon.session.turns.active_turn import ActiveTurn
from tiller_protocol.lending import LentServer, SessionLend
from tiller_protocol.ops import Interrupt, SessionDelete
from tiller_protocol.snapshot import Snapshot

LOOK = ScriptStep(parts=(CallPart("look"),))
DONE = ScriptStep(parts=(TextPart("done"),), repeat=True)
SLOW = ScriptStep(parts=(CallPart("look", arguments={"seconds": 50}),))


@pytest.fixture
def alive() -> Generator[Callable[[type], int]]:
    """Yield a function that counts this test's objects of a type; collection is off meanwhile."""
    gc.collect()
    gc.disable()
    before = Counter(type(one) for one in gc.get_objects())

    def count(kind: type) -> int:
        return sum(type(one) is kind for one in gc.get_objects()) - before[kind]

    yield count
    gc.enable()


@pytest.mark.promise("G12")
async def test_a_turn_is_freed_when_it_has_ended(autojump_clock, start, alive):
    world, session_id = await start(LOOK, DONE)
    for number in range(1, 4):
        await world.say(session_id, "go")
        await world.ended(session_id, number)
    await trio.sleep(100)
    assert (alive(ActiveTurn), alive(Owner)) == (0, 0)


@pytest.mark.promise("G12")
async def test_a_turn_is_freed_when_it_was_interrupted(autojump_clock, start, alive):
    world, session_id = await start(SLOW)
    await world.say(session_id, "go")
    await trio.sleep(1)
    assert alive(ActiveTurn) == 1
    await world.must(Interrupt(session_id))
    await world.ended(session_id)
    await trio.sleep(100)
    assert (alive(ActiveTurn), alive(Owner)) == (0, 0)


@pytest.mark.promise("G12")
async def test_the_turn_of_a_sub_agent_is_freed_with_that_of_its_owner(
    autojump_clock, nursery, alive
):
    task = CallPart("task", arguments={"prompt": "do it", "agent": "worker"})
    world = await World.start(
        nursery,
        {"boss": Script((ScriptStep(parts=(task, task)), DONE)), "worker": Script((LOOK, DONE))},
    )
    worker = Agent(description="works", model="scripted/worker", prompt="You work.")
    world.configuration = structs.replace(world.configuration, agents={"worker": worker})
    session_id = await world.session(approve="always")
    await world.say(session_id, "go")
    assert (await world.ended(session_id)).last_message == "done"
    assert len(world.published) == 3
    await trio.sleep(100)
    assert (alive(ActiveTurn), alive(Owner)) == (0, 0)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("how", ["deleted", "unloaded"])
@pytest.mark.promise("G12")
async def test_a_session_is_freed_when_it_is_put_out_of_memory(autojump_clock, start, alive, how):
    world, session_id = await start(LOOK, DONE)
    await world.say(session_id, "go")
    await world.ended(session_id)
    assert (alive(Session), alive(Snapshot)) == (1, 1)
    if how == "deleted":
        await world.must(SessionDelete(session_id))
    await trio.sleep(UNLOAD_AFTER_S + 2 * UNLOAD_CHECK_S)
    assert (alive(Session), alive(Snapshot)) == (0, 0)


@pytest.mark.parametrize("how", ["deleted", "unloaded"])
@pytest.mark.promise("G12")
async def test_the_tools_of_lent_servers_are_freed_with_the_session(
    autojump_clock, start, alive, how
):
    world, session_id = await start(DONE)
    before = alive(OfferedTools)
    await world.must(SessionLend(session_id, "me", (LentServer("a", url="http://127.0.0.1:9/"),)))
    await world.say(session_id, "go")
    await world.ended(session_id)
    assert alive(OfferedTools) == before + 1
    if how == "deleted":
        await world.must(SessionDelete(session_id))
    await trio.sleep(UNLOAD_AFTER_S + 2 * UNLOAD_CHECK_S)
    assert alive(OfferedTools) == before
