"""Logins in progress, which frontends request by the op `mcp_login`."""

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import trio

from tiller_daemon.config import KeyPlaces, McpServer
from tiller_daemon.errors import RejectionError
from tiller_daemon.mcp.environment import ServerEnvironment
from tiller_daemon.mcp.login_store import StoredLogin
from tiller_daemon.tools.base import WebAccess
from tiller_protocol.answers import McpLoginResult
from tiller_protocol.ops import McpLogin

if TYPE_CHECKING:
    from tiller_daemon.mcp.oauth import LoginAttempt

ADDRESS_S_MAX: Final = 25.0
"""How long a server may take to say where to log in. Frontends give up after 30 s."""

OAUTH_MODULE: Final = "tiller_daemon.mcp.oauth"


class Logins:
    """The logins to all servers, at most one at a time for each server.

    `changed` is called with the name of a server after a login or logout.
    """

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._attempts: dict[str, LoginAttempt] = {}

    async def handle(
        self,
        op: McpLogin,
        servers: Mapping[str, McpServer],
        environment: ServerEnvironment,
        nursery: trio.Nursery,
    ) -> McpLoginResult:
        """Apply the op and return the state of the login. Raises `RejectionError`."""
        settings, store = servers.get(op.server), environment.logins
        if settings is None:
            known = ", ".join(sorted(servers)) or "none"
            message = f"There is no MCP server {op.server}. Configured: {known}."
            raise RejectionError("not_found", message)
        match op.action:
            case "begin":
                _check(op.server, settings)
                return await self._begin(op.server, settings, environment, nursery)
            case "logout":
                self._cancel(op.server)
                login = store.read(op.server, settings.url or "")
                if not store.forget(op.server):
                    message = f"There is no login for the MCP server {op.server}."
                    raise RejectionError("not_found", message)
                self._changed(op.server)
                if login is not None:
                    nursery.start_soon(_revoke, op.server, login, environment.web)
                return McpLoginResult("logged_out")
            case "cancel":
                self._cancel(op.server)
                return McpLoginResult("logged_out")
            case "check":
                return self._state(op.server)
            case "finish":
                attempt = self._attempts.get(op.server)
                if attempt and not attempt.is_over and not attempt.paste(op.redirect):
                    message = (
                        "That is neither the address to which this login redirected the browser, "
                        "nor the code in that address. Copy the whole address from the browser."
                    )
                    raise RejectionError("bad_message", message)
                return self._state(op.server)

    async def _begin(
        self,
        name: str,
        settings: McpServer,
        environment: ServerEnvironment,
        nursery: trio.Nursery,
    ) -> McpLoginResult:
        self._cancel(name)
        # The import takes a second: in this thread it would block the whole daemon.
        oauth = await trio.to_thread.run_sync(importlib.import_module, OAUTH_MODULE)
        secret = environment.client_secret(settings.oauth) if settings.oauth else None
        store, web = environment.logins, environment.web
        attempt: LoginAttempt = oauth.LoginAttempt(name, settings, store, web, secret)
        self._attempts[name] = attempt
        nursery.start_soon(self._run, name, attempt)
        with trio.move_on_after(ADDRESS_S_MAX):
            await attempt.ready.wait()
        if not attempt.ready.is_set():
            attempt.cancel()
            message = f"The MCP server {name} sent no login address within {ADDRESS_S_MAX:g} s."
            raise RejectionError("unavailable", message)
        return self._state(name)

    async def _run(self, name: str, attempt: "LoginAttempt") -> None:
        await attempt.run()
        if not attempt.problem:
            self._changed(name)

    def _state(self, name: str) -> McpLoginResult:
        attempt = self._attempts.get(name)
        if attempt is None:
            message = f"No login for the MCP server {name} is in progress."
            raise RejectionError("not_found", message)
        if not attempt.is_over:
            return McpLoginResult("waiting", attempt.address)
        del self._attempts[name]
        if attempt.problem:
            raise RejectionError("unavailable", attempt.problem)
        return McpLoginResult("done")

    def _cancel(self, name: str) -> None:
        if attempt := self._attempts.pop(name, None):
            attempt.cancel()


async def _revoke(name: str, login: StoredLogin, web: WebAccess) -> None:
    oauth = await trio.to_thread.run_sync(importlib.import_module, OAUTH_MODULE)
    await oauth.revoke(name, login, web)


def _check(name: str, settings: McpServer) -> None:
    if settings.url is None:
        message = f"The MCP server {name} has no login: only servers with a `url` have one."
        raise RejectionError("invalid_settings", message)
    for field in KeyPlaces.__struct_fields__:
        if getattr(settings, field):
            message = f"The MCP server {name} has a key (`{field}`), so it needs no login."
            raise RejectionError("invalid_settings", message)
