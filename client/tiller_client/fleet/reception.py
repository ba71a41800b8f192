"""The far end of a link, in the gateway: answers requests from other hosts, and publishes live.

A request has the content of a submission to the daemon's socket. Its token does not matter: who may
send to the subject is decided by the broker's permissions. On the subject `names.look`, only ops
are taken that only read.
"""

import asyncio
from collections import deque

from msgspec import structs
from nats.errors import Error

from tiller_client.api.for_asyncio import Client
from tiller_client.errors import NoDaemon, RejectedError, TillerError
from tiller_client.fleet import names
from tiller_client.fleet.broker import Broker
from tiller_client.fleet.publications import Publications
from tiller_client.fleet.topics import Topics
from tiller_protocol.answers import AnyAnswer, Rejected
from tiller_protocol.codec import Frame, decode_envelope, decode_op, encode_answer
from tiller_protocol.errors import BadMessage
from tiller_protocol.events import LIFECYCLE_TOPIC
from tiller_protocol.op_traits import only_reads
from tiller_protocol.ops import AnyOp

SUBMISSIONS_MAX = 64
"""How many submissions the daemon gets at once, each from its own thread; others wait."""

WAITING_MAX = 1024
"""How many requests may wait or be in progress; further ones are rejected."""

LIVE_BYTES_MAX = 8 * 1024 * 1024
"""The most bytes that wait to be published; with more, all are dropped, and followers are told to
replay."""

GAP = b""
"""Published under the topic `daemon` if publications may be missing: whoever follows replays."""

EXPIRE_S = 10.0


class Reception:
    """Answers requests to one host."""

    def __init__(
        self, broker: Broker, host: str, client: Client, publications: Publications
    ) -> None:
        """The caller enters `broker` and `publications`, and closes the `client`."""
        self._broker = broker
        self._host = host
        self._client = client
        self._publications = publications
        self._topics = Topics()
        self._in_progress: dict[tuple[bool, str], asyncio.Task[AnyAnswer]] = {}
        self._live: deque[tuple[str, bytes]] = deque()
        self._live_bytes = 0
        self._has_live = asyncio.Event()
        self._limit = asyncio.Semaphore(SUBMISSIONS_MAX)

    async def start(self) -> None:
        """Answer requests from now on; raises `Forbidden`."""
        look, drive = names.look(self._host), names.drive(self._host)
        self._publications.subscribe(self._publish, self._tell_gap)
        self._broker.missed.append(self._tell_gap)
        await self._broker.serve(look, self._looked)
        await self._broker.serve(drive, self.execute)
        await self._broker.nc.flush()
        self._broker.check_permitted(look, drive)
        self._tell_gap()

    async def run(self) -> None:
        """Publish until cancelled, once started."""
        try:
            while True:
                await self._send_live()
                try:
                    async with asyncio.timeout(EXPIRE_S):
                        await self._has_live.wait()
                except TimeoutError:
                    self._topics.expire(self._now)
        finally:
            self._broker.missed.remove(self._tell_gap)
            for task in self._in_progress.values():
                task.cancel()

    async def execute(self, data: bytes) -> bytes:
        """Answer a submission of somebody who may drive; raises only on cancellation."""
        return await self._handle(data, may_drive=True)

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _publish(self, topic: str, body: bytes) -> None:
        # What is missed without a connection, followers get by replay once it is there again.
        if not self._broker.nc.is_connected or not self._topics.has(topic, self._now):
            return
        self._live.append((topic, body))
        self._live_bytes += len(body)
        self._has_live.set()
        if self._live_bytes > LIVE_BYTES_MAX:
            self._tell_gap()

    def _tell_gap(self) -> None:
        self._live.clear()
        self._live.append((LIFECYCLE_TOPIC, GAP))
        self._live_bytes = 0
        self._has_live.set()

    async def _send_live(self) -> None:
        self._has_live.clear()
        while self._live:
            topic, body = self._live.popleft()
            self._live_bytes -= len(body)
            try:
                await self._broker.send(names.live(self._host, topic), body)
            except Error:  # too much waits for a connection; once it is there, followers replay
                return

    async def _looked(self, data: bytes) -> bytes:
        return await self._handle(data, may_drive=False)

    async def _handle(self, data: bytes, *, may_drive: bool) -> bytes:
        try:
            frame = decode_envelope(data)
        except BadMessage as error:
            return encode_answer(Rejected(error.submission_id, "bad_message", str(error)))
        return encode_answer(await self._answer(frame, may_drive=may_drive), frame.encoding)

    async def _answer(self, frame: Frame, *, may_drive: bool) -> AnyAnswer:
        submission_id = frame.envelope.id
        try:
            op = decode_op(frame)
        except BadMessage as error:
            return Rejected(submission_id, "bad_message", str(error))
        if not may_drive and not only_reads(op):
            message = f"this op does more than look; send it to {names.drive(self._host)}"
            return Rejected(submission_id, "forbidden", message)
        self._topics.note(op, self._now)
        # A request is sent again while its answer is awaited, perhaps over a new connection.
        key = (may_drive, submission_id)
        task = self._in_progress.get(key)
        if task is None:
            if len(self._in_progress) >= WAITING_MAX:
                message = f"{self._host} has too many requests in progress; try again later"
                return Rejected(submission_id, "overloaded", message)
            task = asyncio.create_task(self._submit(submission_id, op, frame.envelope.client))
            self._in_progress[key] = task
            task.add_done_callback(lambda _: self._in_progress.pop(key, None))
        return await asyncio.shield(task)

    async def _submit(self, submission_id: str, op: AnyOp, client: str) -> AnyAnswer:
        def submit() -> AnyAnswer:
            with self._client.blocking.pool.connection() as connection:
                return connection.submit(op, submission_id=submission_id, client=client)

        try:
            async with self._limit:
                return await self._client.in_thread(submit)
        except RejectedError as error:
            return structs.replace(error.answer, submission_id=submission_id)
        except NoDaemon:  # followers wait for the next daemon, as they do on its own machine
            message = (
                f"no daemon is running on {self._host}; log in there and run: tiller daemon start"
            )
            return Rejected(submission_id, "shutting_down", message)
        except (TillerError, OSError) as error:
            return Rejected(submission_id, "unavailable", f"on {self._host}: {error}")
