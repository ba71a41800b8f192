"""A model that plays scripts from memory."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import trio

from tiller_daemon.models.base import ModelEvent, ModelRequest
from tiller_daemon.models.scripted import Script, play_script


class ModelInMemory:
    """Plays the script that `find` returns for the model's name; otherwise a `ScriptedModel`."""

    def __init__(self, find: Callable[[str], Script]) -> None:
        self._find = find

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        await trio.lowlevel.checkpoint()
        async with aclosing(play_script(self._find(request.model), request)) as events:
            async for event in events:
                yield event
