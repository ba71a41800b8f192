"""The HTTP side of one provider: a POST whose answer is a stream of bytes, or a `ModelError`.

Shared by the adapters; knows nothing of any dialect. Connections are kept for the next request.
Redirects are not followed: the key would go with them.
"""

import ssl
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TypeVar
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

import h11
import msgspec
import trio

from tiller_daemon.config import Provider
from tiller_daemon.models.base import ModelError
from tiller_daemon.models.http_body import BodyReader, BrokenBody
from tiller_daemon.models.http_connection import (
    Connection,
    Head,
    Route,
    begin,
    connect,
    make_tls_context,
)
from tiller_daemon.models.http_failure import Endpoint, error_of_answer, error_of_connection
from tiller_daemon.models.http_proxy import (
    PROXY_WANTS_NAME,
    ProxyError,
    parse_proxy,
    proxy_of_environment,
)
from tiller_daemon.models.keys import Key, KeyProblem, NoKey

BEARER = "authorization"
"""The header in which a key goes as `Bearer KEY`; in any other one it stands alone."""

DEFAULT_HEADERS = {
    "accept": "text/event-stream",
    "accept-encoding": "identity",
    "content-type": "application/json",
    "user-agent": "tiller",
}

MODEL_IN_PATH = "{model}"

CONNECTIONS_MAX = 1_000
"""Requests to one provider at the same time; a further one waits until one of them has ended."""

KEEPALIVE_S = 60.0
"""How long a connection is kept for the next step while tools run."""

BODY_BYTES_MAX = 256 * 1024
LISTING_BYTES_MAX = 16 * 1024 * 1024
BODY_S = 10.0
"""How much of a body that is no stream is read, such as an error's, and for how long."""

DRAIN_S = 0.05
"""How long the end of a body is awaited, so that the connection can be used again."""

FAILURES = (OSError, trio.BrokenResourceError, h11.RemoteProtocolError, BrokenBody)
"""What can go wrong with a connection; `ssl.SSLError` is an `OSError`."""

DECODING_FAILS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

T = TypeVar("T")


