"""The MCP package's streamable HTTP transport, over a client that adds headers, a key and limits.

A rejected key is fetched once more, as for a provider. Error statuses are recorded here because the
package reports only that there was an error.
"""

import logging
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
"""How long an open stream may be silent; the time limit of a call usually expires earlier."""

BODY_BYTES_MAX: Final = 64 * 1024 * 1024
"""Longest response body, streamed or not."""

AUTHORIZATION: Final = "authorization"

UNAUTHORIZED: Final = 401
NOT_FOUND: Final = 404

SESSION_HEADER: Final = "mcp-session-id"
"""The header with the session id. A server that does not know the session answers 404."""

VERSION_HEADER: Final = "mcp-protocol-version"

END_SESSION_S: Final = 1.0
"""How long to wait for a server to confirm the end of a session: it delays the daemon's exit."""


for _name in ("client", "httpcore2", "httpx2", "mcp"):
    # The package's log quotes messages, which may hold secrets. We log the important events
    # ourselves. Silenced here because every user of the package imports this module.
    logging.getLogger(_name).addHandler(logging.NullHandler())
    logging.getLogger(_name).propagate = False


class HttpTransportProblem(Exception):
    """A request can't be made, or a response can't be used. The message is a sentence."""


class LoginAuth(httpx2.Auth):
    """Authenticates by a login; `is_rejected` is true once the server demands a new login."""

    is_rejected = False


def check_secret(secret: str, what: str) -> None:
    """Raise `HttpTransportProblem` if a header can't hold the secret, which is never shown."""
    if not (secret.isascii() and secret.isprintable()):
        raise HttpTransportProblem(
            f"{what} has characters that can't be sent in a header, such as a line break."
        )


class HttpTransport:
    """The HTTP client of one connection; see `McpTransport`.

    Without a key, `auth` authenticates the requests; `advice` says what to do if that fails.
    """

    def __init__(
        self,
        settings: McpServer,
        key: Key | None = None,
        auth: httpx2.Auth | None = None,
        advice: str = "",
    ) -> None:
        self.ended: Final = trio.Event()
        self._url: Final = settings.url or ""
        self._key: Final = key
        self._advice: Final = advice
        self._auth: Final = auth
        self._error_status = 0
        self._session_expired = False
        self._session: dict[str, str] = {}
        self.client: Final = httpx2.AsyncClient(
            headers=settings.headers,
            auth=_KeyAuth(key, settings.api_key_header or AUTHORIZATION) if key else auth,
            timeout=httpx2.Timeout(CONNECT_S, read=SILENCE_S, write=WRITE_S),
            event_hooks={"response": [self._check_response]},
        )

    @property
    def session_expired(self) -> bool:
        """Whether the server no longer accepts our session or our login."""
        return self._session_expired or self._login_is_rejected

    @property
    def is_unauthorized(self) -> bool:
        """Whether the last request was rejected because of missing or invalid credentials."""
        return self._login_is_rejected or self._error_status == UNAUTHORIZED

    @property
    def _login_is_rejected(self) -> bool:
        return isinstance(self._auth, LoginAuth) and self._auth.is_rejected

    def streams(self) -> AbstractAsyncContextManager[tuple[Any, Any]]:
        """Return the package's transport over this client."""
        return streamable_http_client(
            self._url,
            http_client=self.client,
            # Nearly all sessions end by cancellation, and the package then sends nothing.
            terminate_on_close=False,
            max_sse_event_size=BODY_BYTES_MAX,
        )

    async def end_session(self) -> None:
        """Notify the server that the session is over, even when cancelled. Ignores failures."""
        if SESSION_HEADER not in self._session or self._session_expired:
            return
        with (
            trio.move_on_after(END_SESSION_S, shield=True),
            suppress(httpx2.HTTPError, HttpTransportProblem),
        ):
            await self.client.delete(self._url, headers=self._session)

    def end_reason(self) -> str:
        """Return why the server can no longer be used, in whole sentences."""
        if self.is_unauthorized:
            advice = self._key.advice if self._key else self._advice
            return f"It answered with status 401. {advice}"
        if self._error_status:
            return f"It answered with status {self._error_status}."
        return "The connection was lost."

    async def _check_response(self, response: httpx2.Response) -> None:
        await trio.lowlevel.checkpoint()
        self._error_status = response.status_code if response.is_error else 0
        for name in (SESSION_HEADER, VERSION_HEADER):
            if value := response.headers.get(name) or response.request.headers.get(name):
                self._session[name] = value
        if response.status_code == NOT_FOUND and SESSION_HEADER in response.request.headers:
            self._session_expired = True
        response.stream = _Bounded(response.stream)


class _KeyAuth(httpx2.Auth):
    """Adds the key to each request, and fetches it again if the server rejects it."""

    def __init__(self, key: Key, header: str) -> None:
        self._key = key
        self._header = header.lower()

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        try:
            key = await self._key.read()
        except KeyUnavailable as problem:
            raise HttpTransportProblem(str(problem)) from None
        # Keys of cloud services expire: fetch the key again before reporting a failure.
        response = yield self._with(request, key)
        if response.status_code == UNAUTHORIZED and await self._key.refresh(key):
            yield self._with(request, await self._key.read())

    def _with(self, request: httpx2.Request, key: str) -> httpx2.Request:
        check_secret(key, "The key")
        request.headers[self._header] = f"Bearer {key}" if self._header == AUTHORIZATION else key
        return request


class _Bounded(httpx2.AsyncByteStream):
    """A body that fails once it exceeds `BODY_BYTES_MAX`."""

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
            raise HttpTransportProblem(f"Its response is larger than {BODY_BYTES_MAX} bytes.")
        return piece

    async def aclose(self) -> None:
        """Close the wrapped stream."""
        await self._inner.aclose()
