"""The requests of a login: to exchange a code, to renew and to revoke tokens, for published keys.

Nothing here is repeated by itself: a code and a refresh token are valid once. No message contains
what was sent, nor an answer's text, which could repeat it.
"""

import re
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from tiller_daemon.config import Provider
from tiller_daemon.config.model_schema import Timeouts
from tiller_daemon.models.accounts.chatgpt import EXPIRES_S_DEFAULT, METADATA_PATH, LoginService
from tiller_daemon.models.accounts.store import Login
from tiller_daemon.models.base import ModelError, ModelErrorKind
from tiller_daemon.models.http.client import HttpClient

TIMEOUTS: Final = Timeouts(connect_s=8.0, first_byte_s=12.0, idle_s=5.0)
"""Frontends wait for 30 s, in which a login sends four requests."""

is_code = re.compile(r"[a-z0-9_.-]{1,64}").fullmatch


class OAuthRefused(Exception):
    """The issuer has refused a request; `code` is its error code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Metadata(Struct, frozen=True):
    """The addresses that the issuer publishes."""

    issuer: str
    jwks_uri: str
    revocation_endpoint: str = ""


class Grant(Struct, frozen=True):
    """The tokens in an answer. Other fields have any type: no oddity there may lose a token."""

    access_token: str
    """The token for the API."""
    expires_in: Any = None
    """How long it is valid, in seconds."""
    refresh_token: str = ""
    """The token for the next renewal."""
    id_token: Any = ""
    """Says who has logged in."""
    scope: Any = None
    """The granted permissions; None if they are unchanged."""
    earliest_refresh_at: Any = None
    """When the token can be renewed at the earliest: Unix seconds or a date."""

    def onto(self, login: Login) -> Login:
        """Return the login with these tokens."""
        return msgspec.structs.replace(
            login,
            access_token=self.access_token,
            refresh_token=self.refresh_token or login.refresh_token,
            expires_at=time.time() + (_seconds(self.expires_in) or EXPIRES_S_DEFAULT),
            renewable_at=_seconds(self.earliest_refresh_at),
            scopes=tuple(self.scope.split()) if isinstance(self.scope, str) else login.scopes,
            ended="",
        )


class OAuth:
    """The requests to one login service. `environ` may name a proxy."""

    def __init__(self, service: LoginService, environ: Mapping[str, str]) -> None:
        self.service = service
        self._environ = environ

    async def exchange(self, code: str, client_id: str, verifier: str, redirect_uri: str) -> Grant:
        """Exchange the code of a redirect for tokens. Raises `OAuthRefused`, `ModelError`."""
        form = {"grant_type": "authorization_code", "code": code, "code_verifier": verifier}
        return await self._grant({**form, "redirect_uri": redirect_uri, "client_id": client_id})

    async def renew(self, login: Login) -> Grant:
        """Exchange the refresh token, which is then void. Raises `OAuthRefused`, `ModelError`."""
        form = {"grant_type": "refresh_token", "refresh_token": login.refresh_token}
        return await self._grant({**form, "client_id": login.client_id})

    async def revoke(self, login: Login) -> bool:
        """Revoke the refresh token, and with it the login; return whether that was confirmed."""
        endpoint = (await self._metadata()).revocation_endpoint
        if not endpoint:
            return False
        form = {"token": login.refresh_token, "token_type_hint": "refresh_token"}
        async with self._http(endpoint) as http:
            status, _ = await http.post_form({**form, "client_id": login.client_id})
        if status >= 500:
            raise _unexpected(endpoint, status)
        return status == 200

    async def published_keys(self) -> dict[str, list[dict[str, Any]]]:
        """Return the issuer's JSON Web Key Set. Raises `ModelError`."""
        async with self._http((await self._metadata()).jwks_uri) as http:
            return await http.get("", dict[str, list[dict[str, Any]]])

    async def _metadata(self) -> Metadata:
        issuer = self.service.issuer
        async with self._http(issuer) as http:
            metadata = await http.get(METADATA_PATH, Metadata)
        addresses = filter(None, (metadata.jwks_uri, metadata.revocation_endpoint))
        if metadata.issuer != issuer or any(_origin(one) != _origin(issuer) for one in addresses):
            raise ModelError("bad_request", f"{issuer} names addresses of another server.")
        return metadata

    async def _grant(self, form: Mapping[str, str]) -> Grant:
        async with self._http(self.service.token) as http:
            status, answer = await http.post_form({**form, "resource": self.service.resource})
        if status != 200:
            code = _error_code(answer)
            if code and 400 <= status < 500 and status != 429:
                raise OAuthRefused(code)
            raise _unexpected(self.service.token, status)
        try:
            return msgspec.convert(answer, Grant)
        except msgspec.ValidationError:
            raise _unexpected(self.service.token, status) from None

    @asynccontextmanager
    async def _http(self, address: str) -> AsyncGenerator[HttpClient]:
        """Yield a client for one request: on a kept connection, a request could be sent twice."""
        provider = Provider("openai_responses", base_url=address, timeouts=TIMEOUTS)
        http = HttpClient("chatgpt", provider, None, self._environ)
        try:
            yield http
        finally:
            await http.aclose()


def _unexpected(address: str, status: int) -> ModelError:
    kind: ModelErrorKind = "server" if status >= 500 or status == 200 else "bad_request"
    kind = "rate_limit" if status == 429 else kind
    return ModelError(kind, f"{address} answered with an unexpected HTTP {status}.", status=status)


def _error_code(answer: dict[str, Any]) -> str:
    """Return the error code of an answer, in the form of OAuth or of OpenAI's API."""
    error = answer.get("error")
    found = error.get("code") if isinstance(error, dict) else error  # type: ignore[reportUnknownMemberType]
    return found if isinstance(found, str) and is_code(found) else ""


def _origin(address: str) -> tuple[str, str]:
    parts = urlsplit(address)
    return parts.scheme, parts.netloc


def _seconds(value: object) -> float:
    """Return a number of seconds, or of a date in Unix seconds; 0 for any other form."""
    if isinstance(value, int | float):
        return float(value)
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else 0.0
    except ValueError:
        return 0.0
