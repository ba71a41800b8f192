# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""A table of records, shared by all hosts: each write names the version that it replaces.

That one compare-and-set decides every race: who takes a task, who holds a name, who reports an
outcome. `Table` is what the gateway's logic needs; `Bucket` implements it on a bucket of NATS.
"""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from nats.errors import Error
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import APIError, NotFoundError

from tiller_client.errors import TillerError
from tiller_client.fleet.broker import Broker, is_wrong_last
from tiller_client.fleet.names import entry

BATCH = 500
"""How many records to fetch at a time."""

FETCH_S = 5.0

DELETED = ("DEL", "PURGE")


class Conflict(TillerError):
    """Somebody else has changed the record."""


class Unavailable(TillerError):
    """The broker can't be reached, or refuses; whether a write took place is unknown."""


class Record(NamedTuple):
    """One version of a record."""

    key: str
    value: bytes
    """Empty if the record was deleted."""
    version: int
    """Grows with every write to the table."""
    written_at: float = 0.0
    """By the broker's clock, in Unix seconds."""


class Table(Protocol):
    """A table of records. Every method may raise `Unavailable`."""

    async def get(self, key: str) -> Record | None:
        """Return a record."""
        ...

    async def changes(self, after: int) -> list[Record]:
        """Return the records that were written or deleted after a version, oldest first."""
        ...

    async def write(self, key: str, value: bytes, version: int) -> int:
        """Replace that version, 0 for a new record, and return the new one; raises `Conflict`."""
        ...

    async def changed(self, within_s: float) -> None:
        """Wait until something may have changed, at most so long."""
        ...


def _unix(time: str) -> float:
    """Convert a time of NATS, which has nanoseconds, to Unix seconds."""
    head, _, _ = time.removesuffix("Z").partition(".")
    return datetime.fromisoformat(head).replace(tzinfo=UTC).timestamp() if head else 0.0


class Bucket:
    """A table on a NATS bucket."""

    def __init__(self, broker: Broker, name: str) -> None:
        self._broker = broker
        self._name = name
        self._change = asyncio.Event()
        self._is_subscribed = False

    async def get(self, key: str) -> Record | None:
        """Return a record."""
        found = await self._last(key)
        return found if found and found.value else None

    async def _last(self, key: str) -> Record | None:
        """Return the last version of a record, also if that is its deletion."""
        subject = entry(self._name, key)
        try:
            found = await self._broker.js.get_last_msg(f"KV_{self._name}", subject, direct=True)
        except NotFoundError:
            return None
        except (TimeoutError, Error, APIError) as error:
            raise Unavailable(str(self._broker.explained(error))) from None
        headers = found.headers or {}
        gone = headers.get("KV-Operation") in DELETED
        value = b"" if gone else self._broker.sealing.open(subject, found.data or b"")
        return Record(key, value, found.seq or 0, _unix(headers.get("Nats-Time-Stamp", "")))

    async def changes(self, after: int) -> list[Record]:
        """Return the records that were written or deleted after a version, oldest first."""
        try:
            return await self._changes(after)
        except (TimeoutError, Error, APIError) as error:
            raise Unavailable(str(self._broker.explained(error))) from None

    async def _changes(self, after: int) -> list[Record]:
        js, stream = self._broker.js, f"KV_{self._name}"
        prefix = entry(self._name, "")
        last = (await js.stream_info(stream)).state.last_seq
        if last <= after:
            return []
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=after + 1,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=FETCH_S,
        )
        reader = await js.pull_subscribe(f"{prefix}>", stream=stream, config=config)
        found: dict[str, Record] = {}
        try:
            pending = (await reader.consumer_info()).num_pending or 0
            while pending > 0:
                for message in await reader.fetch(min(BATCH, pending), timeout=FETCH_S):
                    meta = message.metadata
                    pending = meta.num_pending
                    key = message.subject.removeprefix(prefix)
                    gone = (message.headers or {}).get("KV-Operation") in DELETED
                    value = (
                        b"" if gone else self._broker.sealing.open(message.subject, message.data)
                    )
                    found.pop(key, None)
                    found[key] = Record(
                        key, value, meta.sequence.stream, meta.timestamp.timestamp()
                    )
        except NatsTimeout:
            # What is left may have been replaced meanwhile, so that the next call returns it.
            if (await reader.consumer_info()).num_pending:
                raise
        finally:
            with suppress(Error, APIError, TimeoutError):
                await reader.unsubscribe()
        return list(found.values())

    async def write(self, key: str, value: bytes, version: int) -> int:
        """Replace that version, 0 for a new record, and return the new one; raises `Conflict`."""
        subject = entry(self._name, key)
        headers = {"Nats-Expected-Last-Subject-Sequence": str(version)}
        try:
            sealed = self._broker.sealing.seal(subject, value)
            return await self._broker.publish(subject, sealed, headers)
        except APIError as error:
            if is_wrong_last(error):
                last = None if version else await self._last(key)
                if last and not last.value:  # a deleted record may be made again
                    return await self.write(key, value, last.version)
                raise Conflict(f"{key} was changed meanwhile") from None
            raise Unavailable(str(self._broker.explained(error))) from None
        except (TimeoutError, Error) as error:
            raise Unavailable(str(self._broker.explained(error))) from None

    async def delete(self, key: str) -> None:
        """Delete a record, whatever its version."""
        try:
            await self._broker.publish(entry(self._name, key), headers={"KV-Operation": "DEL"})
        except (Error, APIError, TimeoutError) as error:
            raise Unavailable(str(self._broker.explained(error))) from None

    async def changed(self, within_s: float) -> None:
        """Wait until something may have changed, at most so long."""
        if not self._is_subscribed:
            self._is_subscribed = True

            async def note(_: object) -> None:
                self._change.set()

            await self._broker.nc.subscribe(entry(self._name, ">"), cb=note)
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._change.wait()
        self._change.clear()
