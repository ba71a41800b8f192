# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Copies the durable events of all sessions from the daemon's log to the broker's stream.

Deltas are left out: they repeat what a completed item has, and whoever follows live gets them by
`reception`. Each session has a subject, and each message says the `seq` of its event. So the last
message of a subject says where to go on after a restart. A message is accepted only if the last
message of its subject is the one that this gateway knows: a second gateway, or one that does not
know whether its last message has arrived, reads the last message again before it goes on. Nothing
is doubled and nothing left out, however short the time for which servers recognise repetitions.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass

import msgspec
from nats.errors import Error
from nats.js.errors import APIError, NotFoundError

from tiller_client.api.for_asyncio import Client
from tiller_client.errors import RejectedError, TillerError
from tiller_client.fleet import names
from tiller_client.fleet.broker import Broker, is_full, is_wrong_last
from tiller_client.fleet.objects import put_object
from tiller_client.fleet.table import Unavailable
from tiller_protocol.answers import ReplayResult, SessionListResult
from tiller_protocol.codec import encode_event
from tiller_protocol.events import Event, ItemDelta
from tiller_protocol.ids import ULID_CHARS
from tiller_protocol.ops import Replay
from tiller_protocol.sessions import LIST_LIMIT_MAX, SessionList

WHOLE_S = 60.0
"""Time between two looks at all sessions, as publications can be lost."""

RETRY_S = 2.0

SESSIONS_AT_ONCE = 16

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
MESSAGE_ID = "Nats-Msg-Id"


@dataclass
class _Position:
    """How far a session is in the stream."""

    seq: int
    """The last event that is there, or that was left out."""
    last: int
    """The stream's number of the subject's last message; 0 if there is none."""


class _Body(msgspec.Struct):
    type: str


class _Head(msgspec.Struct):
    body: _Body


_head_of = msgspec.msgpack.Decoder(_Head).decode


def is_delta(publication: bytes) -> bool:
    """Whether a publication is a delta, or no event at all."""
    try:
        return _head_of(publication).body.type == "item_delta"
    except msgspec.DecodeError:
        return True


class Publisher:
    """Publishes the events of one host."""

    def __init__(self, broker: Broker, host: str, client: Client) -> None:
        self._broker = broker
        self._host = host
        self._client = client
        self._positions: dict[str, _Position] = {}
        self._dirty: set[str] = set()
        self._change = asyncio.Event()
        self._is_due = asyncio.Event()
        self._limit = asyncio.Semaphore(SESSIONS_AT_ONCE)
        self._done = asyncio.Condition()
        self.problem = ""
        """Why nothing can be published at the moment."""

    def note(self, session_id: str) -> None:
        """A session has new events. Topics that are no sessions are ignored."""
        if len(session_id) == ULID_CHARS:
            self._dirty.add(session_id)
            self._change.set()

    def look(self) -> None:
        """Look at all sessions soon, as something may have been missed."""
        self._is_due.set()

    async def flush(self, session_id: str, within_s: float) -> bool:
        """Wait until a session's events up to now are in the stream; false if that takes longer."""
        with suppress(TimeoutError, TillerError):
            async with asyncio.timeout(within_s):
                head = (await self._replay(session_id, 0, limit=1)).head
                self.note(session_id)
                async with self._done:
                    await self._done.wait_for(lambda: self._seq(session_id) >= head)
                    return True
        return False

    def _seq(self, session_id: str) -> int:
        position = self._positions.get(session_id)
        return position.seq if position else 0

    async def run(self) -> None:
        """Publish until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look())
            while True:
                await self._change.wait()
                self._change.clear()
                dirty, self._dirty = self._dirty, set()
                results = await asyncio.gather(*map(self._publish, dirty), return_exceptions=True)
                for session_id, result in zip(dirty, results, strict=True):
                    if isinstance(result, TillerError):
                        self.problem = str(result)
                        asyncio.get_running_loop().call_later(RETRY_S, self.note, session_id)
                    elif result is not None:
                        raise result
                if not any(results):
                    self.problem = ""
                async with self._done:
                    self._done.notify_all()

    async def _look(self) -> None:
        """Note from time to time all sessions that have more events than were published."""
        while True:
            with suppress(TillerError):
                for is_archived in (False, True):
                    op = SessionList(archived=is_archived, limit=LIST_LIMIT_MAX, sub_agents=True)
                    listed = await self._client.ask(op, SessionListResult)
                    for one in listed.sessions:
                        if one.head > self._seq(one.session_id):
                            self.note(one.session_id)
            with suppress(TimeoutError):
                async with asyncio.timeout(WHOLE_S):
                    await self._is_due.wait()
            self._is_due.clear()

    async def _replay(self, session_id: str, after: int, limit: int | None = None) -> ReplayResult:
        op = Replay(session_id, after, limit) if limit else Replay(session_id, after)
        return await self._client.ask(op, ReplayResult)

    async def _publish(self, session_id: str) -> None:
        """Publish a session's events up to its head; raises `TillerError`."""
        async with self._limit:
            position = self._positions.get(session_id)
            if position is None:
                position = self._positions[session_id] = await self._find(session_id)
            try:
                while True:
                    replay = await self._replay(session_id, position.seq)
                    for event in replay.events:
                        if event.seq > position.seq:
                            await self._put(event, position)
                    position.seq = max(position.seq, replay.upto)
                    if replay.upto >= replay.head:
                        return
            except RejectedError as error:
                if error.code != "not_found":  # it was deleted; what was published stays
                    raise
            except APIError as error:
                del self._positions[session_id]
                if is_wrong_last(error):
                    raise Unavailable(f"somebody else publishes events of {self._host}") from None
                if is_full(error):
                    raise Unavailable(
                        f"the stream {names.EVENTS_STREAM} is full; the events wait in the log"
                    ) from None
                raise self._broker.explained(error) from None
            except (TimeoutError, Error) as error:
                # Whether the last message has arrived is unknown: look before going on.
                del self._positions[session_id]
                raise self._broker.explained(error) from None

    async def _find(self, session_id: str) -> _Position:
        """Find out how far a session is in the stream; raises `TillerError`."""
        subject = names.events(self._host, session_id)
        try:
            found = await self._broker.js.get_last_msg(names.EVENTS_STREAM, subject, direct=True)
        except NotFoundError:
            return _Position(0, 0)
        except (TimeoutError, Error, APIError) as error:
            raise self._broker.explained(error) from None
        return _Position(int((found.headers or {})[names.SEQ_HEADER]), found.seq or 0)

    async def _put(self, event: Event, position: _Position) -> None:
        """Publish an event, unless it is a delta."""
        if not isinstance(event.body, ItemDelta):
            broker, subject = self._broker, names.events(self._host, event.session_id)
            headers = {
                names.SEQ_HEADER: str(event.seq),
                EXPECTED: str(position.last),
                MESSAGE_ID: f"{self._client.hello.log_id}/{event.session_id}/{event.seq}",
            }
            data = broker.sealing.seal(subject, encode_event(event))
            if len(data) > broker.part_bytes:
                name = f"events/{self._host}/{event.session_id}/{event.seq}"
                await put_object(broker, name, encode_event(event))
                headers[names.OBJECT_HEADER], data = name, b""
            position.last = await broker.publish(subject, data, headers)
        position.seq = event.seq
