"""Asks a proxy to connect to a server, by HTTP's CONNECT or by SOCKS 5.

Afterwards, the wire to the proxy leads to the server.
"""

from base64 import b64encode
from typing import Final

from tiller_daemon.config.http_proxy import Proxy
from tiller_daemon.http.failures import Broken, InvalidAddress, ProxyFailed
from tiller_daemon.http.head import HeadReader, make_request
from tiller_daemon.http.wire import Wire

UNAUTHORIZED: Final = 407

FIELD_BYTES_MAX: Final = 255
"""Maximum length of a host name, a user name and a password in SOCKS 5."""

_SUCCESS: Final = range(200, 300)

_METHODS: Final = {
    b"\x00": "NO AUTHENTICATION REQUIRED",
    b"\x01": "GSSAPI",
    b"\x02": "USERNAME/PASSWORD",
    b"\xff": "NO ACCEPTABLE METHODS",
}
_REFUSALS: Final = {
    b"\x01": "General SOCKS server failure",
    b"\x02": "Connection not allowed by ruleset",
    b"\x03": "Network unreachable",
    b"\x04": "Host unreachable",
    b"\x05": "Connection refused",
    b"\x06": "TTL expired",
    b"\x07": "Command not supported",
    b"\x08": "Address type not supported",
}
_ADDRESS_BYTES: Final = {1: 4, 4: 16}
"""The length of an address in a reply, by its type: 1 is IPv4, 4 is IPv6."""

_VERSION: Final = b"\x05"
_EARLY: Final = "the proxy sent unexpected data after its reply"
_MALFORMED: Final = "Malformed reply"
_REFUSED_LOGIN: Final = "Invalid username/password"


def credentials_of(proxy: Proxy) -> list[tuple[str, str]]:
    """Return the header that logs in to an HTTP proxy, if it needs a login."""
    if not proxy.user:
        return []
    packed = b64encode(f"{proxy.user}:{proxy.password}".encode()).decode()
    return [("Proxy-Authorization", f"Basic {packed}")]


async def connect_by_http(wire: Wire, proxy: Proxy, host: str, port: int) -> None:
    """Ask an HTTP proxy to connect to a server. Raises `ProxyFailed` and `Broken`."""
    name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    fields = [("Host", name), ("Accept", "*/*"), *credentials_of(proxy)]
    await wire.send(make_request("CONNECT", name, fields))
    reader = HeadReader()
    while (read := reader.feed(await wire.receive())) is None:
        pass
    head, rest = read
    if head.status not in _SUCCESS:
        reason = f"{head.status} {head.reason}"
        raise ProxyFailed(reason, rejects_credentials=head.status == UNAUTHORIZED)
    if rest:
        raise Broken(_EARLY)


async def connect_by_socks(wire: Wire, proxy: Proxy, host: str, port: int) -> None:
    """Ask a SOCKS proxy to connect to a server, whose name the proxy resolves.

    Raises `ProxyFailed`, `Broken` and `InvalidAddress`.
    """
    from socksio import ProtocolError

    reader = _ExactReader(wire)
    try:
        await _agree_on_login(reader, proxy)
        await _ask(reader, host, port)
    except (ProtocolError, UnicodeError):
        raise ProxyFailed(_MALFORMED) from None
    reader.check_empty()


async def _agree_on_login(reader: "_ExactReader", proxy: Proxy) -> None:
    from socksio import socks5

    wanted = socks5.SOCKS5AuthMethod.NO_AUTH_REQUIRED
    if proxy.user:
        wanted = socks5.SOCKS5AuthMethod.USERNAME_PASSWORD
    await reader.wire.send(socks5.SOCKS5AuthMethodsRequest([wanted]).dumps())
    method = socks5.SOCKS5AuthReply.loads(await reader.take(2)).method
    if method != wanted:
        reason = f"Requested {_METHODS[wanted.value]} from proxy server"
        reason += f", but got {_METHODS[method.value]}."
        raise ProxyFailed(reason, rejects_credentials=True)
    if not proxy.user:
        return
    user, password = proxy.user.encode(), proxy.password.encode()
    if max(len(user), len(password)) > FIELD_BYTES_MAX:
        raise ProxyFailed(_REFUSED_LOGIN, rejects_credentials=True)
    await reader.wire.send(socks5.SOCKS5UsernamePasswordRequest(user, password).dumps())
    if not socks5.SOCKS5UsernamePasswordReply.loads(await reader.take(2)).success:
        raise ProxyFailed(_REFUSED_LOGIN, rejects_credentials=True)


async def _ask(reader: "_ExactReader", host: str, port: int) -> None:
    from socksio import socks5

    if len(host) > FIELD_BYTES_MAX:
        raise InvalidAddress("the name of the host is too long")
    request = socks5.SOCKS5CommandRequest.from_address(socks5.SOCKS5Command.CONNECT, (host, port))
    await reader.wire.send(request.dumps())
    start = await reader.take(4)
    if start[:1] == _VERSION and (refusal := _REFUSALS.get(start[1:2])):
        raise ProxyFailed(f"Proxy Server could not connect: {refusal}.")
    size = _ADDRESS_BYTES.get(start[3])
    if size is None:
        size = (await reader.take(1))[0]
    socks5.SOCKS5Reply.loads(start + await reader.take(size + 2))


class _ExactReader:
    """Reads messages of known size, because `socksio` parses only whole messages."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._buffer = b""

    async def take(self, size: int) -> bytes:
        """Return exactly `size` bytes."""
        while len(self._buffer) < size:
            data = await self.wire.receive()
            if not data:
                raise ProxyFailed("the proxy closed the connection")
            self._buffer += data
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def check_empty(self) -> None:
        """Raise `Broken` if data is left over."""
        if self._buffer:
            raise Broken(_EARLY)
