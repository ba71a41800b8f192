"""One GET of a page: connections only to machines that may be asked, within bounds.

A name is looked up once and the connection goes to an address that was found good, so that a name
which means another machine a moment later leads nowhere else. With a page nothing is sent that says
who asks: no cookie, no key, no name. Imported with the first page, as the HTTP library is.
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
"""How long a server may say nothing."""

TOTAL_S: Final = 30.0
"""How long one page may take, redirects included: a slow server is not worth a turn's time."""

BODY_BYTES_MAX: Final = 5 * 1024 * 1024
"""How much of a page is read; a hundred times what a model is shown of it."""

HEADERS: Final = (
    ("User-Agent", "tiller"),
    ("Accept", "text/markdown, text/plain;q=0.9, text/html;q=0.8, */*;q=0.5"),
    ("Accept-Encoding", "gzip, identity"),
)

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_UNPACK_BITS: Final = 32 + zlib.MAX_WBITS
"""What tells zlib to find out itself whether it is gzip or zlib."""


class Page(NamedTuple):
    """What a server answered; `whole` is False when `body` is only the beginning."""

    address: WebAddress
    status: int
    kind: str
    body: bytes
    whole: bool


class _Elsewhere(NamedTuple):
    """A redirect."""

    location: str


class _Manner(NamedTuple):
    """What is said with a request, and how long its answer is waited for.

    A server may say nothing for `silence_s`; of a body there is taken what comes within `body_s`.
    """

    headers: Sequence[tuple[str, str]]
    silence_s: float
    body_s: float


_PAGE: Final = _Manner(HEADERS, SILENCE_S, math.inf)


async def get_page(
    address: WebAddress,
    proxies: Mapping[str, str],
    may_reach: Callable[[IpAddress], bool],
) -> Page:
    """Return the page at `address`; redirects are followed as long as the server is the same.

    `proxies` are variables that name them. Raises `ToolFailure` with what to do instead.
    """
    with trio.move_on_after(TOTAL_S):
        for _ in range(REDIRECTS_MAX + 1):
            found = await _ask(address, proxies, may_reach)
            if isinstance(found, Page):
                return found
            target = redirected(address, found.location)
            if not is_same_server(address, target):
                raise ToolFailure(f"{address} redirects to {target}. Fetch that if it is wanted.")
            address = target
        raise ToolFailure(f"{address} redirects more than {REDIRECTS_MAX} times.")
    raise ToolFailure(f"{address} was not there within {TOTAL_S:g} s.")


async def get_stream(
    address: WebAddress,
    proxies: Mapping[str, str],
    may_reach: Callable[[IpAddress], bool],
    headers: Sequence[tuple[str, str]],
    body_s: float,
) -> Page:
    """Return what `address` answers, or as much as came within `body_s`; no redirect is followed.

    `headers` may say who asks, `proxies` are variables that name them. Raises `ToolFailure`.
    """
    found = await _ask(address, proxies, may_reach, _Manner(headers, body_s, body_s))
    if isinstance(found, Page):
        return found
    target = redirected(address, found.location)
    raise ToolFailure(f"{address.authority} redirects to {target.authority}, which is not asked.")


async def _ask(
    address: WebAddress,
    proxies: Mapping[str, str],
    may_reach: Callable[[IpAddress], bool],
    manner: _Manner = _PAGE,
) -> Page | _Elsewhere:
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
            ssl_context=context, proxy=proxy and _way(proxy), network_backend=backend
        ) as pool:
            return await _exchange(pool, address, manner, opened)
    except _PrivateAddress as private:
        raise ToolFailure(_private(str(private))) from None
    except httpcore2.ProxyError as error:
        said = redact(str(error), secrets)
        raise ToolFailure(f"{address} can't be fetched: the proxy {proxy} says: {said}.") from None
    except httpcore2.TimeoutException:
        raise ToolFailure(f"{address} says nothing.") from None
    except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError, zlib.error) as error:
        raise ToolFailure(
            f"{address} can't be fetched: {redact(_reason(error), secrets)}."
        ) from None
    finally:
        await opened.close()


