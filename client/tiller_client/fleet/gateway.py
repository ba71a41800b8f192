"""The gateway of one host: puts the parts together, and runs until it is stopped."""

import asyncio
import fcntl
import os
import platform
import signal
from collections.abc import Callable
from pathlib import Path

from msgspec import structs

from tiller_client.api.for_asyncio import Client
from tiller_client.errors import LinkLost, UsageError
from tiller_client.fleet import names
from tiller_client.fleet.agent import Agent
from tiller_client.fleet.broker import Broker
from tiller_client.fleet.dispatcher import Dispatcher, Tables
from tiller_client.fleet.guard import Guard, clock
from tiller_client.fleet.inbox import Inbox
from tiller_client.fleet.lease import Lease
from tiller_client.fleet.publications import Publications
from tiller_client.fleet.publisher import Publisher, is_delta
from tiller_client.fleet.reception import Reception
from tiller_client.fleet.records import HostInfo, decode_host, encode
from tiller_client.fleet.repositories import Repositories
from tiller_client.fleet.table import Bucket, Conflict, Table, Unavailable
from tiller_client.fleet.worker import SessionWorker
from tiller_protocol.fleet import Fleet
from tiller_protocol.ids import ULID_RANDOM_BYTES, Ulids
from tiller_protocol.places import Places

LOCK, INSTANCE, REPOSITORIES = "gateway.lock", "instance", "repositories"
"""Names in the gateway's directory."""

INFO_S = 2.0
"""How often the host's entry is brought up to date."""


def gateway_directory(places: Places) -> Path:
    """The gateway's directory: beside that of the daemon, which is hidden from commands."""
    return places.state.with_name(f"{places.state.name}-fleet")


async def run_gateway(settings: Fleet, places: Places, say: Callable[[str], None]) -> None:
    """Connect this host with the fleet, until SIGTERM or SIGINT ends the process.

    `say` gets a sentence about each change that a user should know. Raises `UsageError` if another
    gateway runs here or has the name, or if the broker refuses; `LinkLost` if it can't be reached
    at the start, and the errors of `DaemonConnection`. Then tasks may still run on the loop, and
    nobody should wait for them: before Python 3.12, `asyncio.wait_for`, which the client for NATS
    uses, can swallow a cancellation.
    """
    directory = gateway_directory(places)
    instance = _own(directory)
    assert settings.name
    host = settings.name
    _end_on_signals()
    async with (
        Broker(settings, f"tiller gateway {host}") as broker,
        Client("tiller gateway", places=places) as client,
        Publications(places) as publications,
    ):
        # The daemon was started if necessary. Who stops it later wants it stopped.
        client.blocking.pool.leaves_stopped = True
        await broker.prepare()
        buckets = (names.LEASES, names.HOSTS, names.TASKS)
        tables = Tables(*(Bucket(broker, name) for name in buckets))
        guard = Guard(directory)
        lease = Lease(tables.leases, host, instance, guard.renewed, clock)
        if not await lease.renew():
            raise LinkLost(lease.problem)
        publisher = Publisher(broker, host, client)
        repositories = Repositories(directory / REPOSITORIES)
        worker = SessionWorker(client, broker, publisher, repositories, guard)
        reception = Reception(broker, host, client, publications)
        inbox = Inbox(broker, host, lease, tables.leases, reception.execute)

        def note(topic: str, body: bytes) -> None:
            if not is_delta(body):
                publisher.note(topic)
                worker.note(topic)

        publications.subscribe(note, publisher.look)
        dispatcher = Dispatcher(
            host,
            settings.labels,
            settings.slots,
            lease=lease,
            tables=tables,
            worker=worker,
        )
        info = _info_of(settings, client)
        await reception.start()
        if settings.workspace:
            await Agent(broker, host, client, Path(settings.workspace)).start()
        # Who reads this may ask at once.
        say(f"{host} is in the fleet, with {settings.slots} slots")
        work = [one.run() for one in (publisher, dispatcher, reception, inbox)]
        work += [lease.keep(), broker.until_closed()]
        work += [_keep_info(tables.hosts, info, (lease, worker, publisher), say)]
        tasks = [asyncio.create_task(one) for one in work]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        done.pop().result()


def _end_on_signals() -> None:
    """Let a signal end the process at once: a gateway may be killed at any time without a loss."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, os._exit, 0)


def _info_of(settings: Fleet, client: Client) -> HostInfo:
    return HostInfo(
        settings.name or "",
        client.hello.daemon_version,
        platform.platform(terse=True),
        str(Path.home()),
        settings.labels,
        settings.slots,
    )


def _own(directory: Path) -> str:
    """Lock the directory until this process ends, and return the host's instance."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError("a gateway runs here already") from None
    file = directory / INSTANCE
    if not file.exists():
        new = file.with_suffix(".new")
        new.write_text(Ulids().make(0, os.urandom(ULID_RANDOM_BYTES)), "ascii")
        new.replace(file)
    return file.read_text("ascii")


async def _keep_info(
    hosts: Table,
    info: HostInfo,
    parts: tuple[Lease, SessionWorker, Publisher],
    say: Callable[[str], None],
) -> None:
    """Keep the host's entry up to date, and tell the user about problems."""
    told = ""
    written: HostInfo | None = None
    while True:
        problem = next((one.problem for one in parts if one.problem), "")
        if problem != told:
            say(problem or "all is well again")
            told = problem
        info = structs.replace(info, problem=problem)
        if info != written:
            try:
                found = await hosts.get(info.name)
                if found is None or decode_host(found.value) != info:
                    await hosts.write(info.name, encode(info), found.version if found else 0)
                written = info
            except (Conflict, Unavailable):
                pass  # the next time
        await asyncio.sleep(INFO_S)
