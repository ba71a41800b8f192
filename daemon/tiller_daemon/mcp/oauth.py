"""OAuth with MCP servers, by the MCP package's client: discovery, registration, PKCE, refresh.

A connection only uses and refreshes the tokens of an earlier login. `LoginAttempt` performs a
login, in a browser; `logins` starts it. Imports the MCP package.
"""

import time
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import httpx2
import structlog
import trio
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import AnyUrl, BaseModel, ValidationError

from tiller_daemon import DAEMON_VERSION
from tiller_daemon.config import McpServer, OAuthClient
from tiller_daemon.mcp.http import HttpTransport, HttpTransportProblem, LoginAuth, check_secret
from tiller_daemon.mcp.login_addresses import CheckedAuth, LoginAddresses
from tiller_daemon.mcp.login_store import LoginStore, StoredLogin
from tiller_daemon.mcp.redirect import open_listener, read_pasted, receive_redirect
from tiller_daemon.models.keys import Key, KeyUnavailable
from tiller_daemon.tools.base import WebAccess

log = structlog.get_logger()

LOGIN_S_MAX: Final = 600.0
"""How long a person may take to log in."""

REASON_CHARS_MAX: Final = 500

EXPIRED: Final = 1.0
"""An expiry time, in Unix seconds, that makes the package refresh a token."""

PROBE: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": LATEST_HANDSHAKE_VERSION,
        "capabilities": {},
        "clientInfo": {"name": "tiller", "version": DAEMON_VERSION},
    },
}
"""The request that a server answers with 401 until the user has logged in."""

PROBE_HEADERS: Final = {"accept": "application/json, text/event-stream"}


BASIC: Final = "client_secret_basic"
"""The method that sends a client's secret in the `Authorization` header."""

REGISTER: Final = (
    "If the server does not let clients register themselves, register a client there and set its "
    "`client_id` in `[mcp.{name}.oauth]` of the configuration."
)


class LoginNeeded(HttpTransportProblem):
    """The server requires a login, which only a person can perform."""


class LoginFailed(Exception):
    """A login ended without tokens. The message is a sentence."""


class _Storage:
    """The MCP package's access to one server's stored login. A new login ignores the old one."""

    def __init__(
        self, name: str, url: str, store: LoginStore, web: WebAccess, *, anew: bool = False
    ) -> None:
        self._name = name
        self._url = url
        self._store = store
        self.stored = None if anew else store.read(name, url)
        is_private = self.stored.is_private if self.stored else None
        self.addresses = LoginAddresses(name, url, web, is_private=is_private)
        self.client = self.stored and OAuthClientInformationFull.model_validate(self.stored.client)
        self.provider: OAuthClientProvider | None = None

    async def get_tokens(self) -> OAuthToken | None:
        await trio.lowlevel.checkpoint()
        return OAuthToken.model_validate(self.stored.tokens) if self.stored else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        await trio.lowlevel.checkpoint()
        assert self.provider
        assert self.client
        context = self.provider.context
        try:
            for token in filter(None, (tokens.access_token, tokens.refresh_token)):
                check_secret(token, "The token that the server sent")
        except HttpTransportProblem:
            context.clear_tokens()
            raise
        expires_at = None if tokens.expires_in is None else time.time() + tokens.expires_in
        login = StoredLogin(
            self._url,
            _plain(tokens),
            _plain(self.client),
            expires_at,
            context.oauth_metadata and _plain(context.oauth_metadata),
            context.protected_resource_metadata and _plain(context.protected_resource_metadata),
            self.addresses.is_private,
        )
        self._store.write(self._name, login)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        await trio.lowlevel.checkpoint()
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        await trio.lowlevel.checkpoint()
        self.client = client_info


