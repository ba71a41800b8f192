"""This host's place in the fleet: a record that expires unless it is renewed.

The broker's clock decides when it expires, so hosts' clocks do not matter. By its own monotonic
clock, counted from before the last renewal was sent, a host knows a time until which its lease
surely holds, and stops what others may then begin.
"""

import asyncio
from collections.abc import Callable

from tiller_client.errors import UsageError
from tiller_client.fleet.names import LEASE_S
from tiller_client.fleet.records import Presence, decode_presence, encode
from tiller_client.fleet.table import Conflict, Table, Unavailable

RENEW_S = LEASE_S / 4
"""Time between two renewals."""

HOLDS_S = LEASE_S * 2 / 3
"""How long a lease surely holds, which leaves a third of it to stop what runs."""

RETRY_S = 1.0


class NameTaken(UsageError):
    """Another host has this name."""


class Lease:
    """The lease of one host."""

    def __init__(
        self,
        leases: Table,
        host: str,
        instance: str,
        renewed: Callable[[float], None],
        clock: Callable[[], float],
    ) -> None:
        """`renewed` is told each time until when the lease holds, by `clock`.

        `clock` must not stand still while the machine sleeps.
        """
        self._clock = clock
        self._leases = leases
        self._host = host
        self.instance = instance
        self._presence = encode(Presence(instance))
        self._renewed = renewed
        self._version = 0
        self._sent = self._holds_until = 0.0
        self.problem = ""
        """Why the lease could not be renewed."""

    @property
    def left_s(self) -> float:
        """For how many seconds surely no other host takes over what runs here."""
        return self._holds_until - self._clock()

    @property
    def since_renewal_s(self) -> float:
        """Seconds since the last renewal was sent."""
        return self._clock() - self._sent

    async def keep(self) -> None:
        """Renew for ever; raises `NameTaken`."""
        while True:  # noqa: ASYNC110 - nobody sets an event
            await asyncio.sleep(RENEW_S if await self.renew() else RETRY_S)

    async def renew(self) -> bool:
        """Renew once; return false if the broker can't be reached. Raises `NameTaken`."""
        sent = self._clock()
        try:
            try:
                self._version = await self._leases.write(self._host, self._presence, self._version)
            except Conflict:
                self._version = await self._current()
                self._version = await self._leases.write(self._host, self._presence, self._version)
        except (Conflict, Unavailable) as error:
            self.problem = str(error)
            return False
        self.problem = ""
        self._sent = sent
        self._holds_until = sent + HOLDS_S
        self._renewed(self._holds_until)
        return True

    async def _current(self) -> int:
        """The version to replace: 0 if the lease has expired, or that of our own last write."""
        found = await self._leases.get(self._host)
        if found is None:
            return 0
        if decode_presence(found.value).instance != self.instance:
            raise NameTaken(
                f"another host of the fleet has the name {self._host}; set another `name` in "
                "[fleet]"
            )
        return found.version
