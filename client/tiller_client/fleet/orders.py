# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""What people order from any machine with credentials: tasks, and what sessions published."""

import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec import Struct
from nats.errors import Error
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import APIError, NotFoundError

from tiller_client.errors import RejectedError, TillerError, UsageError
from tiller_client.fleet import names
from tiller_client.fleet.broker import Broker, HostAway
from tiller_client.fleet.dispatcher import DRAIN_PREFIX
from tiller_client.fleet.inbox import leave
from tiller_client.fleet.objects import get_object
from tiller_client.fleet.records import (
    FINAL,
    Draining,
    HostInfo,
    Task,
    TaskSpec,
    cancelled,
    decode_host,
    decode_task,
    encode,
)
from tiller_client.fleet.table import Bucket, Conflict, Record
from tiller_protocol.answers import Accepted, AnyAnswer, Rejected
from tiller_protocol.codec import decode_answer, decode_event, encode_submission
from tiller_protocol.events import Event
from tiller_protocol.ids import ULID_RANDOM_BYTES, Ulids
from tiller_protocol.ops import Submission, UserInput

FETCH, FETCH_S = 200, 5.0
"""How many events to ask the broker for at a time, and how long it may take."""

POLL_S = 5.0


class HostLine(Struct, frozen=True, tag_field="type", tag="host"):
    """A host, for lists."""

    info: HostInfo
    """What it has said of itself."""
    is_here: bool
    """Whether its gateway is connected now."""
    seen_at: float
    """When it was last heard, in Unix seconds by the broker's clock."""
    is_draining: bool
    """Whether it takes no more tasks."""
    tasks: int
    """How many tasks it works on."""


class TaskLine(Struct, frozen=True, tag_field="type", tag="task"):
    """A task, for lists."""

    task: Task
    """The task."""
    changed_at: float
    """When it last changed, in Unix seconds by the broker's clock."""


class Overview(NamedTuple):
    """The fleet at a moment."""

    hosts: Sequence[HostLine]
    tasks: Sequence[TaskLine]


class Kept(Struct, frozen=True, tag_field="type", tag="kept"):
    """A message that the broker keeps for a host."""

    submission_id: str
    """With this id, `tiller fleet status` shows the answer."""
    host: str
    """The host."""
    wait_s: float
    """For how many seconds the broker keeps it."""


