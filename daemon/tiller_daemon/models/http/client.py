"""The HTTP client for one provider, shared by the adapters. All failures are `ModelError`s.

`httpx2` is imported for the first request only: it takes about 100 ms and 5 MB, which an idle
daemon should not need. Redirects are not followed, because the key would be sent to their target.
"""

from __future__ import annotations

import ssl
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import SplitResult

import msgspec
import trio

from tiller_daemon.config import Provider
from tiller_daemon.config.http_proxy import Proxy, parse_proxy, proxy_of_environment
from tiller_daemon.models.base import ModelError
from tiller_daemon.models.http.connection_failure import (
    PROXY_REJECTS_CREDENTIALS,
    connection_error,
    connection_failures,
    proxy_error,
)
from tiller_daemon.models.http.failure import Endpoint, error_from_response
from tiller_daemon.models.http.request_head import RequestHead, is_header_safe
from tiller_daemon.models.keys import Key, KeyUnavailable, NoKey

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping

    import httpx2

CONNECTIONS_MAX = 1_000
"""Concurrent requests to one provider. Further ones wait until one of them has ended."""

KEEPALIVE_S = 60.0
"""How long an idle connection is kept open. Tools often take that long between two steps."""

WRITE_S = 30.0
"""Limit for sending one piece of a request; images take long over slow connections."""

BODY_BYTES_MAX = 256 * 1024
"""How much of the body of an error is read."""

LISTING_BYTES_MAX = 16 * 1024 * 1024
"""How much of the body of a JSON response is read."""

BODY_S = 10.0
"""How long such a body is read."""

DRAIN_S = 0.05
"""How long to wait for the end of a stream, so that its connection can be reused."""

DECODING_FAILS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

T = TypeVar("T")


class ResponseStream:
    """The body of a response: an iterator over chunks as they arrive, none of them empty."""

    def __init__(self, http: HttpClient, response: httpx2.Response) -> None:
        self.status: int = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._http = http
        self._chunks = _body_chunks(response)
        self._timeout_s = http.timeouts.first_byte_s

    def __aiter__(self) -> ResponseStream:
        return self

    async def __anext__(self) -> bytes:
        chunk = b""
        while not chunk:
            chunk = await self._receive()
        self._timeout_s = self._http.timeouts.idle_s
        return chunk

    async def _receive(self) -> bytes:
        with trio.move_on_after(self._timeout_s):
            try:
                return await anext(self._chunks)
            except connection_failures() as error:
                raise self._http.connection_error_of(error) from None
        raise self._http.silence_error(self._timeout_s)

    async def drain(self) -> None:
        """Read to the end if that is near, so that the connection can be reused."""
        with trio.move_on_after(DRAIN_S), suppress(ModelError):
            async for _ in self:
                pass

    async def aclose(self) -> None:
        """Keep the connection if the whole response was read; otherwise close it at once.

        `httpx2` reads through nested generators but closes only the outermost. Reading on within a
        cancelled scope ends the inner ones, which trio would otherwise warn about when they are
        garbage collected.
        """
        with trio.CancelScope() as scope, suppress(*connection_failures()):
            scope.cancel()
            async for _ in self._chunks:
                pass
        with trio.CancelScope(shield=True), suppress(*connection_failures()):
            await self._response.aclose()


