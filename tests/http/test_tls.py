"""Encrypted connections: records, ends that are cut off, certificates, and what is offered."""

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from support.certificates import Certificate, certificate
from support.exchanges import LIMIT_S, REQUEST, Whole, ask, perform_once, read
from support.http_server import KeepAlive, chunk, events, serving
from tiller_daemon.http import tls
from tiller_daemon.http.failures import Broken, ConnectFailed
from tiller_daemon.http.head import make_request
from tiller_daemon.http.pool import Pool
from tiller_daemon.http.route import Route, connect
from tiller_daemon.http.tls import make_context
from tiller_daemon.http.wire import Wire

__all__ = ["certificate"]

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
REFUSAL = b"HTTP/1.1 413 Too large\r\nContent-Length: 2\r\n\r\nno"
LARGE_BYTES = 20_000_000

Serve = Callable[[trio.SSLStream[trio.SocketStream]], Awaitable[None]]


@asynccontextmanager
async def connected(certificate: Certificate, serve: Serve) -> AsyncGenerator[Wire]:
    """An encrypted wire to a server that does `serve`, and then breaks the connection."""

    async def handle(socket: trio.SocketStream) -> None:
        stream = trio.SSLStream(socket, certificate.server, server_side=True)
        with suppress(trio.BrokenResourceError):
            await serve(stream)
        await trio.aclose_forcefully(socket)

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, handle, listeners)
        route = Route("https", "localhost", listeners[0].socket.getsockname()[1])
        wire = await connect(route, make_context(str(certificate.file)), LIMIT_S)
        try:
            yield wire
        finally:
            wire.close()
            nursery.cancel_scope.cancel()


async def test_a_connection_is_kept_and_is_quiet_meanwhile(certificate: Certificate) -> None:
    """What TLS sends of its own accord after the first request does not count as an answer."""
    async with serving(events(b"data: one\n\n", keep=True), tls=certificate.server) as server:
        pool = Pool(Route("https", "localhost", server.port), LIMIT_S)
        pool.tls = make_context(str(certificate.file))
        for _ in range(4):
            assert await ask(pool) == Whole(200, b"data: one\n\n")
        assert server.connections == 1
        pool.close()


async def test_many_small_records_come_at_once(certificate: Certificate) -> None:
    """One wait for all that has arrived, however many records it is."""
    sent = trio.Event()

    async def serve(stream: trio.SSLStream[trio.SocketStream]) -> None:
        await stream.receive_some()
        await stream.send_all(CHUNKED)
        for number in range(100):
            await stream.send_all(chunk(b"%d," % number))
        sent.set()
        await stream.receive_some()

    async with connected(certificate, serve) as wire:
        response = await perform_once(wire)
        await sent.wait()
        found, pieces = b"", 0
        while not found.endswith(b"99,"):
            found += await response.receive(LIMIT_S)
            pieces += 1
        assert found == b"".join(b"%d," % number for number in range(100))
        assert pieces <= 3
        response.close()


@pytest.mark.parametrize("is_said", [True, False], ids=["said", "cut"])
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "without sending a response"),
        (OK, "without sending a response"),
        (OK + b"Content-Length: 9\r\n\r\nabcd", "received 4 bytes, expected 9"),
        (CHUNKED + chunk(b"abcd"), "incomplete chunked read"),
        (CHUNKED + chunk(b"abcd") + b"0\r\n", "incomplete chunked read"),
    ],
)
async def test_a_response_that_is_cut_off_is_broken_whether_or_not_tls_was_ended(
    data: bytes, reason: str, certificate: Certificate, *, is_said: bool
) -> None:
    async def serve(stream: trio.SSLStream[trio.SocketStream]) -> None:
        await stream.receive_some()
        if data:
            await stream.send_all(data)
        if is_said:
            with trio.move_on_after(LIMIT_S):
                await stream.unwrap()

    async with connected(certificate, serve) as wire:
        with pytest.raises(Broken, match=reason):
            await read(await perform_once(wire))


async def test_a_body_until_the_end_ends_with_the_connection(certificate: Certificate) -> None:
    """Many servers leave out the message that ends TLS, so its lack proves nothing."""

    async def serve(stream: trio.SSLStream[trio.SocketStream]) -> None:
        await stream.receive_some()
        await stream.send_all(OK + b"\r\nabcd")

    async with connected(certificate, serve) as wire:
        assert await read(await perform_once(wire)) == b"abcd"


