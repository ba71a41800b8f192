"""The HTTP side of one provider: a POST whose answer is a stream of bytes, or a `ModelError`.

Shared by the adapters; knows nothing of any dialect. `httpx2` is imported here and nowhere else:
it costs some 35 ms, the certificates of the system 50 to 100 ms more, so they are read in a thread
before the first request to an `https` address.
"""

import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TypeVar, cast
from urllib.parse import quote, unquote

import httpx2
import msgspec
import trio

from tiller_daemon.config import Provider
from tiller_daemon.models.base import ModelError
from tiller_daemon.models.http_failure import Endpoint, error_of_answer
from tiller_daemon.models.keys import Key, KeyProblem, NoKey

BEARER = "Authorization"
"""The header in which a key goes as `Bearer KEY`; in any other one it stands alone."""

MODEL_IN_PATH = "{model}"

CONNECT_S = 10.0
WRITE_S = 30.0
POOL_S = 10.0
IDLE_S = 300.0
"""Longest silence of a server, before and within its answer: models that think say nothing."""

CONNECTIONS_MAX = 1_000
"""Requests to one provider at the same time."""

KEEPALIVE_S = 60.0
"""How long a connection is kept for the next step while tools run."""

BODY_BYTES_MAX = 256 * 1024
BODY_S = 10.0
"""How much of a body that is no stream is read, such as an error's, and for how long."""

DECODING_FAILS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

DRAIN_S = 0.05
"""How long the end of a body is awaited, so that the connection can be used again."""

T = TypeVar("T")


