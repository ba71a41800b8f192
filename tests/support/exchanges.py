"""Helpers for tests of connections: a pool for a local server, and complete responses."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import trio

from support.http_server import LocalServer
from tiller_daemon.http.connection import Exchange, Response, perform
from tiller_daemon.http.head import make_request
from tiller_daemon.http.pool import Pool
from tiller_daemon.http.route import Route
from tiller_daemon.http.wire import PlainWire, Wire

LIMIT_S = 20.0
REQUEST = make_request("POST", "/x", [("Host", "h")], b"{}")


class Whole(NamedTuple):
    """A response that was read to its end."""

    status: int
    content: bytes


@asynccontextmanager
async def pooled(server: LocalServer, **route: Any) -> AsyncGenerator[Pool]:
    """A pool of connections to a server."""
    pool = Pool(Route("http", "127.0.0.1", server.port, **route), LIMIT_S)
    try:
        yield pool
    finally:
        pool.close()


async def ask(pool: Pool, request: bytes = REQUEST) -> Whole:
    """Send a request and read the whole response."""
    response = await pool.request(request)
    try:
        return Whole(response.head.status, await read(response))
    finally:
        response.close()


async def read(response: Response) -> bytes:
    """The rest of the body."""
    content = b""
    while piece := await response.receive(LIMIT_S):
        content += piece
    return content


async def wire_pair() -> tuple[Wire, trio.SocketStream]:
    """A wire, and the stream at its other end."""
    ours, theirs = trio.socket.socketpair()
    return PlainWire(trio.SocketStream(ours)), trio.SocketStream(theirs)


async def perform_once(wire: Wire, request: bytes = REQUEST, write_s: float = LIMIT_S) -> Response:
    """Send a request on a wire, which is closed with the response."""

    def end(kept: Wire | None) -> None:
        if kept is not None:
            kept.close()

    return await perform(wire, Exchange(request, write_s, end))
