"""A frontend for asyncio; `threaded` explains how it works.

Run a turn and print its text as it comes::

    import asyncio

    from tiller_client.api.for_asyncio import Client
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


    print(asyncio.run(main()))
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from tiller_client.api.threaded import ThreadedClient

_Result = TypeVar("_Result")


class Client(ThreadedClient):
    """A frontend; an asynchronous context manager."""

    async def in_thread(self, work: Callable[[], _Result]) -> _Result:
        """Do blocking work in a thread; it goes on there if the task is cancelled.

        `asyncio.to_thread` has few threads, and the loop waits for all of them when it ends.
        """
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        results: list[_Result] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(work())
            except BaseException as error:  # raised again below
                errors.append(error)
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(done.set)

        threading.Thread(target=run, daemon=True).start()
        await done.wait()
        if errors:
            raise errors[0]
        return results[0]
