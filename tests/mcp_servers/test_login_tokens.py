"""Tokens of logins at MCP servers: which are refused, and that a logout revokes them."""

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import trio

from support.http_server import LocalServer, serving, status
from tiller_daemon.config import McpServer
from tiller_daemon.mcp.environment import ServerEnvironment
from tiller_daemon.mcp.login_store import LoginStore
from tiller_daemon.mcp.logins import Logins
from tiller_daemon.mcp.oauth import LoginAttempt
from tiller_daemon.tools.base import WebAccess
from tiller_protocol.ops import McpLogin

TOKENS = {"access_token": "access", "refresh_token": "refresh", "token_type": "Bearer"}


class AuthorizationServer:
    """An MCP server that is its own authorization server; gives the same tokens to everybody."""

    def __init__(self, tokens: dict[str, str]) -> None:
        self.tokens = tokens
        self.server: LocalServer | None = None

    async def answer(self, stream: trio.abc.Stream) -> None:
        assert self.server
        base = f"http://127.0.0.1:{self.server.port}"
        request = self.server.received[-1]
        match urlsplit(request.path).path:
            case "/.well-known/oauth-authorization-server":
                names = ("authorization", "token", "registration", "revocation")
                places = {f"{name}_endpoint": f"{base}/{name}" for name in names}
                found = status(
                    200, {"issuer": base, **places, "response_types_supported": ["code"]}
                )
            case "/registration":
                found = status(201, {**request.body, "client_id": "client"})
            case "/token":
                found = status(200, self.tokens)
            case "/revocation":
                found = status(200, {})
            case "/mcp" if "authorization" in request.headers:
                found = status(200, {})
            case "/mcp":
                found = status(401, WWW_Authenticate="Bearer")
            case _:
                found = status(404)
        await found(stream)


async def log_in(attempt: LoginAttempt) -> None:
    """Run a login with a user who agrees at once, and pastes where the browser was sent."""

    async def agree() -> None:
        await attempt.ready.wait()
        asked = {key: value[0] for key, value in parse_qs(urlsplit(attempt.address).query).items()}
        assert attempt.paste(f"{asked['redirect_uri']}?code=code&state={asked['state']}")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(agree)
        await attempt.run()


async def test_a_token_with_a_line_break_is_refused_at_once_and_not_shown(
    tmp_path: Path,
) -> None:
    for name in ("access_token", "refresh_token"):
        other = AuthorizationServer(TOKENS | {name: "to\r\nken: secret"})
        async with serving(other.answer) as other.server:
            url = f"http://127.0.0.1:{other.server.port}/mcp"
            store = LoginStore(tmp_path)
            attempt = LoginAttempt("guarded", McpServer(url=url), store, WebAccess())
            await log_in(attempt)
            assert attempt.problem == (
                "The token that the server sent has characters that can't be sent in a header, "
                "such as a line break."
            )
            assert store.read("guarded", url) is None
            assert not any("authorization" in one.headers for one in other.server.received)


async def test_a_logout_revokes_both_tokens_where_the_server_says(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    other = AuthorizationServer(TOKENS)
    async with serving(other.answer) as other.server:
        settings = McpServer(url=f"http://127.0.0.1:{other.server.port}/mcp")
        store = LoginStore(tmp_path)
        attempt = LoginAttempt("guarded", settings, store, WebAccess())
        await log_in(attempt)
        assert attempt.problem == ""
        logins = Logins(lambda name: None)
        environment = ServerEnvironment({}, {}, (), lambda: (), Path("/"), store)
        async with trio.open_nursery() as daemon:
            op = McpLogin("guarded", "logout")
            result = await logins.handle(op, {"guarded": settings}, environment, daemon)
        assert result.state == "logged_out"
        revoked = [one for one in other.server.received if one.path == "/revocation"]
        forms = [parse_qs(one.data.decode()) for one in revoked]
    assert [(form["token"], form["token_type_hint"]) for form in forms] == [
        (["refresh"], ["refresh_token"]),
        (["access"], ["access_token"]),
    ]
    assert all(form["client_id"] == ["client"] for form in forms)
