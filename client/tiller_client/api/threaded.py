"""The base of the clients for trio and asyncio: makes each call of the blocking client in a thread.

So tokens, locks, restarts and catch-up are implemented only once. The threads cost little: a
submission takes a millisecond, and a stream hands over all arrived events at once. A cancelled task
stops waiting immediately; its thread ends by itself, within a second if it waits for events. An op
whose submission was cancelled may still take effect.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Self, TypeVar

from tiller_client.api.blocking import (
    NO_OVERRIDES,
    NO_SETTINGS,
    Client,
    Delivery,
    Kind,
    Sent,
    Session,
)
from tiller_client.following.feed import Feed
from tiller_protocol.answers import AnyResult, HelloResult
from tiller_protocol.events import Event
from tiller_protocol.items import Decision
from tiller_protocol.ops import AnyOp
from tiller_protocol.places import Places
from tiller_protocol.settings import Settings, TurnOverrides
from tiller_protocol.snapshot import Snapshot

_Result = TypeVar("_Result")


class ThreadedClient(ABC):
    """A frontend; an asynchronous context manager. Its methods are those of `blocking.Client`."""

    def __init__(
        self, name: str, *, environ: Mapping[str, str] = os.environ, places: Places | None = None
    ) -> None:
        """Do not connect yet; entering does. The arguments are those of `blocking.Client`."""
        self.blocking = Client(name, environ=environ, places=places)

    @abstractmethod
    async def in_thread(self, work: Callable[[], _Result]) -> _Result:
        """Do blocking work in a thread; it goes on there if the task is cancelled."""

    async def __aenter__(self) -> Self:
        try:
            await self.in_thread(self.blocking.connect)
        except BaseException:
            self.blocking.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.blocking.close()

    @property
    def hello(self) -> HelloResult:
        """The daemon's greeting."""
        return self.blocking.hello

    async def submit(self, op: AnyOp, *, submission_id: str = "") -> AnyResult | None:
        """Submit any op and return the result, if it has one."""
        return await self.in_thread(partial(self.blocking.submit, op, submission_id=submission_id))

    async def ask(self, op: AnyOp, kind: type[Kind]) -> Kind:
        """Submit an op with a result of type `kind`."""
        return await self.in_thread(partial(self.blocking.ask, op, kind))

    async def create_session(
        self, workspace: str | os.PathLike[str], settings: Settings = NO_SETTINGS
    ) -> "ThreadedSession":
        """Create a session in a directory."""
        create = partial(self.blocking.create_session, workspace, settings)
        return ThreadedSession(self, await self.in_thread(create))

    def session(self, session_id: str) -> "ThreadedSession":
        """Return an existing session; its id is checked only when the session is used."""
        return ThreadedSession(self, self.blocking.session(session_id))


class ThreadedSession:
    """One session of the daemon. Its methods are those of `blocking.Session`."""

    def __init__(self, client: ThreadedClient, session: Session) -> None:
        self.client = client
        self.session_id = session.session_id
        self._session = session

    async def send(
        self, text: str, delivery: Delivery = "auto", overrides: TurnOverrides = NO_OVERRIDES
    ) -> Sent:
        """Send input, which by default starts a turn, or steers the running turn."""
        return await self.client.in_thread(partial(self._session.send, text, delivery, overrides))

    async def snapshot(self) -> Snapshot:
        """Return the session as it is now; later events have numbers above the snapshot's `seq`."""
        return await self.client.in_thread(self._session.snapshot)

    async def interrupt(self) -> None:
        """End the running turn at once."""
        await self.client.in_thread(self._session.interrupt)

    async def answer(self, request_id: str, decision: Decision, text: str = "") -> None:
        """Answer an open request."""
        await self.client.in_thread(partial(self._session.answer, request_id, decision, text))

    def follow(self, after: int = 0) -> "ThreadedEventStream":
        """Return the events after number `after`: past events, then each new one."""
        stream = ThreadedEventStream(self.client, self.session_id, after)
        return self.client.blocking.opened(stream)


class ThreadedEventStream(Feed):
    """An asynchronous iterator, otherwise like `blocking.EventStream`; for one task at a time.

    No event is lost if a task is cancelled while it waits.
    """

    def __init__(self, client: ThreadedClient, session_id: str, after: int) -> None:
        super().__init__(client.blocking.pool, session_id, after)
        self._client = client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        """Wait for the next event; the iteration ends when the stream is closed."""
        while not self.closed:
            if (event := self.take()) is not None:
                return event
            await self._client.in_thread(self.wait)
        raise StopAsyncIteration