@pytest.mark.parametrize("head", [CHUNKED, OK + b"\r\n"], ids=["chunked", "until the end"])
@pytest.mark.parametrize("is_together", [True, False], ids=["together", "later"])
async def test_a_damaged_record_is_no_end(
    head: bytes, certificate: Certificate, *, is_together: bool
) -> None:
    sent, may_send = trio.Event(), trio.Event()

    async def serve(stream: trio.SSLStream[trio.SocketStream]) -> None:
        await stream.receive_some()
        await stream.send_all(head + chunk(b"abc"))
        if not is_together:
            await may_send.wait()
        await stream.transport_stream.send_all(b"\x17\x03\x03\0\x20" + bytes(32))
        sent.set()
        await trio.sleep_forever()

    async with connected(certificate, serve) as wire:
        if is_together:
            await wire.send(REQUEST)
            await sent.wait()
        response = await perform_once(wire)
        may_send.set()
        with pytest.raises(Broken, match="SSL"):
            await read(response)
        response.close()


async def test_a_large_request_is_sent_whole(certificate: Certificate) -> None:
    request = make_request("POST", "/", [], b"x" * LARGE_BYTES)
    taken = 0

    async def serve(stream: trio.SSLStream[trio.SocketStream]) -> None:
        nonlocal taken
        while taken < len(request):
            taken += len(await stream.receive_some())
        await stream.send_all(REFUSAL)

    async with connected(certificate, serve) as wire:
        response = await perform_once(wire, request)
        assert (response.head.status, response.is_cut, taken) == (413, False, len(request))
        assert await read(response) == b"no"


async def test_an_early_answer_is_heard(certificate: Certificate) -> None:
    async def serve(stream: trio.SSLStream[trio.SocketStream]) -> None:
        await stream.receive_some()
        await stream.send_all(REFUSAL)
        await trio.sleep_forever()

    async with connected(certificate, serve) as wire:
        response = await perform_once(wire, make_request("POST", "/", [], b"x" * LARGE_BYTES))
        assert (response.head.status, response.is_cut) == (413, True)
        assert await read(response) == b"no"
        response.close()


async def test_only_http_1_is_offered(certificate: Certificate) -> None:
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(
        certificate.file.with_name("certificate.pem"), certificate.file.with_name("key.pem")
    )
    server.set_alpn_protocols(["h2", "http/1.1"])
    chosen: list[str | None] = []

    async def serve(stream: trio.SSLStream[trio.SocketStream]) -> None:
        await stream.do_handshake()
        chosen.append(stream.selected_alpn_protocol())
        await stream.receive_some()
        await stream.send_all(REFUSAL)
        raise KeepAlive

    async with connected(Certificate(certificate.file, server), serve_once(serve)) as wire:
        await read(await perform_once(wire))
    assert chosen == ["http/1.1"]


def serve_once(serve: Serve) -> Serve:
    async def answer(stream: trio.SSLStream[trio.SocketStream]) -> None:
        with suppress(KeepAlive):
            await serve(stream)

    return answer


async def test_a_certificate_is_for_a_name(certificate: Certificate) -> None:
    async with serving(events(), tls=certificate.server) as server:
        route = Route("https", "other.test", server.port)
        context = make_context(str(certificate.file))
        resolver = ToThisMachine()
        trio.socket.set_custom_hostname_resolver(resolver)
        with pytest.raises(ConnectFailed, match="CERTIFICATE_VERIFY_FAILED"):
            await connect(route, context, LIMIT_S)
        assert server.received == []


class ToThisMachine(trio.abc.HostnameResolver):
    """All names are this machine's."""

    async def getaddrinfo(self, host, port, family=0, type=0, proto=0, flags=0):  # noqa: A002
        await trio.lowlevel.checkpoint()
        return [(trio.socket.AF_INET, trio.socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    async def getnameinfo(self, sockaddr, flags):
        raise NotImplementedError


async def test_no_request_is_sent_before_the_certificate_is_known_to_be_good(
    certificate: Certificate,
) -> None:
    """G13."""
    received: list[bytes] = []

    async def handle(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            encrypted = trio.SSLStream(stream, certificate.server, server_side=True)
            received.append(bytes(await encrypted.receive_some()))
        await trio.aclose_forcefully(stream)

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, handle, listeners)
        pool = Pool(Route("https", "localhost", listeners[0].socket.getsockname()[1]), LIMIT_S)
        pool.tls = make_context()
        with pytest.raises(ConnectFailed):
            await pool.request(REQUEST)
        nursery.cancel_scope.cancel()
    assert received in ([], [b""])


def test_the_certificates_of_the_system_are_found_wherever_they_are(
    certificate: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trusted() -> int:
        return len(make_context().get_ca_certs())

    paths = ssl.get_default_verify_paths()
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    nowhere = paths._replace(openssl_cafile="/nowhere", openssl_capath=str(tmp_path))
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: nowhere)
    monkeypatch.setattr(tls, "CA_FILES", ("/nowhere", str(certificate.file)))
    assert trusted() == 1
    monkeypatch.setattr(tls, "CA_FILES", ())
    assert trusted() == 0
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.file))
    assert trusted() == 1


def test_a_certificate_must_be_good_for_the_host(certificate: Certificate) -> None:
    context = make_context(str(certificate.file))
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
