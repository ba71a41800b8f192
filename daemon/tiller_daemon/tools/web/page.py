"""GET requests for pages, limited in time and size, and only to permitted machines.

A name is resolved once, and the connection goes to an address that passed the check, so that DNS
rebinding leads nowhere else. `get_page` sends nothing that identifies the user, such as cookies.
This module imports the HTTP library, so it is imported with the first page.
"""

import math
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import httpcore2
import httpx2
import trio

from tiller_daemon.config.http_proxy import Proxy, proxy_of_environment
from tiller_daemon.redaction.text import redact
from tiller_daemon.tools.base import ToolFailure
from tiller_daemon.tools.web.address import (
    IpAddress,
    WebAddress,
    address_in,
    is_same_server,
    redirected,
)

REDIRECTS_MAX: Final = 5
CONNECT_S: Final = 10.0
SILENCE_S: Final = 15.0
"""How long a server may send nothing."""

TOTAL_S: Final = 30.0
"""How long one page may take, including redirects; a turn should not wait for a slow server."""

BODY_BYTES_MAX: Final = 5 * 1024 * 1024
"""How much of a page is read; a hundred times what the model gets."""

HEADERS: Final = (
    ("User-Agent", "tiller"),
    ("Accept", "text/markdown, text/plain;q=0.9, text/html;q=0.8, */*;q=0.5"),
    ("Accept-Encoding", "gzip, identity"),
)

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_UNPACK_BITS: Final = 32 + zlib.MAX_WBITS
"""Makes zlib detect the gzip and zlib formats."""


class Page(NamedTuple):
    """The response of a server."""

    address: WebAddress
    """Where it came from, after redirects."""

    status: int
    """The status of HTTP."""

    kind: str
    """The header Content-Type; may be empty."""

    body: bytes
    """The unpacked body, or its beginning."""

    whole: bool
    """Whether `body` is complete."""


class _Redirect(NamedTuple):
    """A redirect."""

    location: str


class _RequestOptions(NamedTuple):
    """Headers and timeouts of a request.

    The server may send nothing for `silence_s`; the body is cut off after `body_s`.
    """

    headers: Sequence[tuple[str, str]]
    silence_s: float
    body_s: float


_PAGE_OPTIONS: Final = _RequestOptions(HEADERS, SILENCE_S, math.inf)


async def get_page(
    address: WebAddress,
    proxies: Mapping[str, str],
    may_reach: Callable[[IpAddress], bool],
) -> Page:
    """Return the page at `address`; redirects are followed on the same server only.

    `proxies` are environment variables. Raises `ToolFailure` with what to do instead.
    """
    with trio.move_on_after(TOTAL_S):
        for _ in range(REDIRECTS_MAX + 1):
            response = await _ask(address, proxies, may_reach)
            if isinstance(response, Page):
                return response
            target = redirected(address, response.location)
            if not is_same_server(address, target):
                raise ToolFailure(f"{address} redirects to {target}. Fetch that if you need it.")
            address = target
        raise ToolFailure(f"{address} redirects more than {REDIRECTS_MAX} times.")
    raise ToolFailure(f"{address} did not arrive within {TOTAL_S:g} s.")


async def get_stream(
    address: WebAddress,
    proxies: Mapping[str, str],
    may_reach: Callable[[IpAddress], bool],
    headers: Sequence[tuple[str, str]],
    body_s: float,
) -> Page:
    """Return the response, or what came of it within `body_s` seconds; follows no redirects.

    `headers` may contain credentials; `proxies` are environment variables. Raises `ToolFailure`.
    """
    response = await _ask(address, proxies, may_reach, _RequestOptions(headers, body_s, body_s))
    if isinstance(response, Page):
        return response
    target = redirected(address, response.location)
    raise ToolFailure(
        f"{address.authority} redirects to {target.authority}. Redirects are not followed here."
    )


async def _ask(
    address: WebAddress,
    proxies: Mapping[str, str],
    may_reach: Callable[[IpAddress], bool],
    options: _RequestOptions = _PAGE_OPTIONS,
) -> Page | _Redirect:
    try:
        proxy = proxy_of_environment(address.scheme, address.host, address.port, proxies)
    except ValueError as error:
        raise ToolFailure(f"{address} can't be fetched: {error}.") from None
    literal = address_in(address.host)
    if literal and not may_reach(literal):
        raise ToolFailure(_private(address.host))
    context = await trio.to_thread.run_sync(httpx2.create_ssl_context)
    backend = None if proxy else _Backend(may_reach)
    secrets = proxy.secrets if proxy else ()
    opened = _Opened()
    try:
        async with httpcore2.AsyncConnectionPool(
            ssl_context=context, proxy=proxy and _proxy(proxy), network_backend=backend
        ) as pool:
            return await _exchange(pool, address, options, opened)
    except _PrivateAddress as private:
        raise ToolFailure(_private(str(private))) from None
    except httpcore2.ProxyError as error:
        reason = redact(str(error), secrets)
        message = f"{address} can't be fetched: the proxy {proxy} answers: {reason}."
        raise ToolFailure(message) from None
    except httpcore2.TimeoutException:
        raise ToolFailure(f"{address} does not answer.") from None
    except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError, zlib.error) as error:
        raise ToolFailure(
            f"{address} can't be fetched: {redact(_reason(error), secrets)}."
        ) from None
    finally:
        await opened.close()


