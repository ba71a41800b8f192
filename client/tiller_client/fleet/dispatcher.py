"""Takes tasks from the fleet's queue, has them done, and reports how they end.

All hosts run the same loop over the same table. A host takes a queued task by replacing its record,
which only one host can do. Any host may declare a task lost whose host's lease has expired. What
happened is in the table and in the daemon's log, so a gateway that was killed goes on after a
restart: `Worker.work` may be called again for the same attempt, and then continues it.

Never twice at once: a task that may be tried again is stopped by the guard before its host's lease
can expire, even if the gateway is dead by then.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

from msgspec import structs

from tiller_client.fleet.lease import RETRY_S, Lease
from tiller_client.fleet.names import LEASE_S
from tiller_client.fleet.records import (
    FINAL,
    Report,
    Task,
    decode_presence,
    decode_task,
    encode,
    ended,
    lost,
    taken,
)
from tiller_client.fleet.table import Conflict, Record, Table, Unavailable

POLL_S = 5.0
"""Longest time between two looks at the tables; changes wake the loop at once."""

LOOK_S = LEASE_S / 3
"""Time between two looks for lost hosts."""

GRACE_S = LEASE_S
"""How long a lease must be seen to be missing before its host counts as lost: after an outage of
the broker, all leases are missing for a moment."""

START_S = 5.0
"""How long the lease must still hold when an attempt is confirmed: far longer than it takes to
submit its input."""

DRAIN_PREFIX = "drain."
"""Begins the keys, in the table of hosts, of hosts that take no more tasks."""


class Tables(NamedTuple):
    """The fleet's tables."""

    leases: Table
    hosts: Table
    tasks: Table


class Worker(Protocol):
    """Does tasks on this host."""

    async def work(self, task: Task, confirm: "Confirm") -> Report:
        """Do a task, or continue this attempt; a cancelled call changes nothing any more.

        The model may start only right after `confirm` has returned.
        """
        ...

    @property
    def problem(self) -> str:
        """Why this host can take no tasks now; empty if it can."""
        ...

    async def stop(self, task: Task) -> None:
        """Interrupt a task, whose `work` then returns soon."""
        ...

    async def release(self, task: Task) -> None:
        """Tidy up after an attempt whose report is known to all; never raises."""
        ...


