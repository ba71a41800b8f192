"""The connection of a chat to its session: sends submissions in order, and looks things up."""

import asyncio
from collections.abc import Callable

from tiller_client.api.blocking import Kind
from tiller_client.api.for_asyncio import Client
from tiller_client.errors import RejectedError, TillerError
from tiller_protocol.answers import AnyResult
from tiller_protocol.ops import AnyOp

RETRY_S = 0.5
"""Time between two attempts to reach a daemon that can't be started or does not answer."""

Done = Callable[[AnyResult | None], None]
Failed = Callable[[TillerError], None]


class LiveSession:
    """One session: `send` sends the submissions."""

    def __init__(self, client: Client, session_id: str) -> None:
        self.client = client
        self.id = session_id
        self._submissions: asyncio.Queue[tuple[AnyOp, Done, Failed]] = asyncio.Queue()

    def submit(self, op: AnyOp, done: Done, failed: Failed) -> None:
        """Submit an op after all earlier ones; call `done` or `failed` at its end."""
        self._submissions.put_nowait((op, done, failed))

    async def send(self) -> None:
        """Send the submissions, one after another, until cancelled."""
        while True:
            op, done, failed = await self._submissions.get()
            try:
                result = await self.client.submit(op)
            except TillerError as error:
                failed(error)
            else:
                done(result)

    async def look_up(self, op: AnyOp, kind: type[Kind]) -> Kind | None:
        """Return the answer to an op that no user waits for, or `None` if it is rejected.

        Retry until there is an answer, but do not start a daemon that was stopped.
        """

        def ask() -> Kind:
            with self.client.blocking.pool.connect(only_crashed=True) as connection:
                return connection.look(op, kind)

        while True:
            try:
                return await self.client.in_thread(ask)
            except RejectedError:
                return None
            except TillerError:
                await asyncio.sleep(RETRY_S)
