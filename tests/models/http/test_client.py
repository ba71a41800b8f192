"""How a provider is reached: encrypted, by proxies, with its own certificate, over kept lines."""

import gzip
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
import trio
from trio.testing import MockClock

from support.certificates import Certificate, certificate
from support.http_server import (
    EVENT_STREAM,
    KeepAlive,
    chunk,
    events,
    hanging,
    raw,
    serving,
    status,
    wait_closed,
)
from support.providers import fixed_key
from support.proxy import proxying
from tiller_daemon.config import Provider
from tiller_daemon.config.model_schema import Timeouts
from tiller_daemon.models.base import ModelError
from tiller_daemon.models.http.client import HttpClient

__all__ = ["certificate"]

KEY = "sk-canary-0123456789"
GOOD = (b"data: one\n\n", b"data: two\n\n")
WHOLE = b"".join(GOOD)


@asynccontextmanager
async def opened(
    base_url: str, environ: dict[str, str] | None = None, **fields: Any
) -> AsyncGenerator[HttpClient]:
    provider = Provider("openai_chat", base_url=base_url, **fields)
    http = HttpClient("local", provider, fixed_key(KEY), environ)
    try:
        yield http
    finally:
        await http.aclose()


async def post(http: HttpClient) -> bytes:
    async with http.stream("/x", b"{}") as answer:
        return b"".join([piece async for piece in answer])


async def failure(http: HttpClient) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await post(http)
    assert KEY not in caught.value.message
    return caught.value


async def test_a_certificate_of_ones_own_is_trusted_when_it_is_named(
    certificate: Certificate,
) -> None:
    async with serving(events(*GOOD, keep=True), tls=certificate.server) as server:
        async with opened(server.base_url) as http:
            error = await failure(http)
        assert error.kind == "bad_request"
        assert "not trusted" in error.message
        assert "`ca_file`" in error.message
        async with opened(server.base_url, ca_file=str(certificate.file)) as http:
            for _ in range(3):
                assert await post(http) == WHOLE
        assert server.connections == 2
        assert server.received[0].headers["authorization"] == f"Bearer {KEY}"


async def test_a_certificate_for_another_name_is_not_trusted(certificate: Certificate) -> None:
    async with serving(events(*GOOD), tls=certificate.server) as server:
        other = server.base_url.replace("127.0.0.1", "127.0.0.2")
        async with proxying() as proxy:
            fields: dict[str, Any] = {"proxy": proxy.address(), "ca_file": str(certificate.file)}
            async with opened(other, **fields) as http:
                error = await failure(http)
    assert "not trusted" in error.message


@pytest.mark.parametrize("content", [None, b"no certificate in here"])
async def test_a_ca_file_that_is_of_no_use_is_said(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    async with opened("https://127.0.0.1:9/v1", ca_file=str(file)) as http:
        error = await failure(http)
    assert error.kind == "bad_request"
    assert "`ca_file`" in error.message


async def test_a_plain_server_behind_an_https_address_is_told_from_a_broken_one(
    nursery: trio.Nursery,
) -> None:
    async def complain(stream: trio.SocketStream) -> None:
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await trio.sleep_forever()

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, complain, listeners)
    async with opened(f"https://127.0.0.1:{listeners[0].socket.getsockname()[1]}/v1") as http:
        error = await failure(http)
    nursery.cancel_scope.cancel()
    assert error.kind == "bad_request"
    assert "http://" in error.message


@pytest.mark.parametrize("kind", ["http", "socks5"])
async def test_a_plain_request_goes_by_the_proxy(kind: Literal["http", "socks5"]) -> None:
    async with (
        serving(events(*GOOD)) as server,
        proxying(kind) as proxy,
        opened(server.base_url, proxy=proxy.address(kind)) as http,
    ):
        assert await post(http) == WHOLE
    assert proxy.asked == [
        f"POST {server.base_url}/x HTTP/1.1" if kind == "http" else f"127.0.0.1:{server.port}"
    ]
    assert server.received[0].path == "/v1/x"


@pytest.mark.parametrize("kind", ["http", "socks5"])
async def test_an_encrypted_request_goes_through_the_proxy_unread(
    kind: Literal["http", "socks5"], certificate: Certificate
) -> None:
    async with (
        serving(events(*GOOD, keep=True), tls=certificate.server) as server,
        proxying(kind) as proxy,
        opened(server.base_url, proxy=proxy.address(kind), ca_file=str(certificate.file)) as http,
    ):
        for _ in range(2):
            assert await post(http) == WHOLE
    address = f"127.0.0.1:{server.port}"
    assert proxy.asked == [f"CONNECT {address} HTTP/1.1" if kind == "http" else address]


@pytest.mark.parametrize(
    ("kind", "shown"), [("http", "Basic bWU6c2VjcmV0"), ("socks5", "me:secret")]
)
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_wants_a_name_gets_it_from_the_environment(
    kind: Literal["http", "socks5"], shown: str, scheme: str, certificate: Certificate
) -> None:
    """G13: the password is said to the proxy, and to nobody else."""
    async with (
        serving(events(*GOOD), tls=certificate.server if scheme == "https" else None) as server,
        proxying(kind, wants=shown) as proxy,
    ):
        base_url = f"{scheme}://model.test:{server.port}/v1"
        trusted = {"ca_file": str(certificate.file)}
        variable = f"{scheme.upper()}_PROXY"
        async with opened(base_url, {variable: proxy.address(kind)}, **trusted) as http:
            error = await failure(http)
        assert error.kind == "bad_request"
        assert f"through the proxy {proxy.address(kind)}" in error.message
        assert "name and password" in error.message
        async with opened(
            base_url, {variable: proxy.address(kind, "me:secret")}, **trusted
        ) as http:
            assert await post(http) == WHOLE
        assert proxy.credentials[-1] == shown
    assert "proxy-authorization" not in server.received[0].headers
    assert server.received[0].headers["host"] == f"model.test:{server.port}"


