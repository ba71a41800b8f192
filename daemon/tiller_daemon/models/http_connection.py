"""A connection to a server: opened straight or by a proxy, encrypted or not.

Knows HTTP/1.1 and no provider: what an answer means is in `http_client`. The head of an answer is
read by `h11`, its body by `http_body`. Failures are those of the system, trio and h11, but for
what concerns a proxy: that is a `ProxyError`.
"""

import math
import os
import select
import ssl
import sys

import h11
import trio
from msgspec import Struct

from tiller_daemon.models.http_body import BodyReader
from tiller_daemon.models.http_proxy import PROXY_WANTS_NAME, Proxy, ProxyError

READ_BYTES = 64 * 1024
HEAD_BYTES_MAX = 64 * 1024
"""Longest head of an answer; servers take 8 to 64 KiB from their clients."""

WRITE_BYTES = 64 * 1024
WRITE_S = 30.0
"""How long a server may take for so much of a request; slow lines take long for images."""

SOCKS_REFUSALS = {
    2: "its rules do not allow it",
    3: "it can't reach the network",
    4: "it can't reach the host",
    5: "the server refuses connections",
}


class Route(Struct, frozen=True):
    """The way to a server."""

    host: str
    port: int
    tls: bool
    proxy: Proxy | None = None

    @property
    def is_forwarded(self) -> bool:
        """Whether the proxy reads the requests and must be told the whole address in them."""
        return self.proxy is not None and self.proxy.scheme != "socks5" and not self.tls

    @property
    def encrypts(self) -> bool:
        """Whether any part of it is encrypted."""
        return self.tls or (self.proxy is not None and self.proxy.scheme == "https")


class Head(Struct, frozen=True):
    """The head of an answer; names of headers are in lower case."""

    status: int
    headers: dict[str, str]


