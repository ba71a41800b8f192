"""The far end of links to a host of a fleet, by itself, and the roles that docs/fleet.md shows."""

import asyncio
import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

from support.fleet import TIMEOUT_S, Broker
from tiller_client.api.for_asyncio import Client
from tiller_client.fleet import broker, names
from tiller_client.fleet.publications import Publications
from tiller_client.fleet.reception import Reception
from tiller_client.fleet.records import HostInfo, encode
from tiller_client.fleet.table import Bucket, Conflict
from tiller_protocol.fleet import Fleet
from tiller_protocol.places import Places

PAGE = Path(__file__).parents[2] / "docs" / "fleet.md"

(ROLES,) = re.findall(r"test_permissions.py -->\n```\n(.*?)```", PAGE.read_text(), re.DOTALL)
"""The configuration of a NATS server with the following users."""

GATEWAY, DRIVER, VIEWER = "box:secret-1", "ann:secret-2", "bob:secret-3"


def url(server: Broker, credentials: str = DRIVER) -> str:
    """The address of a server, with credentials."""
    return f"nats://{credentials}@127.0.0.1:{server.port}"


class FarHost:
    """The far end of links to a host, in a thread of its own; a context manager."""

    def __init__(self, address: str, name: str, places: Places) -> None:
        """`places` are those of the host's daemon."""
        self._settings = Fleet(servers=(address,))
        self.name = name
        self._places = places
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_up = threading.Event()

    def __enter__(self) -> Self:
        self._is_up.clear()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        assert self._is_up.wait(TIMEOUT_S)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop
        assert self._task
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        client = Client("tiller gateway", places=self._places)
        client.blocking.pool.leaves_stopped = True
        async with (
            broker.Broker(self._settings, self.name) as connected,
            Publications(self._places) as publications,
        ):
            await connected.prepare()
            info = HostInfo(self.name, "1", "Linux", str(self._places.config.parent))
            with suppress(Conflict):
                await Bucket(connected, names.HOSTS).write(self.name, encode(info), 0)
            reception = Reception(connected, self.name, client, publications)
            await reception.start()
            self._task = asyncio.create_task(reception.run())
            self._is_up.set()
            try:
                await self._task
            except asyncio.CancelledError:
                pass
            finally:
                client.blocking.close()
