"""Follows the sessions of working sub-agents, so that their work can be shown."""

import asyncio
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from tiller_client.api.for_asyncio import Client
from tiller_client.errors import StartedOver, TillerError
from tiller_protocol.events import Event
from tiller_protocol.fold import fold_replayed
from tiller_protocol.items import Item, Request, ToolCall
from tiller_protocol.snapshot import Snapshot

FOLLOWED_MAX = 32
"""Maximum number of sub-agents to follow, with a thread each; of others, only steps are shown."""

RETRY_S = 0.5
"""Time until the next attempt to follow a session."""


class SubAgents:
    """The sub-agents of one session, and their sub-agents; `items` has histories by session id."""

    def __init__(self, client: Client, changed: Callable[[], None]) -> None:
        """`changed` is called when a history has changed."""
        self.items: dict[str, Sequence[Item]] = {}
        self._client = client
        self._changed = changed
        self._owner: Snapshot | None = None
        self._snapshots: dict[str, Snapshot] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def look(self, owner: Snapshot) -> None:
        """Follow the sub-agents that now work for a session, and no others.

        The histories of the others are kept until the turn has ended, as their calls may not have
        been printed yet.
        """
        self._owner = owner
        wanted = list(self._working(owner))[:FOLLOWED_MAX]
        for session_id in self._tasks.keys() - wanted:
            self._tasks.pop(session_id).cancel()
        for session_id in wanted:
            if session_id not in self._tasks:
                self._tasks[session_id] = asyncio.create_task(self._follow(session_id))
        if owner.turn is None:
            for session_id in self.items.keys() - wanted:
                del self.items[session_id]
                self._snapshots.pop(session_id, None)

    @property
    def requests(self) -> Iterator[Request]:
        """The open requests of sub-agents in the background, which their owner does not show."""
        for one in self._owner.background if self._owner else ():
            if one.state == "running" and one.sub_agent:
                child = self._snapshots.get(one.sub_agent.session_id)
                for request in child.requests if child else ():
                    yield replace(request, title=f"{one.sub_agent.agent}: {request.title}")

    async def end(self) -> None:
        """Stop following."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _working(self, owner: Snapshot) -> Iterator[str]:
        """The sessions that work for a session, directly or indirectly."""
        for session_id in working(owner):
            yield session_id
            if child := self._snapshots.get(session_id):
                yield from self._working(child)

    async def _follow(self, session_id: str) -> None:
        """Keep a session's history up to date until cancelled."""
        while True:
            try:
                session = self._client.session(session_id)
                snapshot = await session.snapshot()
                self._take(session_id, snapshot)
                async with session.follow(snapshot.seq) as stream:
                    async for event in stream:
                        fold_replayed(snapshot, event)
                        self._take(session_id, snapshot, event)
            except (StartedOver, TillerError):  # the owner's session reports the problem
                await asyncio.sleep(RETRY_S)

    def _take(self, session_id: str, snapshot: Snapshot, event: Event | None = None) -> None:
        self._snapshots[session_id] = snapshot
        self.items[session_id] = snapshot.items
        if self._owner and (event is None or getattr(event.body, "sub_agent", None)):
            self.look(self._owner)  # this one may have sub-agents of its own
        self._changed()


def working(snapshot: Snapshot) -> list[str]:
    """The ids of the sessions of a session's working sub-agents, also in the background."""
    calls: list[ToolCall] = []
    left = len(snapshot.open_items)
    for item in reversed(snapshot.items):  # open items are near the end
        if not left:
            break
        if item.id in snapshot.open_items:
            left -= 1
            if isinstance(item, ToolCall):
                calls.append(item)
    agents = [call.sub_agent for call in reversed(calls)]
    agents += [one.sub_agent for one in snapshot.background if one.state == "running"]
    return [agent.session_id for agent in agents if agent]
