"""A world with a parent session, and sub-agents that work for it."""

import pytest
from msgspec import structs

from support.delegating import SCOUT, WORKER
from support.world import World
from tiller_daemon.models.scripted import Script, ScriptStep, TextPart


@pytest.fixture
async def start(nursery):
    """Start a world: the user's session plays the first script, sub-agents play the others."""

    async def begin(
        *steps: ScriptStep, worker: tuple[ScriptStep, ...] = (), scout: tuple[ScriptStep, ...] = ()
    ) -> tuple[World, str]:
        scripts = {
            "boss": Script((*steps, ScriptStep(parts=(TextPart("done"),), repeat=True))),
            "worker": Script((*worker, ScriptStep(parts=(TextPart("done"),), repeat=True))),
            "scout": Script((*scout, ScriptStep(parts=(TextPart("done"),), repeat=True))),
        }
        world = await World.start(nursery, scripts)
        world.configuration = structs.replace(
            world.configuration, agents={"worker": WORKER, "scout": SCOUT}
        )
        return world, await world.session()

    return begin
