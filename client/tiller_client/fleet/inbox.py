# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Submissions that the broker keeps for a host that is away.

The sender says for how long. The gateway executes them in order, each once by its id, and writes
the answer to a table. The broker's clock decides what is too late.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from nats.aio.msg import Msg
from nats.errors import Error
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import ConsumerConfig
from nats.js.errors import APIError

from tiller_client.errors import TillerError
from tiller_client.fleet import names
from tiller_client.fleet.broker import Broker
from tiller_client.fleet.lease import Lease
from tiller_client.fleet.table import Bucket, Conflict, Table, Unavailable
from tiller_protocol.answers import Rejected
from tiller_protocol.codec import encode_answer

WAIT_HEADER = "Tiller-Wait"
"""For how many seconds the submission may wait."""

FETCH_S, RETRY_S = 30.0, 2.0

ACK_S = 10.0
"""When a submission without an acknowledgement is delivered to whoever asks for the next one. A
gateway at work does not ask, so only that of a killed gateway comes again."""


async def leave(broker: Broker, host: str, submission_id: str, frame: bytes, wait_s: float) -> None:
    """Let the broker keep a submission for a host; raises `TillerError`."""
    subject = names.inbox(host)
    headers = {"Nats-Msg-Id": submission_id, WAIT_HEADER: str(wait_s)}
    try:
        await broker.publish(subject, broker.sealing.seal(subject, frame), headers)
    except (Error, APIError, TimeoutError) as error:
        raise broker.explained(error) from None


class Inbox:
    """Executes what was left for this host."""

    def __init__(
        self,
        broker: Broker,
        host: str,
        lease: Lease,
        leases: Table,
        answer: Callable[[bytes], Awaitable[bytes]],
    ) -> None:
        """`answer` executes a submission as if it came now; it must not raise."""
        self._broker = broker
        self._host = host
        self._lease = lease
        self._leases = leases
        self._answer = answer
        self._answers = Bucket(broker, names.ANSWERS)

    async def run(self) -> None:
        """Work until cancelled."""
        config = ConsumerConfig(ack_wait=ACK_S, max_ack_pending=1)
        while True:
            try:
                reader = await self._broker.js.pull_subscribe(
                    names.inbox(self._host),
                    durable=f"host_{self._host}",
                    stream=names.INBOX_STREAM,
                    config=config,
                )
                while True:
                    try:
                        (message,) = await reader.fetch(1, FETCH_S)
                    except NatsTimeout:
                        continue
                    await self._take(message)
            except (Error, APIError, TimeoutError, Unavailable):
                await asyncio.sleep(RETRY_S)

    async def _take(self, message: Msg) -> None:
        """Execute a submission unless it is too late, write the answer, and acknowledge it."""
        headers = message.headers or {}
        submission_id = headers.get("Nats-Msg-Id", "")
        try:
            frame = self._broker.sealing.open(message.subject, message.data)
        except TillerError:
            await message.term()  # nobody of the team has sent it
            return
        stored_at = message.metadata.timestamp.timestamp()
        if await self._now() - stored_at > float(headers.get(WAIT_HEADER, "0")):
            text = f"the host {self._host} was away for longer than the message was to be kept"
            answer = encode_answer(Rejected(submission_id, "unavailable", text), "json")
        else:
            answer = await self._answer(frame)
        with suppress(Conflict):  # it was written, but the acknowledgement got lost
            await self._answers.write(submission_id, answer, 0)
        await message.ack()

    async def _now(self) -> float:
        """Unix seconds by the broker's clock."""
        found = await self._leases.get(self._host)
        if found is None:
            raise Unavailable("the lease is not there yet")
        return found.written_at + self._lease.since_renewal_s
