"""The two sockets of a daemon, on asyncio, for frontends that use a link.

They speak nng's wire format (`nng_pipe`). A frontend that does not read its publications loses its
connection for events; it then connects again and replays.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from tiller_client.connecting.nng_pipe import (
    GREETING_BYTES,
    HEADER_BYTES,
    MESSAGE,
    PUB,
    REP,
    REQ,
    SUB,
    greeting,
)
from tiller_client.connecting.sockets import LAST_PART, REQUEST_ID_BYTES
from tiller_protocol.codec import MESSAGE_BYTES_MAX, encode_publication
from tiller_protocol.places import EVENTS_SOCKET, OPS_SOCKET

Handler = Callable[[bytes], Awaitable[bytes | None]]
"""Returns the answer to a request, or `None` to close the connection; never raises."""

REQUESTS_MAX = 64
"""The most requests in progress on one connection; others wait unread."""

UNREAD_BYTES_MAX = 8 * 1024 * 1024
"""The most bytes that wait for a frontend to read them, before another one is sent."""

ROUTE_PARTS_MAX = 15
"""The longest route of a request, as in nng."""

SOCKET_MODE = 0o600


class Sockets:
    """Listens in a private directory while it is entered; an asynchronous context manager."""

    def __init__(self, directory: Path, handler: Handler) -> None:
        """Answer requests with `handler`."""
        self._directory = directory
        self._handler = handler
        self._subscribers: set[asyncio.StreamWriter] = set()
        self._connections: set[asyncio.StreamWriter] = set()
        self._answering: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []

    async def __aenter__(self) -> Self:
        # Events come first, so that a frontend that can submit can also subscribe.
        for name, serve in ((EVENTS_SOCKET, self._serve_events), (OPS_SOCKET, self._serve_ops)):
            path = self._directory / name
            self._servers.append(await asyncio.start_unix_server(serve, path))
            path.chmod(SOCKET_MODE)
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for name in (OPS_SOCKET, EVENTS_SOCKET):
            (self._directory / name).unlink(missing_ok=True)
        for task in self._answering:
            task.cancel()
        for writer in self._connections:
            writer.transport.abort()

    @property
    def is_used(self) -> bool:
        """Whether a frontend is connected."""
        return bool(self._connections)

    def publish(self, topic: str, body: bytes) -> None:
        """Send a publication to all frontends that have subscribed."""
        message = _framed(encode_publication(topic, body))
        for writer in list(self._subscribers):
            if writer.transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
                writer.transport.abort()
            else:
                writer.write(message)

    def drop_subscribers(self) -> None:
        """Close the connections for events, as some may be missing; frontends replay."""
        for writer in self._subscribers:
            writer.transport.abort()

    async def _serve_events(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._connections.add(writer)
        with suppress(OSError, EOFError):
            await _greet(reader, writer, PUB, SUB)
            self._subscribers.add(writer)
            while await reader.read(MESSAGE_BYTES_MAX):
                pass  # subscribers have nothing to say
        self._subscribers.discard(writer)
        self._close(writer)

    async def _serve_ops(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        free = asyncio.Semaphore(REQUESTS_MAX)
        with suppress(OSError, EOFError):
            await _greet(reader, writer, REP, REQ)
            while True:
                route, request = _routed(await _receive(reader))
                await free.acquire()
                task = asyncio.create_task(self._answer(writer, route, request))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
                task.add_done_callback(lambda _: free.release())
        self._close(writer)

    async def _answer(self, writer: asyncio.StreamWriter, route: bytes, request: bytes) -> None:
        answer = await self._handler(request)
        if answer is None:
            writer.transport.abort()
            return
        with suppress(OSError):
            writer.write(_framed(route + answer))
            await writer.drain()

    def _close(self, writer: asyncio.StreamWriter) -> None:
        self._connections.discard(writer)
        writer.close()


async def _greet(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, own: int, peer: int
) -> None:
    writer.write(greeting(own))
    if await reader.readexactly(GREETING_BYTES) != greeting(peer):
        raise EOFError


async def _receive(reader: asyncio.StreamReader) -> bytes:
    """Read a message; raises `EOFError` if the peer is gone or sends something else."""
    header = await reader.readexactly(HEADER_BYTES)
    length = int.from_bytes(header[len(MESSAGE) :], "big")
    if not header.startswith(MESSAGE) or length > MESSAGE_BYTES_MAX + 4 * ROUTE_PARTS_MAX:
        raise EOFError
    return await reader.readexactly(length)


def _routed(message: bytes) -> tuple[bytes, bytes]:
    """Split a message into the route back and the request; raises `EOFError` without a route.

    The route has numbers of 4 bytes, of which only the last has its highest bit set.
    """
    for end in range(REQUEST_ID_BYTES, REQUEST_ID_BYTES * ROUTE_PARTS_MAX + 1, REQUEST_ID_BYTES):
        number = message[end - REQUEST_ID_BYTES : end]
        if len(number) == REQUEST_ID_BYTES and int.from_bytes(number, "big") & LAST_PART:
            return message[:end], message[end:]
    raise EOFError


def _framed(body: bytes) -> bytes:
    return MESSAGE + len(body).to_bytes(8, "big") + body
