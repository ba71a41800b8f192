"""A frontend for trio; `threaded` explains how it works.

Run a turn and print its text as it comes::

    import trio

    from tiller_client.api.for_trio import Client
    from tiller_protocol.events import ItemDelta, TurnEnded
    from tiller_protocol.settings import Settings


    async def main():
        async with Client("my program") as client:
            session = await client.create_session(".", Settings(approve="always"))
            await session.send("What is in this directory?")
            async for event in session.follow():
                match event.body:
                    case ItemDelta(item_type="assistant_message", delta=piece):
                        print(piece, end="", flush=True)
                    case TurnEnded(outcome=outcome):
                        return outcome


    print(trio.run(main))
"""

import math
from collections.abc import Callable
from typing import TypeVar

import trio

from tiller_client.api.threaded import ThreadedClient

_Result = TypeVar("_Result")


class Client(ThreadedClient):
    """A frontend; an asynchronous context manager."""

    async def in_thread(self, work: Callable[[], _Result]) -> _Result:
        """Do blocking work in a thread; it goes on there if the task is cancelled."""
        # Waiting streams keep their threads, so they must not use up trio's default limit.
        limiter = trio.CapacityLimiter(math.inf)
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)
