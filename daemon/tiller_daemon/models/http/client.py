"""The HTTP client for one provider, shared by the adapters. All failures are `ModelError`s.

Redirects are not followed, because their target would get the key.
"""

from __future__ import annotations

import math
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, urlencode

import msgspec
import trio

from tiller_daemon.config import Provider
from tiller_daemon.config.http_proxy import Proxy, parse_proxy, proxy_of_environment
from tiller_daemon.http.connection import Response
from tiller_daemon.http.failures import HttpFailure, ReadTimedOut
from tiller_daemon.http.head import make_request
from tiller_daemon.http.pool import Pool
from tiller_daemon.http.proxies import credentials_of
from tiller_daemon.http.route import PORTS, Route
from tiller_daemon.http.tls import make_context
from tiller_daemon.models.base import ModelError
from tiller_daemon.models.decoding import DECODING_FAILS
from tiller_daemon.models.http.connection_failure import (
    PROXY_REJECTS_CREDENTIALS,
    connection_error,
    proxy_error,
)
from tiller_daemon.models.http.error_body import is_error
from tiller_daemon.models.http.failure import Endpoint, error_from_event, error_from_response
from tiller_daemon.models.http.rate_limits import parse_rate_limits
from tiller_daemon.models.http.reading_pace import ReadingPace
from tiller_daemon.models.http.request_head import RequestHead, is_header_safe
from tiller_daemon.models.keys import Key, KeyUnavailable, NoKey

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from tiller_protocol.catalog import RateLimit

BODY_BYTES_MAX = 256 * 1024
"""How much of the body of an error is read."""

LISTING_BYTES_MAX = 16 * 1024 * 1024
"""How much of the body of a JSON response is read."""

BODY_S = 10.0
"""How long the body of an error or of a JSON response is read."""

EVENT_STREAM = "text/event-stream"
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"

EVENT_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")
"""How an event stream begins."""

DRAIN_S = 0.05
"""How long to wait for the end of a stream, so that its connection can be reused."""

T = TypeVar("T")


class ResponseStream:
    """The body of a response: an iterator over chunks as they arrive. No chunk is empty."""

    def __init__(self, http: HttpClient, response: Response) -> None:
        self.status: int = response.head.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._http = http
        self._limit_s = http.timeouts.first_byte_s
        self._left_s = self._limit_s
        self._hears = "nothing"
        self.is_paced = False
        """Whether reads are delayed to share time with the daemon's other streams."""
        self._read_at = -math.inf
        self._unread = b""

    async def begins_with_event(self) -> bool:
        """Whether the body begins like an event stream, whatever its content type."""
        self._unread = await anext(self, b"")
        start = self._unread.removeprefix(b"\xef\xbb\xbf").lstrip()
        return start.startswith(EVENT_STARTS)

    def __aiter__(self) -> ResponseStream:
        return self

    async def __anext__(self) -> bytes:
        if chunk := self._unread:
            self._unread = b""
            return chunk
        if self.is_paced:
            await self._http.pace.wait_since(self._read_at)
        began_at = trio.current_time()
        try:
            chunk = await self._response.receive(self._left_s)
        except ReadTimedOut:
            raise self._http.silence_error(self._limit_s, self._hears) from None
        except HttpFailure as error:
            raise self._http.connection_error_of(error) from None
        if not chunk:
            raise StopAsyncIteration
        self._read_at = trio.current_time()
        self._left_s = max(0.0, self._left_s - (self._read_at - began_at))
        self._hears = "nothing but keep-alives"
        return chunk

    def note_progress(self) -> None:
        """Note that a piece of the answer has arrived, so that the time limit begins again."""
        self._limit_s = self._left_s = self._http.timeouts.idle_s
        self._hears = "nothing"

    async def drain(self) -> None:
        """Wait briefly for the end of the body, so that the connection can be reused."""
        await self._response.drain(DRAIN_S)

    def close(self) -> None:
        """Keep the connection if the whole response was read; otherwise close it at once."""
        self._response.close()


