"""How long a session keeps the loans of frontends, on a virtual clock."""

import trio

from tiller_daemon.models.scripted import CallPart, ScriptStep, TextPart
from tiller_protocol.answers import CatalogResult
from tiller_protocol.lending import LEASE_S, LentServer, SessionLend
from tiller_protocol.ops import Catalog, SessionDelete

DONE = ScriptStep(parts=(TextPart("done"),))
CHECK_S = 31.0
"""A little more than the time between two checks for expired loans."""


def working(seconds: float) -> ScriptStep:
    return ScriptStep(parts=(CallPart("change", arguments={"seconds": seconds}),))


def lend(session_id: str, *names: str, lender: str = "me") -> SessionLend:
    servers = tuple(LentServer(name, url="http://127.0.0.1:9/") for name in names)
    return SessionLend(session_id, lender, servers)


async def lent(world, session_id: str) -> list[str]:
    """Return the servers that are lent to a session."""
    catalog = await world.must(Catalog(session_id=session_id))
    assert isinstance(catalog, CatalogResult)
    return [server.name for server in catalog.servers]


async def test_a_loan_outlives_an_idle_session_but_not_its_lease(autojump_clock, start):
    world, session_id = await start(DONE)
    await world.must(lend(session_id, "a"))
    await trio.sleep(LEASE_S - 1)  # the session was unloaded meanwhile
    assert world.supervisor.loaded == 0
    assert await lent(world, session_id) == ["a"]
    await world.must(lend(session_id, "a", "b"))
    await trio.sleep(LEASE_S - 1)
    assert await lent(world, session_id) == ["a", "b"]
    await trio.sleep(CHECK_S)
    assert await lent(world, session_id) == []


async def test_what_is_taken_back_stays_until_the_running_turn_has_ended(autojump_clock, start):
    world, session_id = await start(working(50), DONE)
    await world.must(lend(session_id, "mine"))
    await world.must(lend(session_id, "yours", lender="you"))
    await world.say(session_id, "go")
    await world.must(lend(session_id, lender="you"))
    await trio.sleep(CHECK_S)
    assert await lent(world, session_id) == ["mine", "yours"]
    await world.ended(session_id)
    await trio.sleep(CHECK_S)
    assert await lent(world, session_id) == ["mine"]


async def test_a_loan_ends_with_its_session_and_is_in_no_event(autojump_clock, start):
    world, session_id = await start(DONE)
    before = await world.events(session_id)
    await world.must(lend(session_id, "a"))
    assert await world.events(session_id) == before
    await world.must(lend(session_id))
    assert await lent(world, session_id) == []
    await world.must(lend(session_id, "a"))
    await world.must(SessionDelete(session_id))
    assert (await world.refused(lend(session_id, "a"))).code == "not_found"
    await world.kill()
