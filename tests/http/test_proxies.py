"""Proxies of every kind: what they are asked for, and what becomes of those that misbehave."""

import ssl
from typing import Any, Literal

import pytest
import trio

from support.certificates import Certificate, certificate
from support.each import each
from support.exchanges import LIMIT_S, Whole, ask
from support.http_server import events, raw, serving
from support.proxy import proxying
from tiller_daemon.config.http_proxy import Proxy, parse_proxy
from tiller_daemon.http.failures import (
    Broken,
    ConnectFailed,
    HttpFailure,
    InvalidAddress,
    NotPermitted,
    ProxyFailed,
)
from tiller_daemon.http.head import make_request
from tiller_daemon.http.pool import Pool
from tiller_daemon.http.route import Route, connect
from tiller_daemon.http.tls import make_context

__all__ = ["certificate"]

ONE = Whole(200, b"data: one\n\n")


def answer() -> Any:
    return events(ONE.content, keep=True)


def trusting(certificate: Certificate) -> ssl.SSLContext:
    return make_context(str(certificate.file))


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("user", ["", "me:secret"])
async def test_an_encrypted_proxy_hides_who_is_asked(
    scheme: str, user: str, certificate: Certificate
) -> None:
    """For a plain server it hands requests on, for an encrypted one there is TLS within TLS."""
    wants = "Basic bWU6c2VjcmV0" if user else ""
    tls = certificate.server if scheme == "https" else None
    async with (
        serving(answer(), tls=tls) as server,
        proxying(wants=wants, tls=certificate.server) as local,
    ):
        proxy = parse_proxy(local.address("https", user).replace("127.0.0.1", "localhost"))
        route = Route(scheme, "model.test", server.port, proxy)
        pool = Pool(route, LIMIT_S)
        pool.tls = trusting(certificate)
        target = "/v1/x" if scheme == "https" else f"http://model.test:{server.port}/v1/x"
        fields = [("Host", f"model.test:{server.port}"), ("Proxy-Authorization", wants)]
        request = make_request("POST", target, fields, b"{}")
        for _ in range(2):
            assert await ask(pool, request) == ONE
        pool.close()
    assert local.asked == [
        f"CONNECT model.test:{server.port} HTTP/1.1"
        if scheme == "https"
        else f"POST http://model.test:{server.port}/v1/x HTTP/1.1"
    ]
    assert local.credentials[0] == wants
    assert server.connections == 1


async def test_the_certificate_of_a_proxy_is_checked(certificate: Certificate) -> None:
    async with proxying(tls=certificate.server) as local:
        route = Route("http", "model.test", 80, parse_proxy(local.address("https")))
        with pytest.raises(ConnectFailed, match="CERTIFICATE_VERIFY_FAILED"):
            await connect(route, make_context(), LIMIT_S)


async def asked_through(reply: bytes, scheme: str, user: str = "") -> HttpFailure:
    """Ask through a proxy that replies with these bytes one by one; return the failure."""

    async def handle(stream: trio.SocketStream) -> None:
        for place in range(len(reply)):
            await stream.send_all(reply[place : place + 1])
            await trio.lowlevel.checkpoint()
        await stream.send_eof()
        while await stream.receive_some():
            pass

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, handle, listeners)
        port = listeners[0].socket.getsockname()[1]
        proxy = Proxy(scheme, "127.0.0.1", port, user, user)
        with pytest.raises(HttpFailure) as caught, trio.fail_after(LIMIT_S):
            await connect(Route("https", "h.test", 443, proxy), make_context(), LIMIT_S)
        nursery.cancel_scope.cancel()
    return caught.value


@each(
    ("reply", "kind", "reason"),
    [
        (b"HTTP/1.1 502 Bad\r\n\r\n", ProxyFailed, "502 Bad"),
        (b"HTTP/1.1 407 Who\r\nContent-Length: 9\r\n\r\nsay it", ProxyFailed, "407 Who"),
        (b"HTTP/1.1 302 There\r\nLocation: x\r\n\r\n", ProxyFailed, "302 There"),
        (b"HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 500 No\r\n\r\n", ProxyFailed, "500 No"),
        (b"", Broken, "without sending a response"),
        (b"HTTP/1.1 200 OK\r\n", Broken, "without sending a response"),
        (b"nonsense\r\n\r\n", Broken, "illegal status line"),
        # What follows goes to TLS, which finds no TLS in it.
        (b"HTTP/1.1 200 OK\r\n\r\nnonsense", ConnectFailed, "SSL"),
        (b"HTTP/1.1 200 OK\r\n\r\n", ConnectFailed, "EOF"),
    ],
)
async def test_what_a_proxy_says_instead_of_connecting(
    reply: bytes, kind: type[HttpFailure], reason: str
) -> None:
    failure = await asked_through(reply, "http")
    assert type(failure) is kind
    assert reason in str(failure)
    if isinstance(failure, ProxyFailed):
        assert failure.rejects_credentials == ("407" in reason)