class HttpClient:
    """One provider's connections. `aclose` closes them; requests must have ended by then.

    `provider` says where the server is; its `base_url` must be given. `{model}` in its path stands
    for the name of the model. Raises `ValueError` for a base URL or a header that can't be sent.
    """

    def __init__(self, name: str, provider: Provider, key: Key | None = None) -> None:
        base_url = provider.base_url or ""
        url = httpx2.URL(base_url.replace(MODEL_IN_PATH, "model"))
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError(f"base_url of provider {name} is no http or https address: {base_url}")
        self.host = url.host
        """The server's name, lower case, without its port."""
        self._base_url = base_url
        self._query = dict(url.params) | provider.query
        self._key = key or NoKey()
        self._key_header = provider.api_key_header or BEARER
        self._is_https = url.scheme == "https"
        headers = tuple(provider.headers.values())
        shown = str(httpx2.URL(base_url).copy_with(query=None, userinfo=b""))
        self.endpoint = Endpoint(name, unquote(shown), self._key, headers)
        self._headers = {
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "User-Agent": "tiller",
            **provider.headers,
        }
        for field, value in self._headers.items():
            if not _can_be_sent(field + value):
                raise ValueError(
                    f"a header of provider {name} holds a character that can't be sent ({field})"
                )
        self._opening = trio.Lock()
        self._client: httpx2.AsyncClient | None = None

    @asynccontextmanager
    async def stream(
        self, path: str, body: bytes, *, model: str = "", headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """POST `body` to `path` under the base URL; gives the chunks of the event stream.

        Every way in which that can fail, within the context too, is a `ModelError`. Leaving it,
        also by cancellation, closes the connection unless the whole body was read. `headers` are
        for this request, and give way to those that are configured.
        """
        client = await self._opened()
        url = self._address(path, model)
        sent = {**(headers or {}), **self._headers, **await self._authorization()}
        try:
            async with client.stream("POST", url, content=body, headers=sent) as response:
                await self._check(response)
                chunks = response.aiter_bytes()
                try:
                    yield chunks
                finally:
                    await _unwind(chunks)
        except (httpx2.HTTPError, httpx2.InvalidURL, ssl.SSLError) as error:
            raise self._error_of(error) from None

    async def aclose(self) -> None:
        """Close every connection."""
        if self._client is not None:
            await self._client.aclose()

    def _address(self, path: str, model: str) -> httpx2.URL:
        url = httpx2.URL(self._base_url.replace(MODEL_IN_PATH, quote(model, safe="")))
        whole = url.copy_with(raw_path=url.raw_path.partition(b"?")[0].rstrip(b"/") + path.encode())
        return whole.copy_merge_params(self._query) if self._query else whole

    async def _authorization(self) -> dict[str, str]:
        if any(field.lower() == self._key_header.lower() for field in self._headers):
            return {}
        try:
            key = await self._key.read()
        except KeyProblem as problem:
            raise ModelError(
                "authentication", f"{self.endpoint} can't be asked: {problem}."
            ) from None
        if not _can_be_sent(key):
            message = f"{self.endpoint} can't be asked: its key holds a character that can't be"
            raise ModelError("authentication", f"{message} sent. {self._key.advice}")
        if not key:
            return {}
        return {self._key_header: f"Bearer {key}" if self._key_header == BEARER else key}

    async def _opened(self) -> httpx2.AsyncClient:
        async with self._opening:
            if self._client is None:
                if self._is_https:
                    verify = await trio.to_thread.run_sync(httpx2.create_ssl_context)
                else:
                    verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # Trusts nothing, costs none.
                self._client = httpx2.AsyncClient(
                    verify=verify,
                    timeout=httpx2.Timeout(IDLE_S, connect=CONNECT_S, write=WRITE_S, pool=POOL_S),
                    limits=httpx2.Limits(
                        max_connections=CONNECTIONS_MAX, keepalive_expiry=KEEPALIVE_S
                    ),
                )
            return self._client

    async def _check(self, response: httpx2.Response) -> None:
        """Raise the `ModelError` for an answer that is no event stream."""
        status = response.status_code
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if status == 200 and kind in ("text/event-stream", ""):
            return
        body = await _beginning(response)
        if status >= 400:
            raise error_of_answer(self.endpoint, status, response.headers, body, time.time())
        if status >= 300:
            place = self.endpoint.quote(response.headers.get("location", "")) or "another address"
            what = f"redirects to {place} (HTTP {status}). Set `base_url` to where it is"
        else:
            what = f"answered with {kind or 'nothing'} instead of an event stream (HTTP {status})"
            what += ". Check `base_url` and `api`"
            if said := self.endpoint.quote(body.decode(errors="replace")):
                what += f". It said: {said}"
        raise ModelError("bad_request", f"{self.endpoint} {what}.", status=status)

    def _error_of(self, error: Exception) -> ModelError:
        causes = _causes_of(error)
        reason = str(causes[-1]) or type(causes[-1]).__name__
        match error:
            case httpx2.ReadTimeout():
                kind, what = "timeout", f"sent nothing for {IDLE_S:.0f} seconds"
            case httpx2.TimeoutException():
                kind, what = "timeout", "did not take the request in time"
            case _ if _holds(causes, ssl.SSLCertVerificationError):
                kind, what = "bad_request", f"shows a certificate that is not trusted ({reason})"
            case _ if _holds(causes, ConnectionRefusedError):
                kind = "refused"
                what = "refuses connections. Start that server, or correct `base_url`"
            case httpx2.ConnectError():
                kind, what = "network", f"can't be reached ({reason}). Check the network"
            case httpx2.UnsupportedProtocol() | httpx2.LocalProtocolError() | httpx2.InvalidURL():
                kind, what = "bad_request", f"can't be asked ({reason}). Check `base_url`"
            case _:
                kind, what = "network", f"broke the connection ({reason})"
        return ModelError(kind, self.endpoint.quote(f"{self.endpoint} {what}."))


async def drain(chunks: AsyncIterator[bytes]) -> None:
    """Read what little is left of a body, so that its connection can be used again."""
    with trio.move_on_after(DRAIN_S):
        async for _ in chunks:
            pass


async def get_json(url: str, shape: type[T], limit_s: float) -> T | None:
    """What a plain `http` address answers within `limit_s`; None unless it has that shape.

    No proxy is asked. Never raises.
    """
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with trio.move_on_after(limit_s), suppress(httpx2.HTTPError, *DECODING_FAILS):
        async with (
            httpx2.AsyncClient(verify=nobody, trust_env=False, timeout=limit_s) as client,
            client.stream("GET", url) as response,
        ):
            if response.status_code == 200:
                return msgspec.json.decode(await _beginning(response), type=shape)
    return None


async def _beginning(response: httpx2.Response) -> bytes:
    """As much of a body that is no stream as is worth reading."""
    body = b""
    chunks = response.aiter_bytes()
    with trio.move_on_after(BODY_S):
        async for chunk in chunks:
            body += chunk
            if len(body) >= BODY_BYTES_MAX:
                break
    await _unwind(chunks)
    return body[:BODY_BYTES_MAX]


async def _unwind(chunks: AsyncIterator[bytes]) -> None:
    """End the reading of a body early, from its innermost read outwards.

    `httpx2` reads through several generators inside each other and closes only the outermost; the
    others would be left to the garbage collector, about which trio rightly complains.
    """
    with trio.CancelScope() as scope, suppress(httpx2.HTTPError):
        scope.cancel()
        async for _ in chunks:
            pass


def _can_be_sent(text: str) -> bool:
    return text.isascii() and (text.isprintable() or not text)


def _causes_of(error: BaseException) -> list[BaseException]:
    """The error and everything behind it, through causes and groups; the first one last."""
    found = [error]
    for known in found:
        if isinstance(known, BaseExceptionGroup):
            found.extend(cast("BaseExceptionGroup[BaseException]", known).exceptions)
        elif (behind := known.__cause__ or known.__context__) is not None:
            found.append(behind)
    return found


def _holds(causes: list[BaseException], kind: type[BaseException]) -> bool:
    return any(isinstance(cause, kind) for cause in causes)