async def test_a_proxy_that_is_not_there_is_told_from_a_server_that_is_not() -> None:
    async with serving(events(*GOOD)) as server:
        async with proxying() as proxy:
            gone = proxy.address()
        async with opened("http://model.test:9/v1", {"HTTP_PROXY": gone}) as http:
            error = await failure(http)
            assert error.kind == "network"
            assert f"through the proxy {gone}" in error.message
        async with opened(server.base_url, {"HTTP_PROXY": gone, "ALL_PROXY": gone}) as http:
            assert await post(http) == WHOLE, "this machine is reached without it"
        async with opened("http://model.test:9/v1", {"HTTP_PROXY": gone}, proxy="") as http:
            assert "proxy" not in (await failure(http)).message


async def test_a_server_behind_a_proxy_that_is_not_there_is_waited_for(
    certificate: Certificate,
) -> None:
    async with proxying() as proxy, proxying("socks5") as socks:
        for address in (proxy.address(), socks.address("socks5")):
            fields: dict[str, Any] = {"proxy": address, "ca_file": str(certificate.file)}
            async with opened("https://model.test:9/v1", **fields) as http:
                error = await failure(http)
            assert error.kind == "network"
            assert f"through the proxy {address}" in error.message


async def test_a_redirect_is_not_followed_with_the_key() -> None:
    """G13."""
    async with serving(events(*GOOD)) as elsewhere:
        moved = status(307, Location=f"{elsewhere.base_url}/x")
        async with serving(moved) as server, opened(server.base_url) as http:
            error = await failure(http)
        assert elsewhere.base_url in error.message
        assert error.kind == "bad_request"
    assert elsewhere.received == []


async def test_a_kept_connection_that_the_server_closes_under_a_request_costs_nothing() -> None:
    """The server reads the second request and goes away, as when it had just decided to rest."""

    async def gone(stream: trio.abc.Stream) -> None:
        await trio.lowlevel.checkpoint()

    answers = [events(*GOOD, keep=True), gone, events(*GOOD)]
    async with serving(*answers) as server, opened(server.base_url) as http:
        for _ in range(2):
            assert await post(http) == WHOLE
        assert server.connections == 2
    assert len(server.received) == 3


async def test_a_new_connection_that_breaks_is_an_error() -> None:
    async with serving(raw(b"")) as server, opened(server.base_url) as http:
        assert (await failure(http)).kind == "network"
        assert len(server.received) == 1


async def test_a_server_that_answers_before_it_has_read_all_is_heard() -> None:
    """Such as one that finds a request too large."""

    async def refuse(stream: trio.abc.Stream) -> None:
        await stream.send_all(b"HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n")
        await wait_closed(stream)

    async with serving(refuse) as server, opened(server.base_url) as http:
        with pytest.raises(ModelError) as caught:
            async with http.stream("/x", b'"' + b"x" * 20_000_000 + b'"'):
                pass
        assert caught.value.status == 413


async def test_only_streams_are_read_in_turns(mock_clock: MockClock) -> None:
    mock_clock.autojump_threshold = 0.05  # the kernel takes less to carry an answer
    async with (
        serving(status(200, {"a": 1}, Content_Type="application/json"), events(*GOOD)) as server,
        opened(server.base_url) as http,
    ):
        with ExitStack() as others:
            for _ in range(1000):
                others.enter_context(http.pace.stream())
            begun = trio.current_time()
            assert await http.get("/about", dict[str, int]) == {"a": 1}
            assert trio.current_time() == begun
            assert await post(http) == WHOLE
            assert trio.current_time() > begun


async def test_interim_answers_are_passed_over() -> None:
    async def answer(stream: trio.abc.Stream) -> None:
        await stream.send_all(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n")
        await events(*GOOD)(stream)

    async with serving(answer) as server, opened(server.base_url) as http:
        assert await post(http) == WHOLE


async def test_an_answer_that_is_compressed_though_nobody_asked_is_unpacked() -> None:
    async def answer(stream: trio.abc.Stream) -> None:
        head = EVENT_STREAM[:-2] + b"Content-Encoding: gzip\r\n\r\n"
        await stream.send_all(head + chunk(gzip.compress(WHOLE)) + chunk(b""))
        raise KeepAlive

    async with serving(answer) as server, opened(server.base_url) as http:
        for _ in range(2):
            assert await post(http) == WHOLE
        assert server.connections == 1
        assert server.received[0].headers["accept-encoding"] == "identity"


async def test_a_server_that_does_not_shake_hands_is_given_up(autojump_clock: MockClock) -> None:
    limits = Timeouts(connect_s=7)
    async with serving(hanging()) as server:
        base_url = server.base_url.replace("http:", "https:")
        async with opened(base_url, timeouts=limits) as http:
            await trio.to_thread.run_sync(lambda: None)
            error = await failure(http)
    assert error.kind == "timeout"
    assert "within 7 seconds" in error.message


@pytest.mark.parametrize("proxy", ["gopher://p", "http://", "http://p:port"])
def test_a_proxy_that_is_none_is_said_at_once(proxy: str) -> None:
    with pytest.raises(ValueError, match="`proxy` is not a valid"):
        HttpClient("local", Provider("openai_chat", base_url="http://h", proxy=proxy))