async def _exchange(
    pool: httpcore2.AsyncConnectionPool, address: WebAddress, manner: _Manner, opened: "_Opened"
) -> Page | _Elsewhere:
    host = b"[%s]" % address.host.encode() if ":" in address.host else address.host.encode()
    url = httpcore2.URL(
        scheme=address.scheme.encode(), host=host, port=address.port, target=address.target.encode()
    )
    silence_s = manner.silence_s
    limits = {"connect": CONNECT_S, "read": silence_s, "write": silence_s, "pool": CONNECT_S}
    headers = [("Host", address.authority), *manner.headers]
    how = {"timeout": limits, "trace": opened.note}
    async with pool.stream("GET", url, headers=headers, extensions=how) as answer:
        fields = {name.lower(): value for name, value in answer.headers}
        location = fields.get(b"location", b"").decode(errors="replace")
        if answer.status in _REDIRECTS and location:
            return _Elsewhere(location)
        packing = fields.get(b"content-encoding", b"identity").decode(errors="replace").lower()
        pieces = answer.aiter_stream()
        try:
            body, whole = await _body(pieces, packing, address, manner.body_s)
        finally:
            await _end(pieces)
        kind = fields.get(b"content-type", b"").decode(errors="replace")
        return Page(address, answer.status, kind, body, whole)


async def _body(
    pieces: AsyncIterator[bytes], packing: str, address: WebAddress, body_s: float
) -> tuple[bytes, bool]:
    if packing not in ("identity", "gzip", "x-gzip", "deflate"):
        raise ToolFailure(f"{address} answers packed as {packing!r}, which was not asked for.")
    unpacker = None if packing == "identity" else zlib.decompressobj(_UNPACK_BITS)
    body = bytearray()
    with trio.move_on_after(body_s) as limit:
        async for piece in pieces:
            room = BODY_BYTES_MAX + 1 - len(body)
            body += unpacker.decompress(piece, room) if unpacker else piece
            if len(body) > BODY_BYTES_MAX:
                return bytes(body[:BODY_BYTES_MAX]), False
            if unpacker and unpacker.eof:
                break  # zlib would keep all that follows
    return bytes(body), not limit.cancelled_caught


async def _end(pieces: AsyncIterator[bytes]) -> None:
    """End the library's generators from the innermost one: it closes only the outermost."""
    with trio.CancelScope() as scope:
        scope.cancel()
        async for _ in pieces:
            pass


def _reason(error: BaseException) -> str:
    """What a failure says, or what it came from: the library's own often say nothing."""
    cause: BaseException | None = error
    while cause and not str(cause):
        cause = cause.__cause__ or cause.__context__
    return str(cause or type(error).__name__)


def _way(proxy: Proxy) -> httpcore2.Proxy:
    auth = (proxy.user, proxy.password) if proxy.user else None
    return httpcore2.Proxy(str(proxy), auth=auth)


def _private(host: str) -> str:
    return (
        f"{host} is not on the public internet and is not fetched. The user can allow it in the "
        "configuration: `fetch.private_addresses = true`. A command such as curl asks on its own."
    )


class _Opened:
    """The connections of one request: the library forgets one on which a SOCKS proxy said no."""

    def __init__(self) -> None:
        self._streams: list[httpcore2.AsyncNetworkStream] = []

    async def note(self, name: str, info: dict[str, Any]) -> None:
        """Listen to what the library says it does."""
        if name.endswith("connect_tcp.complete"):
            self._streams.append(info["return_value"])

    async def close(self) -> None:
        """Close those that are still open."""
        for stream in self._streams:
            await stream.aclose()


class _PrivateAddress(Exception):
    """A name that means a machine which may not be asked."""


class _Backend(httpcore2.AsyncNetworkBackend):
    """Connects to addresses that may be reached, and to no other."""

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
        """Look the name up, choose, and connect to what was chosen."""
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
            reason = error.strerror or "it is not known"
            raise httpcore2.ConnectError(f"{host} can't be found: {reason}") from None
        found: dict[IpAddress, Any] = {}
        for *_, place in rows:
            if (address := address_in(str(place[0]))) is not None:
                found[address] = place
        good = [address for address in found if self._may_reach(address)]
        if found and not good:
            raise _PrivateAddress(host)
        return good
