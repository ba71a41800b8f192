"""Followers of a session are the frontends that asked for its events recently."""

import math

import trio
from hypothesis import given
from hypothesis import strategies as st

from support.narrowing import of_kind
from support.world import World
from tiller_daemon.models.scripted import ScriptStep, TextPart
from tiller_daemon.session.followers import FOLLOWERS_MAX, Followers
from tiller_protocol.answers import Accepted, ReplayResult
from tiller_protocol.ops import Replay
from tiller_protocol.sessions import FOLLOW_LEASE_S

DONE = ScriptStep(parts=(TextPart("done"),))

IDS = st.sampled_from(["a", "b", "c"])


async def ask(world: World, session_id: str, name: str, follower: str | None) -> tuple[str, ...]:
    """Ask for events; return the other followers of the session."""
    answer = await world.ask(Replay(session_id, follower=follower), client=name)
    return of_kind(ReplayResult, of_kind(Accepted, answer).result).followers


async def test_frontends_that_ask_again_and_again_see_each_other(autojump_clock, start) -> None:
    world, session_id = await start(DONE)
    assert await ask(world, session_id, "tiller chat", "1") == ()
    assert await ask(world, session_id, "neovim", "2") == ("tiller chat",)
    assert await ask(world, session_id, "tiller chat", "1") == ("neovim",)
    await trio.sleep(FOLLOW_LEASE_S - 1)
    assert await ask(world, session_id, "tiller chat", "1") == ("neovim",)
    await trio.sleep(2)
    assert await ask(world, session_id, "tiller chat", "1") == (), "neovim asks no more"


async def test_who_leaves_is_seen_no_longer(autojump_clock, start) -> None:
    world, session_id = await start(DONE)
    await ask(world, session_id, "neovim", "1")
    await ask(world, session_id, "vscode", "2")
    for _ in range(2):  # the second time, nobody is there
        await world.ask(Replay(session_id, follower="1", leaves=True), client="neovim")
        assert await ask(world, session_id, "tiller show", None) == ("vscode",)
    assert await ask(world, session_id, "neovim", "1") == ("vscode",), "it opens the session again"
    assert await ask(world, session_id, "tiller show", None) == ("neovim", "vscode")


async def test_who_only_reads_is_no_follower_and_sees_who_is(autojump_clock, start) -> None:
    world, session_id = await start(DONE)
    other = await world.session()
    assert await ask(world, session_id, "tiller show", None) == ()
    assert await ask(world, session_id, "tiller chat", "1") == ()
    assert await ask(world, session_id, "tiller show", None) == ("tiller chat",)
    assert await ask(world, other, "tiller show", None) == ()


async def test_following_leaves_no_event(autojump_clock, start) -> None:
    world, session_id = await start(DONE)
    before = await world.events(session_id)
    await ask(world, session_id, "tiller chat", "1")
    assert await world.events(session_id) == before


@given(st.lists(st.tuples(IDS, IDS, st.floats(0, FOLLOW_LEASE_S), st.booleans()), max_size=30))
def test_the_others_are_those_who_asked_within_the_lease_and_have_not_left(asked) -> None:
    now = 0.0
    remembered = Followers(lambda: now)
    last: dict[tuple[str, str], float] = {}
    for session_id, follower, waits, leaves in asked:
        now += waits
        shown = remembered.note(Replay(session_id, follower=follower, leaves=leaves), follower)
        last[session_id, follower] = -math.inf if leaves else now
        expected = {
            who
            for (session, who), at in last.items()
            if session == session_id and who != follower and now - at <= FOLLOW_LEASE_S
        }
        assert shown == tuple(sorted(expected))


def test_no_flood_of_ids_is_remembered() -> None:
    remembered = Followers(lambda: 0.0)
    for number in range(FOLLOWERS_MAX + 10):
        remembered.note(Replay(f"s{number}", follower="f"), "name")
    assert remembered.note(Replay("s9"), "") == ()
    assert remembered.note(Replay("s10"), "") == ("name",)