class Dispatcher:
    """The loop of one host."""

    def __init__(
        self,
        host: str,
        labels: Collection[str],
        slots: int,
        *,
        lease: Lease,
        tables: Tables,
        worker: Worker,
    ) -> None:
        self._host = host
        self._labels = frozenset(labels)
        self._slots = slots
        self._lease = lease
        self._tables = tables
        self._worker = worker
        self._cursor = 0
        self._open: dict[str, tuple[Task, int]] = {}
        """The tasks that have not ended, with the version of their record."""
        self._working: dict[str, asyncio.Task[None]] = {}
        """What runs here, by `work_id`."""
        self._all: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self._stopping: set[str] = set()
        self._ending: set[str] = set()
        """What only has to report its end and to tidy up."""
        self._missing_since: dict[str, float] = {}
        self._looked_at = -LOOK_S

    @property
    def working(self) -> Collection[str]:
        """The attempts that run here."""
        return self._working.keys()

    async def run(self) -> None:
        """Work until cancelled; what runs then is left to the next run."""
        try:
            while True:
                try:
                    await self.step()
                except Unavailable:
                    self._missing_since.clear()
                    await asyncio.sleep(RETRY_S)
                else:
                    await self._wait()
        finally:
            for work in self._all:
                work.cancel()

    async def _wait(self) -> None:
        """Wait until a task has changed or a slot is free."""
        waits = [
            asyncio.create_task(self._tables.tasks.changed(POLL_S)),
            asyncio.create_task(self._freed.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        self._freed.clear()

    async def step(self) -> None:
        """Look at the tables once, and act; raises `Unavailable`."""
        for record in await self._tables.tasks.changes(self._cursor):
            self._note(record)
        if self._lease.left_s > 0:
            await self._serve()
        now = asyncio.get_running_loop().time()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            await self._find_lost(now)

    def _note(self, record: Record) -> None:
        self._cursor = max(self._cursor, record.version)
        task = decode_task(record.value) if record.value else None
        if task is None or task.state in FINAL:
            self._open.pop(record.key, None)
        else:
            self._open[record.key] = task, record.version

    async def _serve(self) -> None:
        """Continue what is ours, stop what is not ours any more, and take what is free."""
        ours = {
            task.work_id: task
            for task, _ in self._open.values()
            if task.is_of(self._lease.instance)
        }
        for work_id in self._working.keys() - ours.keys() - self._ending:
            self._working[work_id].cancel()
        for work_id, task in ours.items():
            if work_id not in self._working:
                self._begin(task)
            if task.cancel and work_id not in self._stopping:
                self._stopping.add(work_id)
                await self._worker.stop(task)
        free = self._slots - len(self._working) if not self._worker.problem else 0
        if free > 0 and not await self._tables.hosts.get(f"{DRAIN_PREFIX}{self._host}"):
            for key in sorted(self._open, key=lambda key: self._open[key][1]):
                free -= await self._take(key) if free > 0 else 0

    async def _take(self, key: str) -> bool:
        """Take a task if it is queued for a host like this one."""
        task, version = self._open[key]
        if task.state != "queued" or not self._labels.issuperset(task.spec.labels):
            return False
        task = taken(task, self._host, self._lease.instance)
        with suppress(Conflict):
            version = await self._tables.tasks.write(key, encode(task), version)
            self._open[key] = task, version
            self._begin(task)
            return True
        return False  # another host was faster; its change comes with the next step

    def _begin(self, task: Task) -> None:
        work_id = task.work_id
        work = self._working[work_id] = asyncio.create_task(self._work(task))
        self._all.add(work)

        def forget(_: object) -> None:
            self._all.discard(work)
            self._leave(work_id)

        work.add_done_callback(forget)

    def _leave(self, work_id: str) -> None:
        """Free the slot of an attempt."""
        if self._working.pop(work_id, None):
            self._stopping.discard(work_id)
            self._ending.discard(work_id)
            self._freed.set()

    async def _work(self, task: Task) -> None:
        report = await self._worker.work(task, partial(self._confirm, task))
        self._ending.add(task.work_id)
        await self._amend(task, lambda current: ended(current, report))
        self._leave(task.work_id)
        await self._worker.release(task)

    async def _confirm(self, task: Task, session_id: str, commit: str) -> None:
        """Wait until the lease holds and the attempt is surely ours; note its session.

        An attempt that another host has now, because the lease did not hold meanwhile, is cancelled
        here. While the lease holds, nobody can take it away.
        """
        while True:
            while self._lease.left_s <= START_S:  # noqa: ASYNC110 - the clock decides
                await asyncio.sleep(RETRY_S)
            is_ours = await self._amend(
                task, partial(structs.replace, session_id=session_id, commit=commit)
            )
            if not is_ours:
                raise asyncio.CancelledError
            if self._lease.left_s > START_S:
                return

    async def _amend(self, task: Task, change: Callable[[Task], Task]) -> bool:
        """Change the record of an attempt, unless it is not this host's any more; retries."""
        while True:
            try:
                found = await self._tables.tasks.get(task.id)
                current = decode_task(found.value) if found else None
                if not found or not current or not self._is_ours(current, task.work_id):
                    return False
                await self._tables.tasks.write(task.id, encode(change(current)), found.version)
                return True
            except Conflict:
                continue
            except Unavailable:
                await asyncio.sleep(RETRY_S)

    def _is_ours(self, task: Task, work_id: str) -> bool:
        return task.is_of(self._lease.instance) and task.work_id == work_id

    async def _find_lost(self, now: float) -> None:
        """Declare tasks lost whose hosts have been away for long enough, or were set up anew."""
        running = {task.instance for task, _ in self._open.values() if task.state == "running"}
        if not running - {self._lease.instance}:
            self._missing_since.clear()
            return
        leases = [one.value for one in await self._tables.leases.changes(0) if one.value]
        present = {self._lease.instance, *(decode_presence(one).instance for one in leases)}
        self._missing_since = {one: self._missing_since.get(one, now) for one in running - present}
        for key, (task, version) in list(self._open.items()):
            since = self._missing_since.get(task.instance, now)
            if task.state == "running" and now - since >= GRACE_S:
                with suppress(Conflict):
                    await self._tables.tasks.write(key, encode(lost(task)), version)


class Confirm(Protocol):
    """Returns once an attempt may start; cancels its task if it may not."""

    async def __call__(self, session_id: str, commit: str, /) -> None:
        """Wait; the attempt works in this session, on top of this commit."""
        ...
