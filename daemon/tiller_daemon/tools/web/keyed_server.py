"""Requests with a key to a configured server. The key comes from the caller and goes only there."""

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Final, Protocol

from tiller_daemon.redaction.byte_stream import SECRET_PLACEHOLDER
from tiller_daemon.tools.base import ToolEnvironment, ToolFailure
from tiller_daemon.tools.web.address import WebAddress
from tiller_daemon.tools.web.page import Page, get_stream

REASON_CHARS_MAX: Final = 1_000
"""How much of an error message of the server the model gets."""

SEARCH_S_MAX: Final = 30.0
"""How long a server may take for a search; SearXNG waits for the engines behind it."""

Headers = Sequence[tuple[str, str]]


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


class KeyedServer:
    """A server whose requests may carry a key.

    `headers` returns the headers of a request with a key, which may be empty. `refuses` tells
    whether a response refuses the key; `hints` are advice for other statuses, in whole sentences.
    """

    def __init__(
        self,
        access: Access,
        headers: Callable[[str], Headers],
        *,
        refuses: Callable[[Page], bool] = refuses_key,
        hints: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        self._access = access
        self._headers = headers
        self._refuses = refuses
        self._hints = hints

    async def search(
        self,
        address: WebAddress,
        query: str,
        environment: ToolEnvironment,
        read: Callable[[Page], str],
    ) -> str:
        """Return the text that `read` makes of the response; raises `ToolFailure`.

        Neither the text nor a failure contains the key. If the server refuses the key, a new key is
        tried once.
        """
        if any(secret in query for secret in environment.secrets):
            raise ToolFailure("The query contains a key, so it is not sent.")
        key = await self._access.read()
        page = await self._ask(address, key, environment)
        if self._refuses(page) and await self._access.renew(key):
            key = await self._access.read()
            page = await self._ask(address, key, environment)
        try:
            self._check(page)
            return _without(key, read(page))
        except ToolFailure as failure:
            raise ToolFailure(_without(key, str(failure))) from None

    async def _ask(self, address: WebAddress, key: str, environment: ToolEnvironment) -> Page:
        headers = [("User-Agent", "tiller"), *self._headers(key)]
        return await get_stream(address, environment.web.proxies, headers, SEARCH_S_MAX)

    def _check(self, page: Page) -> None:
        server = page.address.authority
        reason = page.body.decode(errors="replace").strip()[:REASON_CHARS_MAX]
        if self._refuses(page):
            advice = self._access.advice
            raise ToolFailure(f"{server} does not accept the key. {advice} It says: {reason}")
        if page.status == HTTPStatus.TOO_MANY_REQUESTS:
            raise ToolFailure(f"{server} accepts no more searches for now. It says: {reason}")
        if page.status != HTTPStatus.OK:
            hint = f" {self._hints[page.status]}" if page.status in self._hints else ""
            raise ToolFailure(f"{server} answers {page.status}.{hint} It says: {reason}")


def _without(key: str, text: str) -> str:
    return text.replace(key, SECRET_PLACEHOLDER) if key else text