class Connection:
    """One open connection, which belongs to one request at a time.

    `used` says that an answer has come over it, `idle_since` when that was: its server may have
    closed it since. `raw` is the socket under `stream`.
    """

    def __init__(self, stream: trio.abc.Stream, raw: trio.socket.SocketType) -> None:
        self.used = False
        self.idle_since = -math.inf
        self._stream = stream
        self._raw = raw

    @property
    def is_stale(self) -> bool:
        """Whether an idle connection has something to read, which can only be its end."""
        poll = select.poll()
        poll.register(self._raw.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Close it at once, whatever is under way on it."""
        self._raw.close()

    async def send(self, data: bytes) -> None:
        """Send all of it; raises `trio.TooSlowError` when the server does not take it."""
        for place in range(0, len(data), WRITE_BYTES):
            with trio.fail_after(WRITE_S):
                await self._stream.send_all(data[place : place + WRITE_BYTES])

    async def receive(self) -> bytes:
        """The next bytes; none when the server has closed the connection."""
        return bytes(await self._stream.receive_some(READ_BYTES))

    async def receive_head(self, protocol: h11.Connection) -> tuple[Head, BodyReader, bytes]:
        """The head of an answer, the reader of its body, and what came of that already.

        `protocol` has sent the request.
        """
        while not isinstance(event := protocol.next_event(), h11.Response):
            if event is h11.NEED_DATA:
                protocol.receive_data(await self.receive())
            elif not isinstance(event, h11.InformationalResponse):
                raise h11.RemoteProtocolError("it was closed without an answer")
        self.used = True
        headers: dict[str, str] = {}
        for name, value in event.headers:
            field, text = name.decode(), value.decode("latin-1")
            headers[field] = f"{headers[field]}, {text}" if field in headers else text
        keeps_alive = (
            event.http_version == b"1.1" and "close" not in headers.get("connection", "").lower()
        )
        body = BodyReader(event.status_code, headers, keeps_alive=keeps_alive)
        return Head(event.status_code, headers), body, body.feed(protocol.trailing_data[0])


def begin(request: h11.Request) -> tuple[h11.Connection, bytes]:
    """The protocol of one exchange, and the head of its request as bytes."""
    protocol = h11.Connection(h11.CLIENT, HEAD_BYTES_MAX)
    return protocol, protocol.send(request) or b""


async def connect(route: Route, context: ssl.SSLContext | None) -> Connection:
    """Open a connection along `route`; `context` is needed when anything of it is encrypted."""
    proxy = route.proxy
    if proxy is None:
        tcp = await trio.open_tcp_stream(route.host, route.port)
    else:
        tcp = await _reach(proxy)
    raw = tcp.socket
    try:
        stream: trio.abc.Stream = tcp
        if proxy and proxy.scheme == "https":
            stream = await _encrypt(stream, proxy.host, context)
        if proxy and not route.is_forwarded:
            ask = _ask_socks if proxy.scheme == "socks5" else _ask_tunnel
            await ask(Connection(stream, raw), route, proxy)
        if route.tls:
            stream = await _encrypt(stream, route.host, context)
    except BaseException:
        raw.close()
        raise
    return Connection(stream, raw)


def make_tls_context(ca_file: str | None) -> ssl.SSLContext:
    """The certificates that are trusted: those of the system, or of the variables of OpenSSL.

    Those in `ca_file` come on top. Takes 20 to 100 ms, so call it in a thread. Raises `OSError` for
    a file that can't be read or holds none.
    """
    if sys.platform == "darwin" and not os.environ.get("SSL_CERT_FILE"):
        import truststore

        context: ssl.SSLContext = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    else:
        context = ssl.create_default_context()
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    context.set_alpn_protocols(["http/1.1"])
    return context


async def _reach(proxy: Proxy) -> trio.SocketStream:
    try:
        return await trio.open_tcp_stream(proxy.host, proxy.port)
    except OSError as error:
        raise ProxyError("it can't be reached") from error


async def _encrypt(
    stream: trio.abc.Stream, host: str, context: ssl.SSLContext | None
) -> trio.SSLStream[trio.abc.Stream]:
    assert context is not None
    encrypted = trio.SSLStream(stream, context, server_hostname=host, https_compatible=True)
    await encrypted.do_handshake()
    return encrypted


async def _ask_tunnel(connection: Connection, route: Route, proxy: Proxy) -> None:
    """Have an HTTP proxy connect us through."""
    host = f"[{route.host}]" if ":" in route.host else route.host
    authority = f"{host}:{route.port}"
    headers = [("Host", authority), ("User-Agent", "tiller")]
    if proxy.authorization:
        headers.append(("Proxy-Authorization", proxy.authorization))
    request = h11.Request(method="CONNECT", target=authority, headers=headers)
    protocol, data = begin(request)
    await connection.send(data)
    head, _, early = await connection.receive_head(protocol)
    if head.status == 407:
        raise ProxyError(PROXY_WANTS_NAME, final=True)
    if not 200 <= head.status < 300 or early:
        raise ProxyError(f"it does not connect through (HTTP {head.status})")


async def _ask_socks(connection: Connection, route: Route, proxy: Proxy) -> None:
    """Have a SOCKS proxy connect us through; it looks the name up (RFC 1928, RFC 1929)."""
    buffer = bytearray()

    async def take(size: int) -> bytes:
        while len(buffer) < size:
            received = await connection.receive()
            if not received:
                raise ProxyError("it closed the connection")
            buffer.extend(received)
        taken = bytes(buffer[:size])
        del buffer[:size]
        return taken

    user, password = proxy.user.encode(), proxy.password.encode()
    await connection.send(b"\x05\x02\x00\x02" if user else b"\x05\x01\x00")
    version, method = await take(2)
    if version != 5 or method not in (0, 2):
        raise ProxyError(PROXY_WANTS_NAME if version == 5 else "it is no SOCKS 5 proxy", final=True)
    if method == 2:
        known = bytes([len(user)]) + user + bytes([len(password)]) + password
        await connection.send(b"\x01" + known)
        if (await take(2))[1] != 0:
            raise ProxyError("it does not accept the name and the password", final=True)
    name = route.host.encode("idna")
    wanted = bytes([len(name)]) + name + route.port.to_bytes(2, "big")
    await connection.send(b"\x05\x01\x00\x03" + wanted)
    _, reply, _, kind = await take(4)
    if reply != 0:
        raise ProxyError(SOCKS_REFUSALS.get(reply, "it failed to connect us"))
    await take({1: 4, 4: 16}.get(kind) or (await take(1))[0])
    await take(2)
