"""Requests for pages, limited in time and size, and only to permitted machines.

A name is resolved once, and the connection goes to an address that passed the check, so that DNS
rebinding leads nowhere else. `get_page` sends nothing that identifies the user, such as cookies.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import trio

from tiller_daemon.config.http_proxy import proxy_of_environment
from tiller_daemon.http.connection import Exchange, Response, perform
from tiller_daemon.http.failures import (
    ConnectTimedOut,
    HttpFailure,
    NotPermitted,
    ProxyFailed,
    ReadTimedOut,
    WriteTimedOut,
)
from tiller_daemon.http.head import make_request
from tiller_daemon.http.proxies import credentials_of
from tiller_daemon.http.route import Route, connect
from tiller_daemon.http.tls import make_context
from tiller_daemon.http.unpacking import PACKED, PLAIN
from tiller_daemon.http.wire import Wire
from tiller_daemon.redaction.text import redact
from tiller_daemon.tools.base import ToolFailure
from tiller_daemon.tools.web.address import (
    IpAddress,
    WebAddress,
    address_in,
    any_address,
    is_same_server,
    redirected,
)

REDIRECTS_MAX: Final = 5
CONNECT_S: Final = 10.0
SILENCE_S: Final = 15.0
"""How long a server may be silent."""

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


class Page(NamedTuple):
    """The response of a server."""

    address: WebAddress
    """The address of the page, after redirects."""

    status: int
    """The HTTP status."""

    kind: str
    """The Content-Type header; may be empty."""

    body: bytes
    """The unpacked body, or its beginning."""

    whole: bool
    """Whether `body` is complete."""

    @property
    def media_type(self) -> str:
        """The media type from the header, in lower case, without parameters; may be empty."""
        return self.kind.partition(";")[0].strip().lower()


class NotPublic(ToolFailure):
    """The machine `host` is not on the public internet."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"{host} is not on the public internet and is not fetched. The user can allow it in "
            "the configuration: `fetch.private_addresses = true`. A command such as curl can fetch "
            "it if the user approves."
        )
        self.host = host


class WebRequest(NamedTuple):
    """A request, except for its address."""

    headers: Sequence[tuple[str, str]]
    """The header fields, except those of the connection and the body's length."""

    silence_s: float = SILENCE_S
    """How long the server may send nothing."""

    body_s: float = math.inf
    """After how long the body of the response is cut off."""

    method: str = "GET"
    """The HTTP method."""

    body: bytes = b""
    """The body, if there is one."""


async def get_page(
    address: WebAddress,
    proxies: Mapping[str, str],
    may_reach: Callable[[IpAddress], bool],
    request: WebRequest = WebRequest(HEADERS),  # noqa: B008 - frozen
) -> Page:
    """Return the page at `address`; redirects are followed on the same server only.

    A request with a body is not redirected. `proxies` are environment variables. Raises
    `ToolFailure` with what to do instead.
    """
    with trio.move_on_after(TOTAL_S):
        for _ in range(REDIRECTS_MAX + 1):
            response = await _ask(address, proxies, may_reach, request)
            if isinstance(response, Page):
                return response
            if not is_same_server(address, response) or request.body:
                raise ToolFailure(f"{address} redirects to {response}. Fetch that if you need it.")
            address = response
        raise ToolFailure(f"{address} redirects more than {REDIRECTS_MAX} times.")
    raise ToolFailure(f"{address} did not arrive within {TOTAL_S:g} s.")


async def get_stream(
    address: WebAddress,
    proxies: Mapping[str, str],
    headers: Sequence[tuple[str, str]],
    body_s: float,
) -> Page:
    """Return the response, or the part that came within `body_s` seconds; follows no redirects.

    The user has configured the server, so it may be in a private network. `headers` may contain
    credentials; `proxies` are environment variables. Raises `ToolFailure`.
    """
    response = await _ask(address, proxies, any_address, WebRequest(headers, body_s, body_s))
    if isinstance(response, Page):
        return response
    raise ToolFailure(
        f"{address.authority} redirects to {response.authority}. Redirects are not followed here."
    )


async def _ask(
    address: WebAddress,
    proxies: Mapping[str, str],
    may_reach: Callable[[IpAddress], bool],
    request: WebRequest,
) -> Page | WebAddress:
    """Return the page, or the address that it redirects to."""
    try:
        proxy = proxy_of_environment(address.scheme, address.host, address.port, proxies)
    except ValueError as error:
        raise ToolFailure(f"{address} can't be fetched: {error}.") from None
    literal = address_in(address.host)
    if literal and not may_reach(literal):
        raise NotPublic(address.host)
    # A proxy looks up the addresses itself.
    route = Route(address.scheme, address.host, address.port, proxy, None if proxy else may_reach)
    secrets = proxy.secrets if proxy else ()
    try:
        return await _exchange(route, address, request)
    except NotPermitted as private:
        raise NotPublic(str(private)) from None
    except ProxyFailed as error:
        reason = redact(str(error), secrets)
        message = f"{address} can't be fetched: the proxy {proxy} answers: {reason}."
        raise ToolFailure(message) from None
    except (ConnectTimedOut, ReadTimedOut, WriteTimedOut):
        raise ToolFailure(f"{address} does not answer.") from None
    except HttpFailure as error:
        reason = redact(str(error), secrets)
        raise ToolFailure(f"{address} can't be fetched: {reason}.") from None
    except OSError as error:
        raise ToolFailure(f"{address} can't be fetched: {error}.") from None


async def _exchange(route: Route, address: WebAddress, request: WebRequest) -> Page | WebAddress:
    context = await trio.to_thread.run_sync(make_context) if route.needs_tls else None
    wire = await connect(route, context, CONNECT_S)
    exchange = Exchange(_bytes_of(route, address, request), request.silence_s, _end)
    with trio.move_on_after(request.silence_s) as limit:
        response = await perform(wire, exchange)
        limit.deadline = math.inf
        try:
            return await _read(response, address, request)
        finally:
            response.close()
    raise ReadTimedOut(f"nothing for {request.silence_s:g} seconds")


async def _read(response: Response, address: WebAddress, request: WebRequest) -> Page | WebAddress:
    # If a header is repeated, the last one counts.
    fields = dict(response.head.fields)
    status, location = response.head.status, fields.get("location", "")
    if status in _REDIRECTS and location:
        return redirected(address, location)
    if response.packing not in PLAIN | PACKED:
        raise ToolFailure(
            f"{address} answers with the encoding {response.packing!r}, which was not requested."
        )
    body, whole = bytearray(), False
    with trio.move_on_after(request.body_s):
        while len(body) <= BODY_BYTES_MAX:
            piece = await response.receive(request.silence_s)
            if not piece:
                whole = True
                break
            body += piece
    return Page(
        address, status, fields.get("content-type", ""), bytes(body[:BODY_BYTES_MAX]), whole
    )


def _bytes_of(route: Route, address: WebAddress, request: WebRequest) -> bytes:
    fields = [("Host", address.authority), *request.headers]
    if route.is_forwarded and route.proxy is not None:
        fields += credentials_of(route.proxy)
        return make_request(request.method, str(address), fields, request.body)
    return make_request(request.method, address.target, fields, request.body)


def _end(wire: Wire | None) -> None:
    """Close the connection: it serves one request."""
    if wire is not None:
        wire.close()
