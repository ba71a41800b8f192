"""Requests with a key to a configured server. The key comes from the caller and goes only there."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol
from urllib.parse import urlencode

from msgspec import Struct

from tiller_daemon.redaction.urls import SECRET_PLACEHOLDER
from tiller_daemon.tools.base import Requirement, ToolEnvironment, ToolFailure, ToolResult
from tiller_daemon.tools.web.address import WebAddress, parse_address
from tiller_daemon.tools.web.fetch import PERMISSION
from tiller_daemon.tools.web.page import Page, get_stream

REASON_CHARS_MAX: Final = 1_000
"""How much of an error message of the server the model gets."""

TIMEOUT_S: Final = 120.0
"""How long a call may take; includes getting a key from a command that may ask a person."""

SEARCH_S_MAX: Final = 30.0
"""How long a server may take for a search; SearXNG waits for the engines behind it."""


class Access(Protocol):
    """The key for the server."""

    async def read(self) -> str:
        """Return the key; empty if none is needed. Raises `ToolFailure`."""
        ...

    async def renew(self, refused: str) -> bool:
        """Get the key again after the server refused one; returns whether the new key differs."""
        ...

    @property
    def advice(self) -> str:
        """What the user can do if the server refuses the key; a sentence."""
        ...


def refuses_key(page: Page) -> bool:
    """Whether a response means that the server does not accept the key."""
    return page.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class QueryArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of a tool that searches on a server."""

    query: str


class KeyedServer(Struct, frozen=True):
    """A server that answers searches, whose requests may carry a key."""

    action: str
    """What a search on the server does, for the user."""
    endpoint: str
    """The address of the server."""
    path: str
    """The path for searches."""
    parameters: Mapping[str, str]
    """The parameters besides the query."""
    media_type: str
    """The media type of the answers."""
    key_scheme: str
    """What precedes the key in its header."""
    access: Access
    """The key."""
    read: Callable[[Page], str]
    """Converts a response to text for the model; raises `ToolFailure` if it has no results."""
    key_header: str = "Authorization"
    """The name of the header with the key."""
    refuses: Callable[[Page], bool] = refuses_key
    """Whether a response refuses the key."""
    hints: Mapping[int, str] = MappingProxyType({})
    """Advice for other statuses, in whole sentences."""

    def requirements(
        self,
        arguments: QueryArguments,
        workspace: Path,  # noqa: ARG002
    ) -> tuple[Requirement, ...]:
        """Return the permission that a search needs."""
        server = parse_address(self.endpoint).authority
        title = f"{self.action} on {server}"
        detail = arguments.query
        return (Requirement(PERMISSION, (server,), (server,), title=title, detail=detail),)

    async def search(self, arguments: QueryArguments, environment: ToolEnvironment) -> ToolResult:
        """Return what the server has found; raises `ToolFailure`.

        Neither the text nor a failure contains the key. If the server refuses the key, a new key is
        tried once.
        """
        query = arguments.query
        parameters = urlencode({"q": query, **self.parameters})
        address = parse_address(f"{self.endpoint.rstrip('/')}{self.path}?{parameters}")
        if any(secret in query for secret in environment.secrets):
            raise ToolFailure("The query contains a key, so it is not sent.")
        key = await self.access.read()
        page = await self._ask(address, key, environment)
        if self.refuses(page) and await self.access.renew(key):
            key = await self.access.read()
            page = await self._ask(address, key, environment)
        try:
            self._check(page)
            return ToolResult(_without(key, self.read(page)), title=query)
        except ToolFailure as failure:
            raise ToolFailure(_without(key, str(failure))) from None

    async def _ask(self, address: WebAddress, key: str, environment: ToolEnvironment) -> Page:
        headers = [("User-Agent", "tiller"), ("Accept", self.media_type)]
        if key:
            headers.append((self.key_header, f"{self.key_scheme}{key}"))
        return await get_stream(address, environment.web.proxies, headers, SEARCH_S_MAX)

    def _check(self, page: Page) -> None:
        server = page.address.authority
        reason = page.body.decode(errors="replace").strip()[:REASON_CHARS_MAX]
        if self.refuses(page):
            advice = self.access.advice
            refusal = f"{server} does not accept the key. {advice}"
            raise ToolFailure(f"{refusal} The server says: {reason}")
        if page.status == HTTPStatus.TOO_MANY_REQUESTS:
            raise ToolFailure(
                f"{server} accepts no more searches for now. The server says: {reason}"
            )
        if page.status != HTTPStatus.OK:
            hint = f" {self.hints[page.status]}" if page.status in self.hints else ""
            raise ToolFailure(f"{server} answers {page.status}.{hint} The server says: {reason}")


def _without(key: str, text: str) -> str:
    return text.replace(key, SECRET_PLACEHOLDER) if key else text