class Orders:
    """Reads and changes the fleet's tables."""

    def __init__(self, broker: Broker, by: str) -> None:
        self._broker = broker
        self._by = by
        self._tasks = Bucket(broker, names.TASKS)
        self._hosts = Bucket(broker, names.HOSTS)
        self._leases = Bucket(broker, names.LEASES)
        self._answers = Bucket(broker, names.ANSWERS)

    async def submit(self, spec: TaskSpec, number: int) -> list[Task]:
        """Put a task into the queue, `number` times."""
        ulids = Ulids()
        tasks: list[Task] = []
        for _ in range(number):
            tasks.append(Task(_new_id(ulids), spec, by=self._by))
            await self._tasks.write(tasks[-1].id, encode(tasks[-1]), 0)
        return tasks

    async def submit_once(self, task_id: str, spec: TaskSpec) -> Task:
        """Put a task with this id into the queue, or return the one that is there.

        May be repeated after any error. Raises `UsageError` if that task does something else.
        """
        task = Task(task_id, spec, by=self._by)
        try:
            await self._tasks.write(task_id, encode(task), 0)
        except Conflict:
            found = await self._tasks.get(task_id)
            if found is None:  # removed at this moment
                raise
            task = decode_task(found.value)
            if task.spec != spec:
                raise UsageError(
                    f"there is a task {task_id} with another prompt or other options; "
                    f"see: tiller fleet status {task_id}"
                ) from None
        return task

    async def overview(self) -> Overview:
        """Return all hosts and tasks, sorted by name and id; made ids sort by their time."""
        entries = [one for one in await self._hosts.changes(0) if one.value]
        leases = {one.key: one for one in await self._leases.changes(0) if one.value}
        draining = {one.key for one in entries if one.key.startswith(DRAIN_PREFIX)}
        tasks = [
            TaskLine(decode_task(one.value), one.written_at)
            for one in sorted(await self._tasks.changes(0), key=lambda one: one.key)
            if one.value
        ]
        running = [one.task.host for one in tasks if one.task.state == "running"]
        hosts = [
            HostLine(
                decode_host(one.value),
                is_here=one.key in leases,
                seen_at=leases[one.key].written_at if one.key in leases else one.written_at,
                is_draining=f"{DRAIN_PREFIX}{one.key}" in draining,
                tasks=running.count(one.key),
            )
            for one in sorted(entries, key=lambda one: one.key)
            if one.key not in draining
        ]
        return Overview(hosts, tasks)

    async def find(self, word: str) -> Record:
        """Return the record of the task with this id, or the only one whose id ends so."""
        if exact := await self._tasks.get(word):
            return exact
        found = [
            one
            for one in await self._tasks.changes(0)
            if one.value and one.key.upper().endswith(word.upper())
        ]
        if len(found) == 1:
            return found[0]
        problem = "several tasks end with" if found else "there is no task"
        raise UsageError(f"{problem} {word}; see: tiller fleet ls --all")

    async def cancel(self, word: str) -> Task:
        """Cancel a task, whatever its state; raises `UsageError` if it has ended."""
        while True:
            record = await self.find(word)
            task = cancelled(decode_task(record.value))
            if task is None:
                raise UsageError(f"task {record.key} has already ended")
            with suppress(Conflict):
                await self._tasks.write(record.key, encode(task), record.version)
                return task

    async def drain(self, host: str, *, undo: bool) -> None:
        """Let a host take no more tasks, or take tasks again; raises `UsageError`."""
        if not await self._hosts.get(host):
            raise UsageError(f"no host {host} was ever in the fleet; see: tiller fleet ls")
        key = f"{DRAIN_PREFIX}{host}"
        found = await self._hosts.get(key)
        if undo and found:
            await self._hosts.delete(key)
        elif not undo and not found:
            await self._hosts.write(key, encode(Draining(self._by)), 0)

    async def send(self, host: str, session_id: str, text: str, wait_s: float) -> Accepted | Kept:
        """Send input to a session on a host.

        If the host is away, let the broker keep the input for `wait_s`; if that is 0, raise
        `HostAway`. Raises `RejectedError` as on the host itself.
        """
        submission_id = _new_id(Ulids())
        op = UserInput(session_id, text)
        frame = encode_submission(Submission(submission_id, op, self._by))
        try:
            data = await self._broker.request(host, names.drive(host), frame)
        except HostAway:
            if not wait_s:
                raise
            await leave(self._broker, host, submission_id, frame, wait_s)
            return Kept(submission_id, host, wait_s)
        answer = decode_answer(data)
        if isinstance(answer, Rejected):
            raise RejectedError(answer)
        return answer

    async def answer(self, submission_id: str) -> AnyAnswer | None:
        """Return the answer to a message that the broker has kept, if it is there."""
        found = await self._answers.get(submission_id)
        return decode_answer(found.value) if found else None

    async def until_ended(self, tasks: Sequence[Task], tell: Callable[[Task], None]) -> None:
        """Wait until tasks have ended or are unknown; `tell` gets each then."""
        open_ = {one.id for one in tasks}
        cursor = 0
        while open_:
            for record in await self._tasks.changes(cursor):
                cursor = max(cursor, record.version)
                if record.key in open_ and record.value:
                    task = decode_task(record.value)
                    if task.state in FINAL or task.state == "unknown":
                        open_.discard(record.key)
                        tell(task)
            if open_:
                await self._tasks.changed(POLL_S)

    async def events(
        self, host: str, session_id: str, *, follow: bool = False
    ) -> AsyncIterator[Event]:
        """Yield a session's published events in order; with `follow`, go on for ever."""
        subject = names.events(host, session_id)
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.ALL, ack_policy=AckPolicy.NONE, inactive_threshold=300
        )
        broker = self._broker
        try:
            reader = await broker.js.pull_subscribe(
                subject, stream=names.EVENTS_STREAM, config=config
            )
            pending = (await reader.consumer_info()).num_pending or 0
            while pending or follow:
                try:
                    messages = await reader.fetch(FETCH if follow else min(FETCH, pending), FETCH_S)
                except NatsTimeout:
                    continue
                for message in messages:
                    pending = message.metadata.num_pending
                    name = (message.headers or {}).get(names.OBJECT_HEADER)
                    if name:
                        yield decode_event(await get_object(broker, name))
                    else:
                        yield decode_event(broker.sealing.open(subject, message.data))
        except NotFoundError:
            raise TillerError("nothing was published in this fleet yet") from None
        except (Error, APIError, TimeoutError) as error:
            raise broker.explained(error) from None


def _new_id(ulids: Ulids) -> str:
    return ulids.make(time.time_ns() // 1_000_000, os.urandom(ULID_RANDOM_BYTES))