async def _exchange(
    pool: httpcore2.AsyncConnectionPool,
    address: WebAddress,
    options: _RequestOptions,
    opened: "_Opened",
) -> Page | _Redirect:
    host = b"[%s]" % address.host.encode() if ":" in address.host else address.host.encode()
    url = httpcore2.URL(
        scheme=address.scheme.encode(), host=host, port=address.port, target=address.target.encode()
    )
    silence_s = options.silence_s
    limits = {"connect": CONNECT_S, "read": silence_s, "write": silence_s, "pool": CONNECT_S}
    headers = [("Host", address.authority), *options.headers]
    how = {"timeout": limits, "trace": opened.note}
    async with pool.stream("GET", url, headers=headers, extensions=how) as answer:
        fields = {name.lower(): value for name, value in answer.headers}
        location = fields.get(b"location", b"").decode(errors="replace")
        if answer.status in _REDIRECTS and location:
            return _Redirect(location)
        packing = fields.get(b"content-encoding", b"identity").decode(errors="replace").lower()
        pieces = answer.aiter_stream()
        try:
            body, whole = await _body(pieces, packing, address, options.body_s)
        finally:
            await _end(pieces)
        kind = fields.get(b"content-type", b"").decode(errors="replace")
        return Page(address, answer.status, kind, body, whole)


async def _body(
    pieces: AsyncIterator[bytes], packing: str, address: WebAddress, body_s: float
) -> tuple[bytes, bool]:
    if packing not in ("identity", "gzip", "x-gzip", "deflate"):
        raise ToolFailure(
            f"{address} answers with the encoding {packing!r}, which was not requested."
        )
    unpacker = None if packing == "identity" else zlib.decompressobj(_UNPACK_BITS)
    body = bytearray()
    with trio.move_on_after(body_s) as limit:
        async for piece in pieces:
            bytes_left = BODY_BYTES_MAX + 1 - len(body)
            body += unpacker.decompress(piece, bytes_left) if unpacker else piece
            if len(body) > BODY_BYTES_MAX:
                return bytes(body[:BODY_BYTES_MAX]), False
            if unpacker and unpacker.eof:
                break  # zlib would collect all data after the end.
    return bytes(body), not limit.cancelled_caught


async def _end(pieces: AsyncIterator[bytes]) -> None:
    """Close the generators of the library from the innermost one; it closes only the outermost."""
    with trio.CancelScope() as scope:
        scope.cancel()
        async for _ in pieces:
            pass


def _reason(error: BaseException) -> str:
    """Return the message of a failure, or of its cause, as the library's own are often empty."""
    cause: BaseException | None = error
    while cause and not str(cause):
        cause = cause.__cause__ or cause.__context__
    return str(cause or type(error).__name__)


def _proxy(proxy: Proxy) -> httpcore2.Proxy:
    auth = (proxy.user, proxy.password) if proxy.user else None
    return httpcore2.Proxy(str(proxy), auth=auth)


def _private(host: str) -> str:
    return (
        f"{host} is not on the public internet and is not fetched. The user can allow it in the "
        "configuration: `fetch.private_addresses = true`. A command such as curl can fetch it if "
        "the user approves."
    )


class _Opened:
    """The connections of one request. The library leaks one if a SOCKS proxy refuses."""

    def __init__(self) -> None:
        self._streams: list[httpcore2.AsyncNetworkStream] = []

    async def note(self, name: str, info: dict[str, Any]) -> None:
        """Receive trace events of the library."""
        if name.endswith("connect_tcp.complete"):
            self._streams.append(info["return_value"])

    async def close(self) -> None:
        """Close the connections that are still open."""
        for stream in self._streams:
            await stream.aclose()


class _PrivateAddress(Exception):
    """A name that resolves only to addresses that are not permitted."""


class _Backend(httpcore2.AsyncNetworkBackend):
    """Connects only to permitted addresses."""

    def __init__(self, may_reach: Callable[[IpAddress], bool]) -> None:
        self._may_reach = may_reach
        self._below = cast("httpcore2.AsyncNetworkBackend", httpcore2.TrioBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Resolve the name, and connect to one of its permitted addresses."""
        failure: Exception = httpcore2.ConnectError(f"{host} has no address")
        with trio.move_on_after(timeout or CONNECT_S):
            for address in await self._addresses(host, port):
                try:
                    return await self._below.connect_tcp(
                        str(address), port, timeout, local_address, socket_options
                    )
                except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                    failure = error
            raise failure
        raise httpcore2.ConnectTimeout

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await trio.sleep(seconds)

    async def _addresses(self, host: str, port: int) -> list[IpAddress]:
        try:
            rows = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
        except OSError as error:
            reason = error.strerror or "the name is unknown"
            raise httpcore2.ConnectError(f"{host} can't be found: {reason}") from None
        addresses: dict[IpAddress, Any] = {}
        for *_, place in rows:
            if (address := address_in(str(place[0]))) is not None:
                addresses[address] = place
        permitted = [address for address in addresses if self._may_reach(address)]
        if addresses and not permitted:
            raise _PrivateAddress(host)
        return permitted
