"""Worlds for the tests of sessions, made in the test's nursery and checked after the test."""

from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest
import trio

from support.world import World
from tiller_daemon.models.scripted import Script, ScriptStep
from tiller_protocol.lifecycle import LifecycleState, advance

Start = Callable[..., Awaitable[tuple[World, str]]]


@pytest.fixture
async def start(nursery: trio.Nursery) -> AsyncGenerator[Start]:
    """Yield a function that starts a world whose model plays the given steps, and a session in it.

    After the test, the events of each session must follow the life cycle, and all must have been
    published.
    """
    worlds: list[World] = []

    async def start(*steps: ScriptStep) -> tuple[World, str]:
        world = await World.start(nursery, {"s": Script(steps)})
        worlds.append(world)
        return world, await world.session()

    yield start
    for world in worlds:
        for session_id in world.published:
            events = await world.events(session_id)
            state = LifecycleState()
            for event in events:
                advance(state, event)
            seen = world.published[session_id]
            if not events:
                continue  # the session was deleted
            if world.kills:  # events that were committed at the moment of a kill were not published
                assert seen == [event for event in events if event in seen]
            else:
                assert seen == events
    nursery.cancel_scope.cancel()