class HttpClient:
    """The connections to one provider. All requests must have ended before `aclose`.

    `provider.base_url` is required; `{model}` in its path is replaced by the name of the model.
    Proxies are taken from `environ`, unless one is configured. Raises `ValueError` if the base URL,
    a header or the proxy is invalid.
    """

    def __init__(
        self,
        name: str,
        provider: Provider,
        key: Key | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._head = RequestHead(name, provider)
        self.host = self._head.url.hostname or ""
        """The server's host name in lower case, without the port."""
        self.timeouts = provider.timeouts
        self._key = key or NoKey()
        self._proxy = _proxy(self._head.url, provider.proxy, environ or {})
        configured = tuple(self._head.configured_headers.values())
        self.endpoint = Endpoint(name, self._head.display_url, self._key, configured)
        self._ca_file = provider.ca_file
        self._client: httpx2.AsyncClient | None = None
        self._opening = trio.Lock()

    @asynccontextmanager
    async def stream(
        self, path: str, body: bytes, *, model: str = "", headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[ResponseStream]:
        """POST `body` to `path` under the base URL; yields the chunks of the event stream.

        Raises `ModelError` for every failure, also while the stream is read. Leaving the context
        closes the connection, unless the response has ended or is about to. `headers` have names in
        lower case; configured headers override them.
        """
        response = await self._send_with_key("POST", path, body, model, headers or {})
        try:
            await self._check(response, "text/event-stream")
            yield response
            await response.drain()
        finally:
            await response.aclose()

    async def get(self, path: str, shape: type[T], *, from_root: bool = False) -> T:
        """GET `path` under the base URL, or `from_root` of the server; return the JSON as `shape`.

        Raises `ModelError`. The only time limits are the provider's `timeouts`.
        """
        headers = {"accept": "application/json"}
        response = await self._send_with_key("GET", path, b"", "", headers, from_root=from_root)
        try:
            await self._check(response, "application/json")
            data = await _read_start(response, LISTING_BYTES_MAX)
        finally:
            await response.aclose()
        try:
            return msgspec.json.decode(data, type=shape)
        except DECODING_FAILS:
            message = f"{self.endpoint} answered {path} with unexpected data."
            raise ModelError("bad_request", message) from None

    async def aclose(self) -> None:
        """Close every connection."""
        if self._client is not None:
            await self._client.aclose()

    def silence_error(self, timeout_s: float) -> ModelError:
        """The error for a server that sends nothing."""
        return ModelError("timeout", f"{self.endpoint} sent nothing for {timeout_s:g} seconds.")

    def connection_error_of(self, error: BaseException) -> ModelError:
        """The error for a connection that could not be opened, or broke."""
        return connection_error(self.endpoint, error, self._proxy, self.timeouts.connect_s)

    async def _send_with_key(
        self,
        method: str,
        path: str,
        body: bytes,
        model: str,
        headers: Mapping[str, str],
        *,
        from_root: bool = False,
    ) -> ResponseStream:
        """Send a request and receive the head of the response.

        If the server rejects the key and the key has changed, the request is sent once more.
        """
        url = self._head.url_for(path, model, from_root=from_root)
        key = await self._read_key()
        response = await self._send(method, url, body, self._head.fields(headers, key))
        if response.status == 401 and key:
            # The response stays open meanwhile: without a new key, it says what is wrong.
            try:
                renewed = await self._key.refresh(key)
            except BaseException:
                await response.aclose()
                raise
            if not renewed:
                return response
            await response.aclose()
            key = await self._read_key()
            response = await self._send(method, url, body, self._head.fields(headers, key))
        return response

    async def _send(
        self, method: str, url: str, body: bytes, fields: Mapping[str, str]
    ) -> ResponseStream:
        """Send a request and receive the head of the response.

        A request that fails on a reused connection is sent again on another one: a server may close
        an idle connection just when a request is sent on it.
        """
        client = await self._open_client()
        for last in (False, True):
            connection = _NewConnection()
            request = client.build_request(method, url, content=body, headers=dict(fields))
            request.extensions["trace"] = connection.note
            with trio.move_on_after(self.timeouts.connect_s + self.timeouts.first_byte_s) as limit:
                try:
                    return ResponseStream(self, await client.send(request, stream=True))
                except connection_failures() as error:
                    await connection.close()
                    # A new connection can't have been closed for being idle.
                    if connection.began or last:
                        raise self.connection_error_of(error) from None
            if limit.cancelled_caught:
                break
        raise self.silence_error(self.timeouts.first_byte_s)

    async def _open_client(self) -> httpx2.AsyncClient:
        async with self._opening:
            if self._client is None:
                try:
                    self._client = await trio.to_thread.run_sync(self._make_client)
                except OSError as error:
                    reason = error.strerror or "it contains no certificate"
                    message = (
                        f"{self.endpoint} can't be used, because its `ca_file` {self._ca_file}"
                    )
                    raise ModelError(
                        "bad_request", f"{message} can't be loaded: {reason}."
                    ) from None
            return self._client

    def _make_client(self) -> httpx2.AsyncClient:
        """Import the library and load the certificates. Slow, so it runs in a thread."""
        import httpx2

        # Plain HTTP needs no certificates, and loading them takes 50 ms.
        encrypted = "https" in (self._head.url.scheme, self._proxy and self._proxy.scheme)
        context = (
            httpx2.create_ssl_context() if encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        )
        if encrypted and self._ca_file is not None:
            context.load_verify_locations(self._ca_file)
        proxy = None
        if self._proxy:
            auth = (self._proxy.user, self._proxy.password) if self._proxy.user else None
            proxy_context = context if self._proxy.scheme == "https" else None
            proxy = httpx2.Proxy(str(self._proxy), auth=auth, ssl_context=proxy_context)
        return httpx2.AsyncClient(
            verify=context,
            proxy=proxy,
            trust_env=False,  # the proxy has been chosen already
            # Reading has no limit here: `ResponseStream` has one for the first chunk and another
            # for the following ones.
            timeout=httpx2.Timeout(None, connect=self.timeouts.connect_s, write=WRITE_S),
            limits=httpx2.Limits(
                max_connections=CONNECTIONS_MAX,
                max_keepalive_connections=CONNECTIONS_MAX,
                keepalive_expiry=KEEPALIVE_S,
            ),
        )

    async def _read_key(self) -> str:
        """Return the key; empty if its header is configured explicitly. Raises `ModelError`."""
        if not self._head.takes_key:
            return ""
        try:
            key = await self._key.read()
        except KeyUnavailable as problem:
            message = f"{self.endpoint} can't be used: {problem}."
            raise ModelError("authentication", message) from None
        if not is_header_safe(key):
            message = f"{self.endpoint} can't be used, because its key contains a character that"
            raise ModelError("authentication", f"{message} can't be sent. {self._key.advice}")
        return key

    async def _check(self, response: ResponseStream, wanted: str) -> None:
        """Raise `ModelError` unless the response is a success of the type `wanted`."""
        status, headers = response.status, response.headers
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if status == 200 and kind in (wanted, ""):
            return
        body = await _read_start(response, BODY_BYTES_MAX)
        if status == 407 and self._proxy:
            raise proxy_error(self.endpoint, self._proxy, PROXY_REJECTS_CREDENTIALS, final=True)
        if status >= 400:
            raise error_from_response(self.endpoint, status, headers, body, time.time())
        if status >= 300:
            place = self.endpoint.quote(headers.get("location", "")) or "another address"
            advice = f"redirects to {place} (HTTP {status}). Set `base_url` to that address"
        else:
            expected = {"text/event-stream": "an event stream"}.get(wanted, wanted)
            actual = self.endpoint.quote(kind) or "nothing"
            advice = f"answered with {actual} instead of {expected} (HTTP {status})"
            advice += ". Check `base_url` and `api`"
            if quoted := self.endpoint.quote(body.decode(errors="replace")):
                advice += f". It said: {quoted}"
        raise ModelError("bad_request", f"{self.endpoint} {advice}.", status=status)


def _body_chunks(response: httpx2.Response) -> AsyncIterator[bytes]:
    """The chunks of the body. Without compression, the library's slow decoding is bypassed."""
    if response.headers.get("content-encoding", "identity") != "identity":
        return response.aiter_bytes()
    return aiter(cast("AsyncIterable[bytes]", response.stream))


async def _read_start(response: ResponseStream, bytes_max: int) -> bytes:
    """Read up to `bytes_max` bytes of a body for at most `BODY_S` seconds."""
    body = b""
    with trio.move_on_after(BODY_S), suppress(ModelError):
        async for chunk in response:
            body += chunk
            if len(body) >= bytes_max:
                break
    return body[:bytes_max]


class _NewConnection:
    """Observes whether a request opens a new connection, and closes it if the request fails."""

    def __init__(self) -> None:
        self.began = False
        self._stream: Any = None

    async def note(self, name: str, info: dict[str, Any]) -> None:
        """Receive a trace event of `httpx2`."""
        if name.endswith("connect_tcp.started"):
            self.began = True
        if name.endswith("connect_tcp.complete"):
            self._stream = info["return_value"]

    async def close(self) -> None:
        """Close the connection: the library leaks one that a SOCKS proxy has refused."""
        if self._stream is not None:
            await self._stream.aclose()


def _proxy(url: SplitResult, proxy: str | None, environ: Mapping[str, str]) -> Proxy | None:
    host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
    try:
        if proxy is None:
            return proxy_of_environment(url.scheme, host, port, environ)
        return parse_proxy(proxy) if proxy else None
    except ValueError as error:
        where = "" if proxy is None else "`proxy` "
        raise ValueError(f"{where}{error}") from None
