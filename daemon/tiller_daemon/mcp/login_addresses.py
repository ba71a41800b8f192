"""Sends the requests of a login to addresses that an MCP server names, by the rules of `fetch`.

A server names an authorization server, which names its endpoints. Nobody has chosen these machines,
so they must be on the public internet. Imports httpx2.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Final, Protocol

import httpx2

from tiller_daemon.config.http_proxy import proxy_of_environment
from tiller_daemon.mcp.http import HttpTransportProblem
from tiller_daemon.tools.base import ToolFailure, WebAccess
from tiller_daemon.tools.web.address import (
    PORTS,
    IpAddress,
    WebAddress,
    address_in,
    any_address,
    is_public,
    parse_address,
)
from tiller_daemon.tools.web.page import NotPublic, WebRequest, get_page

SENT_HEADERS: Final = frozenset(
    {"accept", "authorization", "content-type", "mcp-protocol-version", "user-agent"}
)
"""The headers of the package's requests that are sent; the others belong to a connection."""


class LoginAddresses:
    """The addresses that the MCP server `name` at `url` names for its login.

    They may be private if the server itself was at a private address when it was first asked, or if
    the user allows that for `fetch`. `is_private` says so; it is None until it is known.
    """

    def __init__(
        self, name: str, url: str, web: WebAccess, *, is_private: bool | None = None
    ) -> None:
        self.is_private = web.private_addresses or is_private
        self._name = name
        self._web = web
        self._own = httpx2.URL(url)

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request to an address that the server named. Raises `HttpTransportProblem`."""
        fields = [(name, text) for name, text in request.headers.items() if name in SENT_HEADERS]
        sent = WebRequest(fields, method=request.method, body=await request.aread())
        may_reach, proxies = self._may_reach(request.url), self._web.proxies
        try:
            page = await get_page(self.checked(str(request.url)), proxies, may_reach, sent)
        except ToolFailure as failure:
            raise self._problem(failure) from None
        headers = {"content-type": page.kind}
        return httpx2.Response(page.status, headers=headers, content=page.body, request=request)

    def checked(self, text: str) -> WebAddress:
        """Return an address that the server named. Raises `HttpTransportProblem`."""
        try:
            address = parse_address(text)
            if self._own.scheme == "https" and address.scheme != "https":
                raise ToolFailure(f"{address} does not begin with https://.")
            literal = address_in(address.host)
            if literal and not self._may_reach(httpx2.URL(text))(literal):
                raise NotPublic(address.host)
        except ToolFailure as failure:
            raise self._problem(failure) from None
        return address

    def is_own(self, url: httpx2.URL) -> bool:
        """Whether an address is on the server that the user has configured."""
        places = ((one.scheme, one.host, one.port) for one in (self._own, url))
        return next(places) == next(places)

    def note_peer(self, response: httpx2.Response) -> None:
        """Note where the server is, when it answers for the first time.

        Later answers don't count: the server's name could lead to another address by then.
        """
        if self.is_private is None:
            # If a proxy looks up the name, only the name itself shows where the server is.
            peer = self._own.host
            if not self._is_proxied() and (stream := response.extensions.get("network_stream")):
                with suppress(OSError):  # the connection has just been lost
                    peer = stream.get_extra_info("server_addr")[0]
            literal = address_in(peer)
            self.is_private = literal is not None and not is_public(literal)

    def _may_reach(self, url: httpx2.URL) -> Callable[[IpAddress], bool]:
        return any_address if self.is_private or self.is_own(url) else is_public

    def _is_proxied(self) -> bool:
        scheme, host = self._own.scheme, self._own.host
        port = self._own.port or PORTS[scheme]
        try:
            return proxy_of_environment(scheme, host, port, self._web.proxies) is not None
        except ValueError:  # the proxy's address is invalid, but other clients may accept it
            return True

    def _problem(self, failure: ToolFailure) -> HttpTransportProblem:
        reason = str(failure)
        if isinstance(failure, NotPublic):
            reason = (
                f"{failure.host} is not on the public internet, but the server itself is. To allow "
                "this, set `fetch.private_addresses = true` in the configuration."
            )
        return HttpTransportProblem(
            f"An address that the MCP server {self._name} names for its login is not used. {reason}"
        )


class AuthFlow(Protocol):
    """The MCP package's authentication."""

    def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Yield requests and receive their responses, until `request` can be sent."""
        ...


class CheckedAuth(httpx2.Auth):
    """Runs `inner`, but sends its requests to other servers by `addresses`."""

    requires_response_body = True

    def __init__(self, inner: AuthFlow, addresses: LoginAddresses) -> None:
        self._inner = inner
        self._addresses = addresses

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Yield only requests to the server that the user has configured."""
        flow = self._inner.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                if self._addresses.is_own(outgoing.url):
                    response = yield outgoing
                    self._addresses.note_peer(response)
                else:
                    response = await self._addresses.send(outgoing)
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()
