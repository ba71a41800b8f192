"""A fleet on a virtual clock: real leases and dispatchers, simulated tables, daemons and faults."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from contextlib import suppress
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

from msgspec import structs

from tiller_client.fleet.dispatcher import Confirm, Dispatcher, Tables
from tiller_client.fleet.lease import Lease
from tiller_client.fleet.names import LEASE_S
from tiller_client.fleet.records import Report, Task, TaskSpec, cancelled, decode_task, encode
from tiller_client.fleet.table import Conflict, Record, Unavailable

DELAY_S = 0.05
"""Longest time that a request to the broker takes, each way."""

QUIET_S = 600.0
"""Time after the last fault in which all tasks end."""

TICK_S = 0.5
"""How often a machine looks at its sessions."""

OUTAGE_S = 3.0
"""How long a request hangs before it fails."""


class _Jump(selectors.SelectSelector):
    """Moves the clock instead of waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0)
        if not found:
            assert timeout is not None, "nothing is left to happen"
            self.now += timeout
        return found


def simulate(main: Coroutine[Any, Any, None]) -> None:
    """Run on a clock that jumps to the next event."""
    jump = _Jump()
    loop = asyncio.SelectorEventLoop(jump)
    loop.time = lambda: jump.now  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main)


def _now() -> float:
    return asyncio.get_running_loop().time()


class MemoryTable:
    """The records, as the broker has them."""

    def __init__(self, ttl_s: float | None = None) -> None:
        self._ttl_s = ttl_s
        self._records: dict[str, Record] = {}
        self._version = 0
        self.change = asyncio.Event()

    def all(self) -> list[Record]:
        now = _now()
        if self._ttl_s is not None:
            self._records = {
                key: one for key, one in self._records.items() if now - one.written_at < self._ttl_s
            }
        return sorted(self._records.values(), key=lambda one: one.version)

    def get(self, key: str) -> Record | None:
        return next((one for one in self.all() if one.key == key), None)

    def write(self, key: str, value: bytes, version: int) -> int:
        found = self.get(key)
        if (found.version if found else 0) != version:
            raise Conflict(key)
        self._version += 1
        self._records[key] = Record(key, value, self._version, _now())
        self.change.set()
        self.change = asyncio.Event()
        return self._version


class View:
    """A table as one host reaches it."""

    def __init__(self, table: MemoryTable, host: "Host") -> None:
        self._table = table
        self._host = host

    async def _reach(self) -> None:
        if self._host.is_cut_off:
            await asyncio.sleep(OUTAGE_S)
            raise Unavailable("cut off")
        await asyncio.sleep(self._host.random.random() * DELAY_S)

    async def get(self, key: str) -> Record | None:
        await self._reach()
        found = self._table.get(key)
        await self._reach()
        return found

    async def changes(self, after: int) -> list[Record]:
        await self._reach()
        found = [one for one in self._table.all() if one.version > after]
        await self._reach()
        return found

    async def write(self, key: str, value: bytes, version: int) -> int:
        await self._reach()
        new = self._table.write(key, value, version)
        await self._reach()  # may fail after the write took place
        return new

    async def changed(self, within_s: float) -> None:
        if self._host.is_cut_off:
            await asyncio.sleep(within_s)
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._table.change.wait(), within_s)


class Run(NamedTuple):
    """A time during which a task ran on a host."""

    task_id: str
    work_id: str
    host: str
    began: float
    ended: float


class _Session:
    """A session in a host's log."""

    def __init__(self, task: Task, duration_s: float) -> None:
        self.task = task
        self.began = _now()
        self.ends_at = self.began + duration_s
        self.report: Report | None = None
        self.ended = asyncio.Event()


