"""The HTTP side of one provider: a POST whose answer is a stream of bytes, or a `ModelError`.

Shared by the adapters; knows nothing of any dialect. `httpx2` does the work and is imported when
the first request is made: it costs some 100 ms and 5 MB that a daemon at rest does without.
Redirects are not followed: the key would go with them.
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
from tiller_daemon.models.http.request_head import RequestHead, can_be_sent
from tiller_daemon.models.keys import Key, KeyUnavailable, NoKey

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping

    import httpx2

CONNECTIONS_MAX = 1_000
"""Requests to one provider at the same time; a further one waits until one of them has ended."""

KEEPALIVE_S = 60.0
"""How long a connection is kept for the next step while tools run."""

WRITE_S = 30.0
"""How long a server may take for a piece of a request; slow lines take long for images."""

BODY_BYTES_MAX = 256 * 1024
LISTING_BYTES_MAX = 16 * 1024 * 1024
BODY_S = 10.0
"""How much of a body that is no stream is read, such as an error's, and for how long."""

DRAIN_S = 0.05
"""How long the end of a body is awaited, so that the connection can be used again."""

DECODING_FAILS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

T = TypeVar("T")


class ResponseStream:
    """The body of an answer as it comes: an iterator of pieces, none of them empty."""

    def __init__(self, http: HttpClient, response: httpx2.Response) -> None:
        self.response = response
        self._http = http
        self._pieces = _pieces(response)
        self._waiting_s = http.timeouts.first_byte_s

    def __aiter__(self) -> ResponseStream:
        return self

    async def __anext__(self) -> bytes:
        piece = b""
        while not piece:
            piece = await self._receive()
        self._waiting_s = self._http.timeouts.idle_s
        return piece

    async def _receive(self) -> bytes:
        with trio.move_on_after(self._waiting_s):
            try:
                return await anext(self._pieces)
            except connection_failures() as error:
                raise self._http.error_of(error) from None
        raise self._http.silent(self._waiting_s)

    async def drain(self) -> None:
        """Read what little is left, so that the connection can be used again."""
        with trio.move_on_after(DRAIN_S), suppress(ModelError):
            async for _ in self:
                pass

    async def aclose(self) -> None:
        """Keep the connection if all of the answer was read, else close it at once.

        `httpx2` reads through several generators inside each other and closes only the outermost;
        the others would be left to the garbage collector, about which trio rightly complains.
        """
        with trio.CancelScope() as scope, suppress(*connection_failures()):
            scope.cancel()
            async for _ in self._pieces:
                pass
        with trio.CancelScope(shield=True), suppress(*connection_failures()):
            await self.response.aclose()