class StoredLoginAuth(LoginAuth):
    """Adds the token of an earlier login, and refreshes a token that has expired or is rejected.

    If that is not enough, the request fails with `LoginNeeded`, and `is_rejected` becomes true.
    """

    requires_response_body = True

    def __init__(self, name: str, url: str, store: LoginStore, web: WebAccess) -> None:
        self._name = name
        storage = _Storage(name, url, store, web)
        self._provider = storage.provider = OAuthClientProvider(
            url, _client_metadata("http://127.0.0.1/callback"), storage, self._refuse, None
        )
        self._auth = CheckedAuth(self._provider, storage.addresses)
        if stored := storage.stored:
            # The package does not read these from its storage, but needs them for a refresh.
            context = self._provider.context
            context.token_expiry_time = stored.expires_at
            if stored.authorization_server:
                context.oauth_metadata = OAuthMetadata.model_validate(stored.authorization_server)
                context.auth_server_url = str(context.oauth_metadata.issuer)
            if stored.resource:
                metadata = ProtectedResourceMetadata.model_validate(stored.resource)
                context.protected_resource_metadata = metadata

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Run the package's flow; if the token is rejected, refresh it and run the flow again."""
        for is_last in (False, True):
            flow = self._auth.async_auth_flow(request)
            try:
                outgoing = await anext(flow)
                while True:
                    response = yield outgoing
                    outgoing = await flow.asend(response)
            except StopAsyncIteration:
                return
            except (LoginNeeded, OAuthFlowError):
                context = self._provider.context
                if is_last or not context.can_refresh_token():
                    self.is_rejected = True
                    raise LoginNeeded(login_advice(self._name)) from None
                context.token_expiry_time = EXPIRED
            finally:
                await flow.aclose()

    async def _refuse(self, address: str) -> None:  # noqa: ARG002
        await trio.lowlevel.checkpoint()
        raise LoginNeeded(login_advice(self._name))


class LoginAttempt:
    """One login of a user in a browser. `run` is its task.

    `ready` is set once the attempt `is_over`, or `address`, which the user must open, is known.
    After the end, `problem` says why the login failed, or is empty if it succeeded.
    """

    def __init__(
        self,
        name: str,
        settings: McpServer,
        store: LoginStore,
        web: WebAccess,
        secret: Key | None = None,
    ) -> None:
        """`secret` belongs to the OAuth client in `settings`, if that client has a secret."""
        self.address = ""
        self.problem = ""
        self.is_over = False
        self.ready = trio.Event()
        self._name = name
        self._settings = settings
        self._secret = secret
        self._storage = _Storage(name, settings.url or "", store, web, anew=True)
        self._provider: OAuthClientProvider | None = None
        self._state = ""
        self._scope = trio.CancelScope()
        self._pasted, self._pasted_later = trio.open_memory_channel[dict[str, str]](1)
        self._listener: trio.SocketListener | None = None

    async def run(self) -> None:
        """Log in; the outcome is in the attributes."""
        self.problem = "The login was cancelled."
        try:
            with self._scope, trio.fail_after(LOGIN_S_MAX):
                await self._log_in()
                self.problem = ""
        except trio.TooSlowError:
            limit = f"{LOGIN_S_MAX / 60:g} minutes"
            self.problem = f"Nobody logged in within {limit}. Run: tiller mcp login {self._name}"
        except OAuthRegistrationError as error:
            reason = str(error)[:REASON_CHARS_MAX].rstrip(".")
            self.problem = f"{reason}. {REGISTER.format(name=self._name)}"
        except (LoginFailed, HttpTransportProblem, OAuthFlowError, KeyUnavailable) as error:
            self.problem = str(error)[:REASON_CHARS_MAX]
        except ValidationError:
            self.problem = f"The MCP server {self._name} sent invalid OAuth metadata."
        except (httpx2.HTTPError, OSError) as error:
            self.problem = f"The login failed: {error or type(error).__name__}."
        finally:
            self.is_over = True
            self.ready.set()

    def cancel(self) -> None:
        """Give up the login."""
        self._scope.cancel()

    def paste(self, text: str) -> bool:
        """Accept the pasted address of the redirect, or its code; return whether it is ours."""
        parameters = read_pasted(text, self._state) if self._state else None
        if parameters is None:
            return False
        with suppress(trio.WouldBlock):  # an earlier pasted text is already on its way
            self._pasted.send_nowait(parameters)
        return True

    async def _log_in(self) -> None:
        url, client = self._settings.url or "", self._settings.oauth
        port = client.redirect_port if client else None
        self._listener, redirect = await open_listener(port or 0)
        async with self._listener:
            storage = self._storage
            if client:
                storage.client = await self._registered(client, redirect)
            self._provider = storage.provider = OAuthClientProvider(
                url, _client_metadata(redirect), storage, self._show, self._receive
            )
            auth = CheckedAuth(storage.provider, storage.addresses)
            transport = HttpTransport(self._settings, auth=auth)
            async with transport.client as client:
                response = await client.post(url, json=PROBE, headers=PROBE_HEADERS)
                await transport.end_session()
        if not self.address and response.is_success:
            raise LoginFailed(f"The MCP server {self._name} needs no login.")
        if response.is_error:
            message = f"The MCP server {self._name} answered with status {response.status_code}."
            raise LoginFailed(message)
        log.info("mcp_logged_in", server=self._name)

    async def _registered(self, client: OAuthClient, redirect: str) -> OAuthClientInformationFull:
        """Return the user's own client, so that the package registers none."""
        return OAuthClientInformationFull(
            client_id=client.client_id,
            client_secret=await self._secret.read() if self._secret else None,
            redirect_uris=[AnyUrl(redirect)],
            token_endpoint_auth_method=None,
        )

    async def _show(self, address: str) -> None:
        """Record the address that the user must open."""
        await trio.lowlevel.checkpoint()
        self._storage.addresses.checked(address)
        parts = urlsplit(address)
        query = dict(parse_qsl(parts.query))
        if client := self._settings.oauth:
            self._choose_secret_method(client.client_secret_method)
            if client.scopes:
                query["scope"] = " ".join(client.scopes)
        self._state = query["state"]
        self.address = parts._replace(query=urlencode(query)).geturl()
        self.ready.set()

    def _choose_secret_method(self, method: str | None) -> None:
        """Set how the client's secret is sent: as configured, or else as the server supports."""
        assert self._provider
        context = self._provider.context
        metadata, client = context.oauth_metadata, context.client_info
        assert client
        if client.client_secret:
            # Without a list of methods, the default is `basic` (RFC 8414).
            known = (metadata and metadata.token_endpoint_auth_methods_supported) or [BASIC]
            method = method or ("basic" if BASIC in known else "post")
            client.token_endpoint_auth_method = f"client_secret_{method}"

    async def _receive(self) -> AuthorizationCodeResult:
        """Wait for the redirect, or for the text that the user pastes instead."""
        found: dict[str, str] = {}
        listener = self._listener
        assert listener
        async with trio.open_nursery() as nursery:

            async def from_browser() -> None:
                found.update(await receive_redirect(listener, self._state))
                nursery.cancel_scope.cancel()

            nursery.start_soon(from_browser)
            found.update(await self._pasted_later.receive())
            nursery.cancel_scope.cancel()
        if problem := found.get("error_description") or found.get("error"):
            server = f"The MCP server {self._name}"
            raise LoginFailed(f"{server} refused the login: {problem.rstrip('.')}.")
        return AuthorizationCodeResult(
            code=found.get("code", ""), state=found.get("state"), iss=found.get("iss")
        )


