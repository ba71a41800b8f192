"""A tiny HTTP server inside the test, which answers with the bytes that a test wants, or breaks.

It shows faults that no real server can be made to show. Real servers are in `support.peers`.
"""

import json
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

Answer = Callable[[trio.abc.Stream], Awaitable[None]]
"""Writes one answer. When it returns, the connection is closed unless it was `kept`."""

EVENT_STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


@dataclass
class Received:
    """One request as it was received."""

    path: str
    headers: dict[str, str]
    body: Any
    data: bytes = b""
    """The body as it was received."""
    method: str = ""


@dataclass
class LocalServer:
    """A server that gives `answers` in turn and repeats the last."""

    port: int
    answers: list[Answer]
    received: list[Received] = field(default_factory=list[Received])
    connections: int = 0
    open_connections: int = 0
    """The number of connections that are not closed yet."""

    client_closed: trio.Event = field(default_factory=trio.Event)
    """Set when a client closes its connection during an answer."""

    scheme: str = "http"

    lists: bool = True
    """Whether `GET /models` is answered with `listing`, or like any other request."""

    listing: dict[str, Any] | None = None
    """The answer to `GET /models`; with None the answer is 404."""

    listed: int = 0
    """How often the models were requested; such a request is not in `received` or `answers`."""

    arrived: trio.Event = field(default_factory=trio.Event)
    """Set when the next request has been received."""

    async def until_received(self, count: int) -> None:
        """Wait until so many requests were received."""
        while len(self.received) < count:
            await self.arrived.wait()

    @property
    def base_url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/v1"


def serving(
    *answers: Answer, port: int = 0, tls: ssl.SSLContext | None = None, lists: bool = True
) -> AbstractAsyncContextManager[LocalServer]:
    """Serve `answers`, one for each request, at `port` or any free port.

    With `tls`, encrypt with its certificate. Without `lists`, a request for the list of models is
    like any other request.
    """
    return _serving(list(answers), port, tls, lists=lists)


def raw(data: bytes) -> Answer:
    """Make an answer that sends these bytes and then closes the connection."""

    async def answer(stream: trio.abc.Stream) -> None:
        await stream.send_all(data)

    return answer


def status(code: int, body: bytes | dict[str, Any] = b"", **headers: str) -> Answer:
    """Make a complete answer that is no stream; `_` in a header's name stands for `-`."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {"Content-Length": str(len(text)), "Connection": "close", **headers}
    head = "".join(f"{key.replace('_', '-')}: {value}\r\n" for key, value in fields.items())
    return raw(f"HTTP/1.1 {code} Status\r\n{head}\r\n".encode() + text)


def events(*frames: bytes, end: bool = True, keep: bool = False) -> Answer:
    """Make an event stream, each frame in its own chunk; without `end` the connection breaks."""

    async def answer(stream: trio.abc.Stream) -> None:
        head = EVENT_STREAM if keep else EVENT_STREAM[:-2] + b"Connection: close\r\n\r\n"
        await stream.send_all(head + b"".join(chunk(frame) for frame in frames))
        if end:
            await stream.send_all(b"0\r\n\r\n")
        if keep:
            raise KeepAlive

    return answer


def hanging(*frames: bytes) -> Answer:
    """Make an event stream that is silent after `frames`, until the client closes it."""

    async def answer(stream: trio.abc.Stream) -> None:
        await stream.send_all(EVENT_STREAM + b"".join(chunk(frame) for frame in frames))
        await wait_closed(stream)

    return answer


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


async def wait_closed(stream: trio.abc.Stream) -> None:
    """Wait until the client closes the connection."""
    while await stream.receive_some():
        pass
    raise ClientClosed


class KeepAlive(Exception):
    """Raised by an answer after which the connection takes another request."""


class ClientClosed(Exception):
    """Raised by an answer that saw the client close the connection."""


@asynccontextmanager
async def _serving(answers: list[Answer], port: int, tls: ssl.SSLContext | None, *, lists: bool):
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
        server = LocalServer(listeners[0].socket.getsockname()[1], answers)
        server.scheme = "https" if tls else "http"
        server.lists = lists

        async def handle(stream: trio.SocketStream) -> None:
            server.connections += 1
            server.open_connections += 1
            try:
                if tls is None:
                    await _handle(server, stream)
                else:
                    encrypted = trio.SSLStream(stream, tls, server_side=True, https_compatible=True)
                    await _handle(server, encrypted)
            finally:
                server.open_connections -= 1

        nursery.start_soon(trio.serve_listeners, handle, listeners)
        yield server
        nursery.cancel_scope.cancel()


async def _handle(server: LocalServer, stream: trio.abc.Stream) -> None:
    try:
        while (request := await _read_request(stream)) is not None:
            if server.lists and request.path.endswith("/models") and not request.data:
                await _list(server, stream)
                continue
            server.received.append(request)
            server.arrived.set()
            server.arrived = trio.Event()
            answer = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
            try:
                await answer(stream)
            except KeepAlive:
                continue
            return
    except ClientClosed:
        server.client_closed.set()
    except trio.BrokenResourceError:
        server.client_closed.set()
    finally:
        await trio.aclose_forcefully(stream)


async def _list(server: LocalServer, stream: trio.abc.Stream) -> None:
    server.listed += 1
    body = json.dumps(server.listing or {}).encode()
    head = f"HTTP/1.1 {200 if server.listing else 404} Status\r\nContent-Length: {len(body)}\r\n"
    await stream.send_all(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)


async def _read_request(stream: trio.abc.Stream) -> Received | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = await stream.receive_some()
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        piece = await stream.receive_some()
        if not piece:
            return None
        body += piece
    is_form = "urlencoded" in headers.get("content-type", "")
    told = None if is_form else json.loads(body or b"null")
    return Received(first.split()[1], headers, told, body, first.split()[0])