class Answer:
    """The body of an answer as it comes: an iterator of pieces, none of them empty."""

    def __init__(
        self, http: "HttpClient", connection: Connection, head: Head, body: BodyReader, first: bytes
    ) -> None:
        self.head = head
        self.connection = connection
        self.body = body
        self._http = http
        self._first = first
        self._waiting_s = http.timeouts.first_byte_s

    def __aiter__(self) -> "Answer":
        return self

    async def __anext__(self) -> bytes:
        piece, self._first = self._first, b""
        while not piece:
            if self.body.ended:
                raise StopAsyncIteration
            piece = await self._receive()
        self._waiting_s = self._http.timeouts.idle_s
        return piece

    async def _receive(self) -> bytes:
        with trio.move_on_after(self._waiting_s) as limit:
            try:
                data = await self.connection.receive()
                if data:
                    return self.body.feed(data)
                self.body.end()
            except FAILURES as error:
                raise self._http.error_of(error) from None
        if limit.cancelled_caught:
            raise self._http.silent(self._waiting_s)
        return b""

    async def drain(self) -> None:
        """Read what little is left, so that the connection can be used again."""
        with trio.move_on_after(DRAIN_S), suppress(ModelError):
            async for _ in self:
                pass


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
        self._url = _parsed(name, provider.base_url or "")
        self.host = self._url.hostname or ""
        """The server's name, in lower case, without its port."""
        self.timeouts = provider.timeouts
        self._key = key or NoKey()
        self._key_header = (provider.api_key_header or BEARER).lower()
        self._route = _route(self._url, provider.proxy, environ or {})
        self._query = urlencode({**dict(parse_qsl(self._url.query)), **provider.query})
        self._own = {field.lower(): value for field, value in provider.headers.items()}
        for field, value in self._own.items():
            if not _can_be_sent(field + value):
                raise ValueError(
                    f"a header of provider {name} holds a character that can't be sent ({field})"
                )
        self._authority = self._url.netloc.rpartition("@")[2]
        shown = self._url._replace(netloc=self._authority, query="", fragment="").geturl()
        self.endpoint = Endpoint(name, shown, self._key, tuple(self._own.values()))
        self._ca_file = provider.ca_file
        self._context: ssl.SSLContext | None = None
        self._idle: list[Connection] = []
        self._slots = trio.Semaphore(CONNECTIONS_MAX)
        self._making_context = trio.Lock()

    @asynccontextmanager
    async def stream(
        self, path: str, body: bytes, *, model: str = "", headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[Answer]:
        """POST `body` to `path` under the base URL; gives the pieces of the event stream.

        Every way in which that can fail, within the context too, is a `ModelError`. Leaving it
        closes the connection at once, unless the answer has ended or is about to. `headers` are
        for this request, in lower case, and give way to those that are configured.
        """
        async with self._slots:
            answer = await self._ask("POST", path, body, model, headers or {})
            try:
                await self._check(answer, "text/event-stream")
                yield answer
                await answer.drain()
            finally:
                self._release(answer)

    async def get(self, path: str, shape: type[T]) -> T:
        """What a GET of `path` under the base URL answers, as JSON of this shape.

        Raises `ModelError`; sets no limit of its own but those of the provider.
        """
        async with self._slots:
            answer = await self._ask("GET", path, b"", "", {"accept": "application/json"})
            try:
                await self._check(answer, "application/json")
                data = await _beginning(answer, LISTING_BYTES_MAX)
            finally:
                self._release(answer)
        try:
            return msgspec.json.decode(data, type=shape)
        except DECODING_FAILS:
            message = f"{self.endpoint} answered {path} with something else than was asked for."
            raise ModelError("bad_request", message) from None

    async def aclose(self) -> None:
        """Close every connection."""
        while self._idle:
            self._idle.pop().close()
        await trio.lowlevel.checkpoint()

    def silent(self, waited_s: float) -> ModelError:
        """The error of a server that says nothing."""
        return ModelError("timeout", f"{self.endpoint} sent nothing for {waited_s:g} seconds.")

    def error_of(self, error: Exception) -> ModelError:
        """The error of a connection that could not be made, or broke."""
        return error_of_connection(self.endpoint, error, self._route.proxy)

    async def _ask(
        self, method: str, path: str, body: bytes, model: str, headers: Mapping[str, str]
    ) -> Answer:
        """Send a request and take the head of its answer; once more if there is a new key."""
        target = self._target(path, model)
        key = await self._read_key()
        answer = await self._exchange(self._request(method, target, body, headers, key), body)
        if answer.head.status == 401 and key:
            try:
                renewed = await self._key.renew(key)
            except BaseException:
                answer.connection.close()
                raise
            if not renewed:
                return answer
            self._release(answer)
            key = await self._read_key()
            answer = await self._exchange(self._request(method, target, body, headers, key), body)
        return answer

    async def _exchange(self, request: h11.Request, body: bytes) -> Answer:
        """Send a request and take the head of its answer.

        What fails on a connection that was used before is asked again on another one: servers close
        connections that rest, which may cross a request on its way.
        """
        while True:
            protocol, data = begin(request)
            connection = await self._connected()
            was_used, was_answered = connection.used, False
            try:
                with trio.move_on_after(self.timeouts.first_byte_s):
                    with suppress(trio.BrokenResourceError):  # It may have answered before.
                        await connection.send(data + body)
                    head, reader, first = await connection.receive_head(protocol)
                    was_answered = True
                    return Answer(self, connection, head, reader, first)
                raise self.silent(self.timeouts.first_byte_s)
            except trio.TooSlowError:
                message = f"{self.endpoint} did not take the request in time."
                raise ModelError("timeout", message) from None
            except FAILURES as error:
                if not was_used:
                    raise self.error_of(error) from None
            finally:
                if not was_answered:
                    connection.close()

    def _request(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str], key: str
    ) -> h11.Request:
        fields = {"host": self._authority, **DEFAULT_HEADERS, **headers, **self._own}
        proxy = self._route.proxy
        if self._route.is_forwarded and proxy and proxy.authorization:
            fields["proxy-authorization"] = proxy.authorization
        if key:
            fields[self._key_header] = f"Bearer {key}" if self._key_header == BEARER else key
        if body:
            fields["content-length"] = str(len(body))
        return h11.Request(method=method, target=target, headers=list(fields.items()))

    def _target(self, path: str, model: str) -> str:
        base = self._url.path.replace(MODEL_IN_PATH, quote(model, safe="")).rstrip("/")
        target = base + path + (f"?{self._query}" if self._query else "")
        if self._route.is_forwarded:
            return f"{self._url.scheme}://{self._authority}{target}"
        return target

    async def _read_key(self) -> str:
        """The key; none if a header that is configured stands for it."""
        if self._key_header in self._own:
            return ""
        try:
            key = await self._key.read()
        except KeyProblem as problem:
            message = f"{self.endpoint} can't be asked: {problem}."
            raise ModelError("authentication", message) from None
        if not _can_be_sent(key):
            message = f"{self.endpoint} can't be asked: its key holds a character that can't be"
            raise ModelError("authentication", f"{message} sent. {self._key.advice}")
        return key

    async def _connected(self) -> Connection:
        """A connection that rests, the last one first, or a new one."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_stale and not _is_old(connection):
                return connection
            connection.close()
        try:
            context = await self._tls_context() if self._route.encrypts else None
            with trio.move_on_after(self.timeouts.connect_s):
                return await connect(self._route, context)
        except (*FAILURES, ProxyError) as error:
            raise self.error_of(error) from None
        waited = f"{self.timeouts.connect_s:g} seconds"
        raise ModelError("timeout", f"{self.endpoint} can't be reached within {waited}.")

    async def _tls_context(self) -> ssl.SSLContext:
        async with self._making_context:
            if self._context is None:
                make = partial(make_tls_context, self._ca_file)
                try:
                    self._context = await trio.to_thread.run_sync(make)
                except OSError as error:
                    reason = error.strerror or "it holds no certificate"
                    message = f"{self.endpoint} can't be asked: its `ca_file` {self._ca_file}"
                    raise ModelError("bad_request", f"{message} can't be used: {reason}") from None
            return self._context

    def _release(self, answer: Answer) -> None:
        """Keep the connection for the next request, or close it."""
        while self._idle and _is_old(self._idle[0]):
            self._idle.pop(0).close()
        if answer.body.reusable:
            answer.connection.idle_since = trio.current_time()
            self._idle.append(answer.connection)
        else:
            answer.connection.close()

    async def _check(self, answer: Answer, wanted: str) -> None:
        """Raise the `ModelError` for an answer that is not what was asked for."""
        status, headers = answer.head.status, answer.head.headers
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if status == 200 and kind in (wanted, ""):
            return
        body = await _beginning(answer, BODY_BYTES_MAX)
        if status == 407 and self._route.is_forwarded:
            raise self.error_of(ProxyError(PROXY_WANTS_NAME, final=True))
        if status >= 400:
            raise error_of_answer(self.endpoint, status, headers, body, time.time())
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


async def _beginning(answer: Answer, bytes_max: int) -> bytes:
    """As much of a body that is no stream as is worth reading."""
    body = b""
    with trio.move_on_after(BODY_S), suppress(ModelError):
        async for piece in answer:
            body += piece
            if len(body) >= bytes_max:
                break
    return body[:bytes_max]


def _is_old(connection: Connection) -> bool:
    return connection.idle_since + KEEPALIVE_S < trio.current_time()


def _parsed(name: str, base_url: str) -> SplitResult:
    try:
        url = urlsplit(base_url)
        if url.scheme in ("http", "https") and url.hostname and url.port != 0:
            return url
    except ValueError:
        pass
    raise ValueError(f"base_url of provider {name} is no http or https address")


def _route(url: SplitResult, proxy: str | None, environ: Mapping[str, str]) -> Route:
    host, tls = url.hostname or "", url.scheme == "https"
    port = url.port or (443 if tls else 80)
    try:
        if proxy is None:
            chosen = proxy_of_environment(url.scheme, host, port, environ)
        else:
            chosen = parse_proxy(proxy) if proxy else None
    except ValueError as error:
        where = "" if proxy is None else "`proxy` "
        raise ValueError(f"{where}{error}") from None
    return Route(host, port, tls, chosen)


def _can_be_sent(text: str) -> bool:
    return text.isascii() and (text.isprintable() or not text)
