"""The connections to one server that are kept between requests."""

import ssl
from collections import deque
from typing import Final

import trio

from tiller_daemon.http.connection import Exchange, Response, perform
from tiller_daemon.http.failures import Broken
from tiller_daemon.http.route import Route, connect
from tiller_daemon.http.wire import Wire

CONNECTIONS_MAX: Final = 1_000
"""Maximum number of concurrent requests to one server. Further requests wait their turn."""

IDLE_S: Final = 60.0
"""How long an idle connection is kept. Tools often run that long between two requests."""

WRITE_S: Final = 30.0
"""Limit for sending one piece of a request; images take long over slow connections."""


class Pool:
    """The connections to one server. Opening one may take up to `connect_s` seconds.

    The newest idle connection is used first, so that the others expire.
    """

    def __init__(self, route: Route, connect_s: float) -> None:
        self.tls: ssl.SSLContext | None = None
        """Must be set before the first request if the route needs TLS."""
        self._route = route
        self._connect_s = connect_s
        self._idle: deque[tuple[float, Wire]] = deque()
        self._slots = trio.Semaphore(CONNECTIONS_MAX)

    async def request(self, data: bytes) -> Response:
        """Send a request and return the response once its head is there. The caller must close it.

        If the request fails on a kept connection before the response begins, it is sent once more
        on a new connection: a server may close an idle one just when a request arrives. Raises
        `HttpFailure`.
        """
        try:
            self._slots.acquire_nowait()
        except trio.WouldBlock:
            await self._slots.acquire()
        try:
            exchange = Exchange(data, WRITE_S, self._give_back)
            if (wire := self._take_idle()) is not None:
                try:
                    return await perform(wire, exchange)
                except Broken as error:
                    if error.has_begun:
                        raise
            wire = await connect(self._route, self.tls, self._connect_s)
            return await perform(wire, exchange)
        except BaseException:
            self._slots.release()
            raise

    def close(self) -> None:
        """Close the idle connections. All responses must be closed already."""
        for _, wire in self._idle:
            wire.close()
        self._idle.clear()

    def _take_idle(self) -> Wire | None:
        self._close_expired()
        while self._idle:
            _, wire = self._idle.pop()
            if wire.is_quiet():
                return wire
            wire.close()
        return None

    def _give_back(self, wire: Wire | None) -> None:
        self._slots.release()
        if wire is not None:
            self._idle.append((trio.current_time() + IDLE_S, wire))
        self._close_expired()

    def _close_expired(self) -> None:
        now = trio.current_time()
        while self._idle and self._idle[0][0] <= now:
            self._idle.popleft()[1].close()