class HttpClient:
    """The connections to one provider. All requests must have ended before `aclose`.

    `provider.base_url` is required; `{model}` in its path is replaced by the name of the model.
    Unless a proxy is configured, `environ` may name one. `pace` is shared with the other providers.
    Raises `ValueError` if the base URL, a header or the proxy is invalid.
    """

    def __init__(
        self,
        name: str,
        provider: Provider,
        key: Key | None = None,
        environ: Mapping[str, str] | None = None,
        pace: ReadingPace | None = None,
    ) -> None:
        self.pace = pace or ReadingPace()
        self._head = RequestHead(name, provider)
        self.host = self._head.url.hostname or ""
        """The server's host name in lower case, without the port."""
        self.timeouts = provider.timeouts
        self._key = key or NoKey()
        self._proxy = _proxy(self._head.url, provider.proxy, environ or {})
        configured = tuple(self._head.configured_headers.values())
        self.endpoint = Endpoint(name, self._head.display_url, self._key, configured)
        self._ca_file = provider.ca_file
        url = self._head.url
        self._route = Route(url.scheme, self._head.host, _port_of(url), self._proxy)
        self._pool = Pool(self._route, self.timeouts.connect_s)
        self._loading = trio.Lock()
        self.rate_limits: dict[str, tuple[RateLimit, ...]] = {}
        """The rate limits that the server last reported, by model."""

    @asynccontextmanager
    async def stream(
        self, path: str, body: bytes, *, model: str = "", headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[ResponseStream]:
        """POST `body` to `path` under the base URL, and yield the response, an event stream.

        Raises `ModelError` for every failure, also while the stream is read. Leaving the context
        closes the connection, unless the response has ended or ends at once. The names in `headers`
        are in lower case; configured headers override `headers`.
        """
        response = await self._send_with_key("POST", path, body, model, headers or {})
        if limits := parse_rate_limits(response.headers, time.time()):
            self.rate_limits[model] = limits
        try:
            await self._check(response, EVENT_STREAM)
            response.is_paced = True
            with self.pace.stream():
                yield response
            await response.drain()
        finally:
            response.close()

    async def get(self, path: str, shape: type[T], *, from_root: bool = False) -> T:
        """GET `path` below the base URL, or below `/` (`from_root`); return the JSON as `shape`.

        Raises `ModelError`. The only time limits are the provider's `timeouts`.
        """
        headers = {"accept": JSON}
        response = await self._send_with_key("GET", path, b"", "", headers, from_root=from_root)
        try:
            await self._check(response, JSON)
            data = await _read_start(response, LISTING_BYTES_MAX)
        finally:
            response.close()
        try:
            return msgspec.json.decode(data, type=shape)
        except DECODING_FAILS:
            message = f"{self.endpoint} answered the request for {path} with unexpected data."
            raise ModelError("bad_request", message) from None

    async def post_form(self, form: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        """POST a form to the base URL; return the status and the JSON object in the answer.

        The object is empty if the answer has none. Raises `ModelError` only if there is no answer.
        """
        headers = {"accept": JSON, "content-type": FORM}
        body = urlencode(form).encode()
        response = await self._send_with_key("POST", "", body, "", headers)
        try:
            data = await _read_start(response, BODY_BYTES_MAX)
        finally:
            response.close()
        try:
            return response.status, msgspec.json.decode(data, type=dict[str, Any])
        except DECODING_FAILS:
            return response.status, {}

    async def aclose(self) -> None:
        """Close every connection."""
        self._pool.close()
        await trio.lowlevel.checkpoint()

    def silence_error(self, timeout_s: float, sent: str = "nothing") -> ModelError:
        """Return the error for a server that sends no piece of an answer."""
        return ModelError("timeout", f"{self.endpoint} sent {sent} for {timeout_s:g} seconds.")

    def connection_error_of(self, error: HttpFailure) -> ModelError:
        """Return the error for a connection that could not be opened or that broke."""
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

        If the server rejects the key, the key is fetched again. If that yields another key, the
        request is sent once more.
        """
        target = self._head.target_for(path, model, from_root=from_root)
        key = await self._read_key()
        response = await self._send(method, target, body, self._head.fields(headers, key))
        if response.status == 401 and key:
            # Keep the response open: if there is no new key, its body explains the failure.
            try:
                renewed = await self._key.refresh(key)
            except BaseException:
                response.close()
                raise
            if not renewed:
                return response
            response.close()
            key = await self._read_key()
            response = await self._send(method, target, body, self._head.fields(headers, key))
        return response

    async def _send(
        self, method: str, target: str, body: bytes, fields: Mapping[str, str]
    ) -> ResponseStream:
        """Send a request and receive the head of the response."""
        sent = list(fields.items())
        if self._route.is_forwarded and self._proxy is not None:
            target = f"http://{fields['host']}{target}"
            sent += credentials_of(self._proxy)
        data = make_request(method, target, sent, body)
        if self._route.needs_tls and self._pool.tls is None:
            await self._load_certificates()
        with trio.move_on_after(self.timeouts.connect_s + self.timeouts.first_byte_s):
            try:
                return ResponseStream(self, await self._pool.request(data))
            except HttpFailure as error:
                raise self.connection_error_of(error) from None
        raise self.silence_error(self.timeouts.first_byte_s)

    async def _load_certificates(self) -> None:
        """Load the certificates for the first request, in a thread because it takes 50 ms."""
        async with self._loading:
            if self._pool.tls is None:
                try:
                    self._pool.tls = await trio.to_thread.run_sync(make_context, self._ca_file)
                except OSError as error:
                    reason = error.strerror or "the file contains no certificate"
                    problem = f"its `ca_file` {self._ca_file} can't be loaded: {reason}"
                    message = f"{self.endpoint} can't be used, because {problem}."
                    raise ModelError("bad_request", message) from None

    async def _read_key(self) -> str:
        """Return the key; empty if the key's header is configured. Raises `ModelError`."""
        if not self._head.takes_key:
            return ""
        try:
            key = await self._key.read()
        except KeyUnavailable as problem:
            message = f"{self.endpoint} can't be used. {problem}"
            raise ModelError("authentication", message) from None
        if not is_header_safe(key):
            message = f"{self.endpoint} can't be used, because its key contains a character that"
            raise ModelError("authentication", f"{message} can't be sent. {self._key.advice}")
        return key

    async def _check(self, response: ResponseStream, wanted: str) -> None:
        """Raise `ModelError` unless the response succeeded and has the content type `wanted`."""
        status, headers = response.status, response.headers
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if status == 200 and kind in (wanted, ""):
            return
        # Such as a set of keys: `application/jwk-set+json`.
        if status == 200 and wanted == JSON and kind.endswith("+json"):
            return
        if status == 200 and wanted == EVENT_STREAM and await response.begins_with_event():
            return
        body = await _read_start(response, BODY_BYTES_MAX)
        # This is the proxy's answer, not the server's.
        if status == 407 and self._proxy:
            raise proxy_error(self.endpoint, self._proxy, PROXY_REJECTS_CREDENTIALS, final=True)
        if status >= 400:
            raise error_from_response(self.endpoint, status, headers, body, time.time())
        # Some gateways report every error with the status 200.
        if status < 300 and is_error(body):
            raise error_from_event(self.endpoint, body, "bad_request")
        # Redirects are not followed, as the key would go along.
        if status >= 300:
            place = self.endpoint.quote(headers.get("location", "")) or "another address"
            advice = f"redirects to {place} (HTTP {status}). Set `base_url` to that address"
        else:
            expected = "an event stream" if wanted == EVENT_STREAM else wanted
            actual = self.endpoint.quote(kind) or "nothing"
            advice = f"answered with {actual} instead of {expected} (HTTP {status})"
            advice += ". Check `base_url` and `api`"
            if quoted := self.endpoint.quote(body.decode(errors="replace")):
                advice += f". It said: {quoted}"
        raise ModelError("bad_request", f"{self.endpoint} {advice}.", status=status)


async def _read_start(response: ResponseStream, bytes_max: int) -> bytes:
    """Read up to `bytes_max` bytes of a body for at most `BODY_S` seconds."""
    body = b""
    with trio.move_on_after(BODY_S), suppress(ModelError):
        async for chunk in response:
            body += chunk
            if len(body) >= bytes_max:
                break
    return body[:bytes_max]


def _proxy(url: SplitResult, proxy: str | None, environ: Mapping[str, str]) -> Proxy | None:
    try:
        if proxy is None:
            host, port = url.hostname or "", _port_of(url)
            return proxy_of_environment(url.scheme, host, port, environ)
        return parse_proxy(proxy) if proxy else None
    except ValueError as error:
        where = "" if proxy is None else "`proxy` "
        raise ValueError(f"{where}{error}") from None


def _port_of(url: SplitResult) -> int:
    return url.port or PORTS[url.scheme]