async def revoke(name: str, login: StoredLogin, web: WebAccess) -> None:
    """Revoke the tokens of a login if the server has an endpoint for that (RFC 7009).

    The refresh token comes first: most servers then also revoke its access tokens. Logs failures.
    """
    endpoint = (login.authorization_server or {}).get("revocation_endpoint")
    if not endpoint:
        return
    addresses = LoginAddresses(name, login.url, web, is_private=login.is_private)
    try:
        for kind in ("refresh_token", "access_token"):
            if token := login.tokens.get(kind):
                response = await addresses.send(_revocation(endpoint, login, kind, token))
                response.raise_for_status()
    except (httpx2.HTTPError, HttpTransportProblem) as error:
        # The error's message may quote the request, so only its type is logged.
        log.warning("mcp_token_not_revoked", server=name, error=type(error).__name__)


def _revocation(endpoint: str, login: StoredLogin, kind: str, token: str) -> httpx2.Request:
    """Return the request for a revocation, with the credentials of the login's client."""
    form, headers = {"token": token, "token_type_hint": kind}, dict[str, str]()
    client_id, secret = login.client["client_id"], login.client.get("client_secret")
    if login.client.get("token_endpoint_auth_method") == BASIC and secret:
        pair = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
        headers["authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    else:
        form |= {"client_id": client_id, **({"client_secret": secret} if secret else {})}
    return httpx2.Request("POST", endpoint, data=form, headers=headers)


def login_advice(name: str) -> str:
    """Return what a user must do if a server requires a login, in whole sentences."""
    return f"It requires a login. Run: tiller mcp login {name}"


def _client_metadata(redirect: str) -> OAuthClientMetadata:
    return OAuthClientMetadata(redirect_uris=[AnyUrl(redirect)], client_name="tiller")


def _plain(model: BaseModel) -> dict[str, object]:
    return model.model_dump(mode="json", exclude_none=True)