@each(
    ("reply", "user", "reason", "is_login"),
    [
        (b"", "", "closed the connection", False),
        (b"\5", "", "closed the connection", False),
        (b"\5\xff", "", "but got NO ACCEPTABLE METHODS", True),
        (b"\5\2", "", "but got USERNAME/PASSWORD", True),
        (b"\5\0", "me", "Requested USERNAME/PASSWORD from proxy server", True),
        (b"\5\7", "", "Malformed reply", False),
        (b"\5\2\1\1", "me", "Invalid username/password", True),
        (b"\5\2\1", "me", "closed the connection", False),
        (b"\5\0\5\1\0\1" + bytes(6), "", "could not connect: General SOCKS server failure", False),
        (b"\5\0\5\5\0\1" + bytes(6), "", "could not connect: Connection refused", False),
        (b"\5\0\5\x09\0\1" + bytes(6), "", "Malformed reply", False),
        (b"\5\0\4\0\0\1" + bytes(6), "", "Malformed reply", False),
        (b"\5\0\5\0\0\x09\3" + bytes(5), "", "Malformed reply", False),
        (b"\5\0\5\0\0\3\2\xff\xff\0\0", "", "Malformed reply", False),
        (b"\5\0\5\0\0", "", "closed the connection", False),
        (b"HTTP/1.1 400 No\r\n\r\n", "", "Malformed reply", False),
    ],
)
async def test_what_a_socks_proxy_says_instead_of_connecting(
    reply: bytes, user: str, reason: str, *, is_login: bool
) -> None:
    failure = await asked_through(reply, "socks5", user)
    assert isinstance(failure, ProxyFailed)
    assert reason in str(failure)
    assert failure.rejects_credentials == is_login


@pytest.mark.parametrize(
    "address", [b"\1" + bytes(4), b"\4" + bytes(16), b"\3\6h.test"], ids=["v4", "v6", "name"]
)
async def test_the_address_in_a_reply_is_of_any_kind(address: bytes) -> None:
    """The connection is there, as TLS begins."""
    failure = await asked_through(b"\5\0\5\0\0" + address + b"\0\0", "socks5")
    assert isinstance(failure, ConnectFailed)
    assert "EOF" in str(failure)


async def test_names_that_socks_can_not_carry_are_refused() -> None:
    async with proxying("socks5") as local:
        proxy = parse_proxy(local.address("socks5"))
        with pytest.raises(InvalidAddress, match="too long"):
            await connect(Route("http", "x" * 256, 80, proxy), None, LIMIT_S)
        login = Proxy("socks5", proxy.host, proxy.port, "u" * 256, "p")
        with pytest.raises(ProxyFailed):
            await connect(Route("http", "h", 80, login), None, LIMIT_S)


@pytest.mark.parametrize("kind", ["http", "socks5"])
async def test_an_address_of_ipv6_is_asked_for_as_one(kind: Literal["http", "socks5"]) -> None:
    async with serving(raw(b"")) as server:
        pass
    async with proxying(kind) as local:
        route = Route("https", "2001:db8::1", server.port, parse_proxy(local.address(kind)))
        with pytest.raises(ProxyFailed):
            await connect(route, make_context(), LIMIT_S)
    host = "CONNECT [2001:db8::1]" if kind == "http" else "2001:db8::1"
    assert local.asked[0].startswith(f"{host}:{server.port}")


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".test", "\u2603" * 70])
async def test_a_name_that_can_not_exist_is_a_failure(host: str) -> None:
    with pytest.raises((InvalidAddress, ConnectFailed)):
        await connect(Route("http", host, 80), None, LIMIT_S)
    with pytest.raises((InvalidAddress, ConnectFailed)):
        await connect(Route("http", host, 80, may_reach=lambda _: True), None, LIMIT_S)


async def test_only_permitted_addresses_are_connected_to() -> None:
    async with serving(raw(b"")) as server:
        for host in ("127.0.0.1", "localhost", "::ffff:127.0.0.1"):
            route = Route("http", host, server.port, may_reach=lambda _: False)
            with pytest.raises(NotPermitted):
                await connect(route, None, LIMIT_S)
        assert server.connections == 0
        (await connect(Route("http", "127.0.0.1", server.port), None, LIMIT_S)).close()
