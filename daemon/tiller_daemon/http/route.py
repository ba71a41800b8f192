"""Opens connections to servers, directly or through a proxy, with TLS where the URL requires it."""

import ssl
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

import trio
from msgspec import Struct

from tiller_daemon.config.http_proxy import Proxy
from tiller_daemon.http.failures import (
    ConnectFailed,
    ConnectTimedOut,
    InvalidAddress,
    NotPermitted,
)
from tiller_daemon.http.proxies import connect_by_http, connect_by_socks
from tiller_daemon.http.tls import TlsWire
from tiller_daemon.http.wire import PlainWire, Wire

PORTS: Final = {"http": 80, "https": 443}

IpAddress = IPv4Address | IPv6Address


class Route(Struct, frozen=True):
    """How to reach a server."""

    scheme: str
    """`http` or `https`."""

    host: str
    """The name or address of the server, without brackets."""

    port: int
    """The port of the server."""

    proxy: Proxy | None = None
    """The proxy to go through, if any."""

    may_reach: Callable[[IpAddress], bool] | None = None
    """Whether an address is permitted; None permits all. Unused if a proxy resolves the name."""

    @property
    def needs_tls(self) -> bool:
        """Whether any part of the connection is encrypted."""
        return "https" in (self.scheme, self.proxy and self.proxy.scheme)

    @property
    def is_forwarded(self) -> bool:
        """Whether a proxy reads the requests, which must then contain the whole URL."""
        return self.proxy is not None and self.scheme == "http" and self.proxy.scheme != "socks5"


async def connect(route: Route, tls: ssl.SSLContext | None, limit_s: float) -> Wire:
    """Return a new connection, ready for a request.

    `tls` is required if the route `needs_tls`. Raises `HttpFailure`.
    """
    with trio.move_on_after(limit_s):
        proxy = route.proxy
        if proxy is None:
            wire = await _reach(route)
        else:
            wire = await _open_tcp(proxy.host, proxy.port)
        try:
            if proxy is not None:
                wire = await _pass_proxy(wire, route, proxy, tls)
            return await _encrypt(wire, tls, route.host) if route.scheme == "https" else wire
        except BaseException:
            wire.close()
            raise
    raise ConnectTimedOut(f"no connection within {limit_s:g} seconds")


async def _pass_proxy(wire: Wire, route: Route, proxy: Proxy, tls: ssl.SSLContext | None) -> Wire:
    if proxy.scheme == "https":
        wire = await _encrypt(wire, tls, proxy.host)
    if proxy.scheme == "socks5":
        await connect_by_socks(wire, proxy, route.host, route.port)
    elif not route.is_forwarded:
        await connect_by_http(wire, proxy, route.host, route.port)
    return wire


async def _encrypt(wire: Wire, context: ssl.SSLContext | None, host: str) -> Wire:
    assert context is not None
    encrypted = TlsWire(wire, context, host)
    await encrypted.shake_hands()
    return encrypted


async def _open_tcp(host: str, port: int) -> Wire:
    """Connect to the address of the host that answers first."""
    try:
        return PlainWire(await trio.open_tcp_stream(host, port))
    except OSError as error:
        raise ConnectFailed(str(error)) from error
    except ValueError as error:
        raise InvalidAddress(str(error)) from error


async def _reach(route: Route) -> Wire:
    if route.may_reach is None:
        return await _open_tcp(route.host, route.port)
    failure = ConnectFailed(f"{route.host} has no address")
    # Connect to the checked addresses: a second look-up of the name may return others.
    for address in await _permitted(route.host, route.port, route.may_reach):
        try:
            return await _open_tcp(str(address), route.port)
        except ConnectFailed as error:
            failure = error
    raise failure


async def _permitted(
    host: str, port: int, may_reach: Callable[[IpAddress], bool]
) -> list[IpAddress]:
    try:
        rows = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
    except OSError as error:
        reason = error.strerror or "the name is unknown"
        raise ConnectFailed(f"{host} can't be found: {reason}") from None
    except ValueError as error:
        raise InvalidAddress(str(error)) from error
    texts = dict.fromkeys(str(place[0]).partition("%")[0] for *_, place in rows)
    addresses = [ip_address(text) for text in texts]
    permitted = [address for address in addresses if may_reach(address)]
    if addresses and not permitted:
        raise NotPermitted(host)
    return permitted
