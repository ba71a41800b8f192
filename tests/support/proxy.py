"""Proxies inside the test: HTTP (forwarded requests, or tunnels) and SOCKS 5.

For any requested server they connect to its port on this machine, so names need not exist.
"""

import ipaddress
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

import trio


@dataclass
class LocalProxy:
    """A proxy that records its requests.

    `asked` holds HTTP request lines and SOCKS `host:port`; `credentials` holds the credentials
    that clients sent. With `wants`, a client must send these credentials.
    """

    port: int = 0
    wants: str = ""
    asked: list[str] = field(default_factory=list[str])
    credentials: list[str] = field(default_factory=list[str])

    def address(self, scheme: str = "http", user: str = "") -> str:
        return f"{scheme}://{user + '@' if user else ''}127.0.0.1:{self.port}"


@asynccontextmanager
async def proxying(
    kind: Literal["http", "socks5"] = "http",
    *,
    wants: str = "",
    tls: ssl.SSLContext | None = None,
) -> AsyncGenerator[LocalProxy]:
    """Run a proxy until the context ends; with `tls`, clients reach it by TLS."""
    proxy = LocalProxy(wants=wants)

    async def handle(connection: trio.SocketStream) -> None:
        client: trio.abc.Stream = connection
        if tls:
            client = trio.SSLStream(connection, tls, server_side=True, https_compatible=True)
        try:
            await (_http if kind == "http" else _socks)(proxy, client)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            await trio.aclose_forcefully(client)

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        proxy.port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, handle, listeners)
        yield proxy
        nursery.cancel_scope.cancel()


async def _http(proxy: LocalProxy, client: trio.abc.Stream) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        data += await client.receive_some()
    head, _, rest = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    proxy.asked.append(first)
    shown = fields.pop("proxy-authorization", "")
    proxy.credentials.append(shown)
    if proxy.wants and shown != proxy.wants:
        await client.send_all(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")
        return
    method, target, _ = first.split()
    if method == "CONNECT":
        port = target.rpartition(":")[2]
        server = await _open(client, int(port))
        await client.send_all(b"HTTP/1.1 200 OK\r\n\r\n")
        await _join(client, server, rest)
        return
    url = urlsplit(target)
    server = await _open(client, url.port or 80)
    path = url.path + (f"?{url.query}" if url.query else "")
    handed = "\r\n".join([f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in fields.items())])
    await _join(client, server, f"{handed}\r\n\r\n".encode() + rest)


async def _open(client: trio.abc.Stream, port: int) -> trio.SocketStream:
    try:
        return await trio.open_tcp_stream("127.0.0.1", port)
    except OSError:
        await client.send_all(b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n")
        raise trio.BrokenResourceError from None


async def _socks(proxy: LocalProxy, client: trio.abc.Stream) -> None:
    buffer = bytearray()

    async def take(size: int) -> bytes:
        while len(buffer) < size:
            piece = await client.receive_some()
            if not piece:
                raise trio.BrokenResourceError
            buffer.extend(piece)
        taken = bytes(buffer[:size])
        del buffer[:size]
        return taken

    methods = await take((await take(2))[1])
    if proxy.wants:
        if 2 not in methods:
            await client.send_all(b"\x05\xff")
            return
        await client.send_all(b"\x05\x02")
        await take(1)
        user = await take((await take(1))[0])
        password = await take((await take(1))[0])
        proxy.credentials.append(f"{user.decode()}:{password.decode()}")
        good = proxy.credentials[-1] == proxy.wants
        await client.send_all(b"\x01\x00" if good else b"\x01\x01")
        if not good:
            return
    else:
        await client.send_all(b"\x05\x00")
    kind = (await take(4))[3]
    if kind == 3:
        host = (await take((await take(1))[0])).decode()
    else:
        host = str(ipaddress.ip_address(await take(4 if kind == 1 else 16)))
    port = int.from_bytes(await take(2), "big")
    proxy.asked.append(f"{host}:{port}")
    try:
        server = await trio.open_tcp_stream("127.0.0.1", port)
    except OSError:
        await client.send_all(b"\x05\x05\x00\x01" + bytes(6))
        return
    await client.send_all(b"\x05\x00\x00\x01" + bytes(6))
    await _join(client, server, bytes(buffer))


async def _join(client: trio.abc.Stream, server: trio.SocketStream, first: bytes) -> None:
    async with server, trio.open_nursery() as nursery:
        if first:
            await server.send_all(first)
        nursery.start_soon(_pump, client, server)
        await _pump(server, client)
        nursery.cancel_scope.cancel()


async def _pump(source: trio.abc.Stream, sink: trio.abc.Stream) -> None:
    async for piece in source:
        await sink.send_all(piece)
