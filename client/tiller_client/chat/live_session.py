"""The connection of a chat to its session: receives events, and sends submissions in order."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from tiller_client.api.blocking import Kind
from tiller_client.api.for_asyncio import Client
from tiller_client.api.threaded import ThreadedEventStream
from tiller_client.errors import RejectedError, StartedOver, TillerError
from tiller_protocol.answers import AnyResult
from tiller_protocol.ops import AnyOp

if TYPE_CHECKING:
    from tiller_client.chat.app import Chat

RETRY_S = 0.5
"""Time between two attempts to reach a daemon that can't be started or does not answer."""

NEW_LOG = "The daemon has a new event log, in which this session does not exist."


Done = Callable[[AnyResult | None], None]
Failed = Callable[[TillerError], None]


class LiveSession:
    """One session: `follow` receives its events, `send` sends the submissions."""

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

    async def follow(self, after: int, chat: "Chat") -> None:
        """Pass events after number `after` to the chat, until cancelled or the session is gone."""
        last = after
        while True:
            async with self.client.session(self.id).follow(last) as stream:
                watching = asyncio.create_task(_watch(stream, chat))
                try:
                    async for event in stream:
                        last = event.seq
                        chat.take(event)
                        if stream.caught_up:
                            # Each wait costs a thread, and more than an event itself. So let
                            # events gather until the next frame.
                            await chat.screen.pace.rest()
                except StartedOver:
                    chat.end(NEW_LOG)
                    return
                except RejectedError as error:
                    if not error.is_cut_off:
                        chat.end(str(error))
                        return
                    chat.cut_off(str(error))
                except TillerError as error:
                    chat.away(str(error))
                finally:
                    watching.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await watching
            await asyncio.sleep(RETRY_S)


AWAY = "the daemon is not running; your next message starts it"


async def _watch(stream: ThreadedEventStream, chat: "Chat") -> None:
    """Tell the chat when the daemon stops and returns, and who else has the session open."""
    is_away: bool | None = None  # unknown, so that the first look replaces an earlier note
    while True:
        await asyncio.sleep(RETRY_S)
        chat.beside(stream.others)
        was_away, is_away = is_away, not stream.connected
        if was_away != is_away:
            chat.away(AWAY if is_away else "")