class Host:
    """A machine with a daemon, a gateway, and a guard."""

    problem = ""

    def __init__(self, world: "World", name: str, slots: int) -> None:
        self.world = world
        self.name = name
        self.random = Random(world.random.random())
        self.slots = slots
        self.instance = f"{name}-1"
        self.is_partitioned = False
        self.is_on = True
        self.log: dict[str, _Session] = {}
        """What survives a crash."""
        self._holds_until = 0.0
        self._gateway: asyncio.Task[None] | None = None
        self._machine: asyncio.Task[None] | None = None

    @property
    def is_cut_off(self) -> bool:
        return self.is_partitioned or self.world.is_broker_down

    def boot(self) -> None:
        self.is_on = True
        self._machine = asyncio.create_task(self._run_machine())
        self.start_gateway()

    def start_gateway(self) -> None:
        if self.is_on and not self._gateway:
            self._gateway = asyncio.create_task(self._run_gateway())

    def kill_gateway(self) -> None:
        if self._gateway:
            self._gateway.cancel()
            self._gateway = None

    def crash(self) -> None:
        """Lose power: turns end, the guard ends; the log stays."""
        self.kill_gateway()
        assert self._machine
        self._machine.cancel()
        self.is_on = False
        for session in self.log.values():
            if not session.report:
                self._end(session, Report("interrupted"))

    def lose_state(self) -> None:
        """Set the machine up anew, with an empty log and the same name."""
        self.log.clear()
        number = int(self.instance.rpartition("-")[2])
        self.instance = f"{self.name}-{number + 1}"

    async def _run_gateway(self) -> None:
        world = self.world
        lease = Lease(View(world.leases, self), self.name, self.instance, self._renewed, _now)
        dispatcher = Dispatcher(
            self.name,
            (),
            self.slots,
            lease=lease,
            tables=Tables(
                View(world.leases, self), View(world.hosts, self), View(world.tasks, self)
            ),
            worker=self,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(lease.keep())
            group.create_task(dispatcher.run())

    def _renewed(self, holds_until: float) -> None:
        self._holds_until = holds_until

    async def _run_machine(self) -> None:
        """The daemon ends turns in time; the guard fences what may be tried again."""
        while True:
            for session in list(self.log.values()):
                if session.report:
                    continue
                if _now() >= session.ends_at:
                    self._end(session, Report("completed", session.task.work_id))
                elif session.task.spec.retries and _now() >= self._holds_until:
                    self._end(session, Report("interrupted", was_fenced=True))
            await asyncio.sleep(TICK_S)

    def _end(self, session: _Session, report: Report) -> None:
        session.report = report
        session.ended.set()
        task = session.task
        self.world.runs.append(Run(task.id, task.work_id, self.name, session.began, _now()))

    async def work(self, task: Task, confirm: Confirm) -> Report:
        await asyncio.sleep(self.random.random() * 20)  # cloning
        if task.work_id not in self.log:
            await confirm("session", "commit")
            self.log[task.work_id] = _Session(task, self.random.random() * 90)
        session = self.log[task.work_id]
        await session.ended.wait()
        assert session.report
        return session.report

    async def release(self, task: Task) -> None:
        pass

    async def stop(self, task: Task) -> None:
        session = self.log.get(task.work_id)
        if session and not session.report:
            self._end(session, Report("interrupted"))


class World:
    """The broker, the hosts, and all that has run."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.is_broker_down = False
        self.leases, self.hosts = MemoryTable(LEASE_S), MemoryTable()
        self.tasks = MemoryTable()
        self.runs: list[Run] = []
        self.machines = [Host(self, f"host{n}", self.random.randint(1, 4)) for n in range(3)]
        self.dead: set[str] = set()
        """The instances that are lost for good."""

    def submit(self, number: int) -> None:
        retries = self.random.choice((0, 0, 1, 3))
        task = Task(f"T{number:03}", TaskSpec("do", "repo", retries=retries))
        self.tasks.write(task.id, encode(task), 0)

    def cancel(self) -> None:
        record = self.random.choice(self.tasks.all())
        if task := cancelled(decode_task(record.value)):
            self.tasks.write(record.key, encode(task), record.version)

    async def disturb(self) -> None:
        """Let one fault happen, and most of them end."""
        host = self.random.choice(self.machines)
        wait_s = self.random.choice((1.0, 10.0, 40.0, 90.0))
        fault: Callable[[Host, float], Coroutine[Any, Any, None]] = self.random.choice(
            (self._partition, self._kill_gateway, self._crash, self._stop_broker, self._cancel)
        )
        await fault(host, wait_s)

    async def _partition(self, host: Host, wait_s: float) -> None:
        host.is_partitioned = True
        await asyncio.sleep(wait_s)
        host.is_partitioned = False

    async def _kill_gateway(self, host: Host, wait_s: float) -> None:
        host.kill_gateway()
        await asyncio.sleep(wait_s)
        host.start_gateway()

    async def _crash(self, host: Host, wait_s: float) -> None:
        if not host.is_on:
            return
        host.crash()
        await asyncio.sleep(wait_s)
        if self.random.random() < 0.3:
            self.dead.add(host.instance)
            host.lose_state()
        host.boot()

    async def _stop_broker(self, _: Host, wait_s: float) -> None:
        self.is_broker_down = True
        await asyncio.sleep(wait_s)
        self.is_broker_down = False

    async def _cancel(self, _: Host, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        self.cancel()

    def all_tasks(self) -> list[Task]:
        return [decode_task(one.value) for one in self.tasks.all()]


async def play(world: World, tasks: int, faults: int) -> None:
    """Submit tasks and let faults happen meanwhile; then wait until nothing can change any more."""
    for host in world.machines:
        host.boot()
    for number in range(tasks):
        world.submit(number)
        await asyncio.sleep(world.random.random() * 3)
    async with asyncio.TaskGroup() as group:
        for _ in range(faults):
            group.create_task(world.disturb())
            await asyncio.sleep(world.random.random() * 30)
    for host in world.machines:
        host.is_partitioned = False
        host.start_gateway()
    await asyncio.sleep(QUIET_S)
    for host in world.machines:
        host.crash()


def check(world: World) -> None:
    """Each task has exactly one outcome, and no task ever ran twice at once."""
    for task in world.all_tasks():
        runs = sorted(run[3:] + run[1:2] for run in world.runs if run.task_id == task.id)
        for (_, ended, _), (began, _, _) in pairwise(runs):
            assert ended <= began, f"{task.id} ran twice at once: {runs}"
        if not task.spec.retries:
            assert len(runs) <= 1, f"{task.id} may run only once: {runs}"
        if task.state == "unknown":
            assert task.instance in world.dead, f"{task} is unknown, but its host is there"
            assert task.attempt > task.spec.retries or task.cancel
        else:
            assert task.state in {"done", "cancelled"}, f"{task} has not ended"
        if task.state == "done" and task.report and task.report.outcome == "completed":
            assert task.report.message == task.work_id, f"{task} has another attempt's report"
        assert structs.asdict(task)["attempt"] <= task.spec.retries + 1