class HttpClient:
    """One provider's connections. `aclose` closes them; requests must have ended by then.

    `provider` says where the server is; its `base_url` must be given. `{model}` in its path stands
    for the name of the model. `environ` is where proxies are looked for. Raises `ValueError` for a
    base URL, a header or a proxy that can't be used.
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
        """The server's name, in lower case, without its port."""
        self.timeouts = provider.timeouts
        self._key = key or NoKey()
        self._proxy = _proxy(self._head.url, provider.proxy, environ or {})
        configured = tuple(self._head.own.values())
        self.endpoint = Endpoint(name, self._head.shown, self._key, configured)
        self._ca_file = provider.ca_file
        self._client: httpx2.AsyncClient | None = None
        self._opening = trio.Lock()

    @asynccontextmanager
    async def stream(
        self, path: str, body: bytes, *, model: str = "", headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[ResponseStream]:
        """POST `body` to `path` under the base URL; gives the pieces of the event stream.

        Every way in which that can fail, within the context too, is a `ModelError`. Leaving it
        closes the connection at once, unless the answer has ended or is about to. `headers` are
        for this request, in lower case, and give way to those that are configured.
        """
        answer = await self._ask("POST", path, body, model, headers or {})
        try:
            await self._check(answer, "text/event-stream")
            yield answer
            await answer.drain()
        finally:
            await answer.aclose()

    async def get(self, path: str, shape: type[T], *, from_root: bool = False) -> T:
        """What a GET of `path` under the base URL, or the server's root, answers: JSON of a shape.

        Raises `ModelError`; sets no limit of its own but those of the provider.
        """
        headers = {"accept": "application/json"}
        answer = await self._ask("GET", path, b"", "", headers, from_root=from_root)
        try:
            await self._check(answer, "application/json")
            data = await _beginning(answer, LISTING_BYTES_MAX)
        finally:
            await answer.aclose()
        try:
            return msgspec.json.decode(data, type=shape)
        except DECODING_FAILS:
            message = f"{self.endpoint} answered {path} with something else than was asked for."
            raise ModelError("bad_request", message) from None

    async def aclose(self) -> None:
        """Close every connection."""
        if self._client is not None:
            await self._client.aclose()

    def silent(self, waited_s: float) -> ModelError:
        """The error of a server that says nothing."""
        return ModelError("timeout", f"{self.endpoint} sent nothing for {waited_s:g} seconds.")

    def error_of(self, error: BaseException) -> ModelError:
        """The error of a connection that could not be made, or broke."""
        return connection_error(self.endpoint, error, self._proxy, self.timeouts.connect_s)

    async def _ask(
        self,
        method: str,
        path: str,
        body: bytes,
        model: str,
        headers: Mapping[str, str],
        *,
        from_root: bool = False,
    ) -> ResponseStream:
        """Send a request and take the head of its answer; once more if there is a new key."""
        url = self._head.address(path, model, from_root=from_root)
        key = await self._read_key()
        answer = await self._exchange(method, url, body, self._head.fields(headers, key))
        if answer.response.status_code == 401 and key:
            try:
                renewed = await self._key.refresh(key)
            except BaseException:
                await answer.aclose()
                raise
            if not renewed:
                return answer
            await answer.aclose()
            key = await self._read_key()
            answer = await self._exchange(method, url, body, self._head.fields(headers, key))
        return answer

    async def _exchange(
        self, method: str, url: str, body: bytes, fields: Mapping[str, str]
    ) -> ResponseStream:
        """Send a request and take the head of its answer.

        What fails on a connection that was kept is asked again on another one: servers close
        connections that rest, which may cross a request on its way.
        """
        client = await self._opened()
        for last in (False, True):
            own = _OwnConnection()
            request = client.build_request(method, url, content=body, headers=dict(fields))
            request.extensions["trace"] = own.note
            with trio.move_on_after(self.timeouts.connect_s + self.timeouts.first_byte_s) as limit:
                try:
                    return ResponseStream(self, await client.send(request, stream=True))
                except connection_failures() as error:
                    await own.close()
                    if own.began or last:
                        raise self.error_of(error) from None
            if limit.cancelled_caught:
                break
        raise self.silent(self.timeouts.first_byte_s)

    async def _opened(self) -> httpx2.AsyncClient:
        async with self._opening:
            if self._client is None:
                try:
                    self._client = await trio.to_thread.run_sync(self._make_client)
                except OSError as error:
                    reason = error.strerror or "it holds no certificate"
                    message = f"{self.endpoint} can't be asked: its `ca_file` {self._ca_file}"
                    raise ModelError("bad_request", f"{message} can't be used: {reason}") from None
            return self._client

    def _make_client(self) -> httpx2.AsyncClient:
        """Import the library and read the certificates: the slow part, run in a thread."""
        import httpx2

        # A plain address needs no certificates, and they take 50 ms to read.
        encrypted = "https" in (self._head.url.scheme, self._proxy and self._proxy.scheme)
        context = (
            httpx2.create_ssl_context() if encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        )
        if encrypted and self._ca_file is not None:
            context.load_verify_locations(self._ca_file)
        proxy = None
        if self._proxy:
            auth = (self._proxy.user, self._proxy.password) if self._proxy.user else None
            own = context if self._proxy.scheme == "https" else None
            proxy = httpx2.Proxy(str(self._proxy), auth=auth, ssl_context=own)
        return httpx2.AsyncClient(
            verify=context,
            proxy=proxy,
            trust_env=False,
            timeout=httpx2.Timeout(None, connect=self.timeouts.connect_s, write=WRITE_S),
            limits=httpx2.Limits(
                max_connections=CONNECTIONS_MAX,
                max_keepalive_connections=CONNECTIONS_MAX,
                keepalive_expiry=KEEPALIVE_S,
            ),
        )

    async def _read_key(self) -> str:
        """The key; none if a header that is configured stands for it."""
        if not self._head.takes_key:
            return ""
        try:
            key = await self._key.read()
        except KeyUnavailable as problem:
            message = f"{self.endpoint} can't be asked: {problem}."
            raise ModelError("authentication", message) from None
        if not can_be_sent(key):
            message = f"{self.endpoint} can't be asked: its key holds a character that can't be"
            raise ModelError("authentication", f"{message} sent. {self._key.advice}")
        return key

    async def _check(self, answer: ResponseStream, wanted: str) -> None:
        """Raise the `ModelError` for an answer that is not what was asked for."""
        status, headers = answer.response.status_code, answer.response.headers
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if status == 200 and kind in (wanted, ""):
            return
        body = await _beginning(answer, BODY_BYTES_MAX)
        if status == 407 and self._proxy:
            raise proxy_error(self.endpoint, self._proxy, PROXY_REJECTS_CREDENTIALS, final=True)
        if status >= 400:
            raise error_from_response(self.endpoint, status, headers, body, time.time())
        if status >= 300:
            place = self.endpoint.quote(headers.get("location", "")) or "another address"
            what = f"redirects to {place} (HTTP {status}). Set `base_url` to where it is"
        else:
            named = {"text/event-stream": "an event stream"}.get(wanted, wanted)
            came = self.endpoint.quote(kind) or "nothing"
            what = f"answered with {came} instead of {named} (HTTP {status})"
            what += ". Check `base_url` and `api`"
            if said := self.endpoint.quote(body.decode(errors="replace")):
                what += f". It said: {said}"
        raise ModelError("bad_request", f"{self.endpoint} {what}.", status=status)


def _pieces(response: httpx2.Response) -> AsyncIterator[bytes]:
    """The body as it comes; what is not compressed goes round the layers that would unpack it."""
    if response.headers.get("content-encoding", "identity") != "identity":
        return response.aiter_bytes()
    return aiter(cast("AsyncIterable[bytes]", response.stream))


async def _beginning(answer: ResponseStream, bytes_max: int) -> bytes:
    """As much of a body that is no stream as is worth reading."""
    body = b""
    with trio.move_on_after(BODY_S), suppress(ModelError):
        async for piece in answer:
            body += piece
            if len(body) >= bytes_max:
                break
    return body[:bytes_max]


class _OwnConnection:
    """Whether a request opens a connection of its own, and that connection."""

    def __init__(self) -> None:
        self.began = False
        self._stream: Any = None

    async def note(self, name: str, info: dict[str, Any]) -> None:
        """Listen to what `httpx2` says it does."""
        if name.endswith("connect_tcp.started"):
            self.began = True
        if name.endswith("connect_tcp.complete"):
            self._stream = info["return_value"]

    async def close(self) -> None:
        """Close it: the library forgets one on which a SOCKS proxy said no."""
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
