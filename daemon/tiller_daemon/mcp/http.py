"""The streamable HTTP transport: a client with headers, a key and limits for the MCP package's.

A key that is not accepted is got once more, as for a provider. What a status means is said here, as
the package only tells that there was an error.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final

import httpx2
import trio
from mcp.client.streamable_http import streamable_http_client

from tiller_daemon.config import McpServer
from tiller_daemon.models.keys import Key, KeyUnavailable

CONNECT_S: Final = 10.0
WRITE_S: Final = 30.0
SILENCE_S: Final = 300.0
"""How long an open stream may be silent; the time limit of a call ends it earlier."""

BODY_BYTES_MAX: Final = 64 * 1024 * 1024
"""Longest answer, and most of one that is streamed."""

BEARER: Final = "authorization"

UNAUTHORIZED: Final = 401
NOT_FOUND: Final = 404

SESSION: Final = "mcp-session-id"
"""What the server calls the session; it answers 404 when it does not know it (any more)."""

VERSION: Final = "mcp-protocol-version"

GOODBYE_S: Final = 1.0
"""How long a server may take to hear that its session is over; the end of the daemon waits."""


class HttpProblem(Exception):
    """A request that could not be made, or an answer that can't be used; a clause says why."""


class HttpLine:
    """The HTTP client of one connection. `ended` is set when it is of no more use."""

    def __init__(self, settings: McpServer, key: Key | None) -> None:
        self.ended: Final = trio.Event()
        self._url: Final = settings.url or ""
        self._key: Final = key
        self._refused = 0
        self._forgotten = False
        self._session: dict[str, str] = {}
        self.client: Final = httpx2.AsyncClient(
            headers=settings.headers,
            auth=_KeyAuth(key, settings.api_key_header or BEARER) if key else None,
            timeout=httpx2.Timeout(CONNECT_S, read=SILENCE_S, write=WRITE_S),
            event_hooks={"response": [self._look]},
        )

    @property
    def is_forgotten(self) -> bool:
        """Whether the server knows nothing of the session that it once began with us."""
        return self._forgotten

    def transport(self) -> AbstractAsyncContextManager[tuple[Any, Any]]:
        """The package's transport over this client."""
        return streamable_http_client(
            self._url,
            http_client=self.client,
            # The package's goodbye is not said when we are cancelled, which is how nearly all end.
            terminate_on_close=False,
            max_sse_event_size=BODY_BYTES_MAX,
        )

    async def say_goodbye(self) -> None:
        """Tell the server that its session is over, also when cancelled; it may not answer."""
        if SESSION not in self._session or self._forgotten:
            return
        with (
            trio.move_on_after(GOODBYE_S, shield=True),
            suppress(httpx2.HTTPError, HttpProblem),
        ):
            await self.client.delete(self._url, headers=self._session)

    def how_it_ended(self) -> str:
        """Why it can't be used any more, as a clause."""
        if self._refused == UNAUTHORIZED:
            advice = self._key.advice if self._key else "It wants a key: see `api_key_env`."
            return f"it answered with status 401; {advice[0].lower()}{advice[1:].rstrip('.')}"
        if self._refused:
            return f"it answered with status {self._refused}"
        return "the connection was lost"

    async def _look(self, response: httpx2.Response) -> None:
        await trio.lowlevel.checkpoint()
        self._refused = response.status_code if response.is_error else 0
        for name in (SESSION, VERSION):
            if value := response.headers.get(name) or response.request.headers.get(name):
                self._session[name] = value
        if response.status_code == NOT_FOUND and SESSION in response.request.headers:
            self._forgotten = True
        response.stream = _Bounded(response.stream)


class _KeyAuth(httpx2.Auth):
    """Puts a key into each request."""

    def __init__(self, key: Key, header: str) -> None:
        self._key = key
        self._header = header.lower()

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        try:
            key = await self._key.read()
        except KeyUnavailable as problem:
            raise HttpProblem(str(problem)) from None
        response = yield self._with(request, key)
        if response.status_code == UNAUTHORIZED and await self._key.refresh(key):
            yield self._with(request, await self._key.read())

    def _with(self, request: httpx2.Request, key: str) -> httpx2.Request:
        request.headers[self._header] = f"Bearer {key}" if self._header == BEARER else key
        return request


class _Bounded(httpx2.AsyncByteStream):
    """A body that may not be longer than `BODY_BYTES_MAX`."""

    def __init__(self, inner: object) -> None:
        assert isinstance(inner, httpx2.AsyncByteStream)
        self._inner = inner
        self._pieces = aiter(inner)
        self._left = BODY_BYTES_MAX

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        piece = await anext(self._pieces)
        self._left -= len(piece)
        if self._left < 0:
            raise HttpProblem(f"its answer has more than {BODY_BYTES_MAX} bytes")
        return piece

    async def aclose(self) -> None:
        """Close the connection's part of it."""
        await self._inner.aclose()
