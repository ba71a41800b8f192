"""Which addresses a login follows: those that the MCP server names are checked as for `fetch`.

A proxy makes local servers look like public ones, which have names.
"""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
import trio

from mcp_servers.test_login_tokens import TOKENS
from support.each import each
from support.http_server import LocalServer, serving, status
from support.proxy import proxying
from tiller_daemon.config import McpServer
from tiller_daemon.mcp.http import HttpTransport, HttpTransportProblem
from tiller_daemon.mcp.login_addresses import LoginAddresses
from tiller_daemon.mcp.login_store import LoginStore, StoredLogin
from tiller_daemon.mcp.oauth import LoginAttempt, StoredLoginAuth, revoke
from tiller_daemon.tools.base import WebAccess

PLACES = (
    "resource_metadata", "authorization_server", "authorization", "registration", "token",
)  # fmt: skip
"""What a server names in a login, in order. Its user opens the `authorization` address."""

PRIVATE = (
    "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "10.0.0.1", "192.168.1.1",
    "169.254.169.254", "[fd00:ec2::254]", "100.100.100.200",
)  # fmt: skip

NAMES_OF_THIS_MACHINE = ("localhost", "127.1", "2130706433", "0x7f000001", "LOCALHOST.")

REFUSED = "is not on the public internet, but the server itself is"


class McpServerWithLogin:
    """An MCP server whose own `base` address is used in the login, except for the `places`."""

    def __init__(self, places: dict[str, str]) -> None:
        self.places = places
        self.base = ""
        self.redirect = ""
        self.server: LocalServer | None = None

    async def answer(self, stream: trio.abc.Stream) -> None:
        assert self.server
        request = self.server.received[-1]
        await self._answer_to(urlsplit(request.path).path, request.headers, request.body)(stream)

    def _answer_to(self, path: str, headers: dict[str, str], body: Any):
        match path:
            case "/.well-known/oauth-protected-resource" | "/resource_metadata":
                issuer = self._place("authorization_server", "")
                return status(
                    200, {"resource": f"{self.base}/mcp", "authorization_servers": [issuer]}
                )
            case "/.well-known/oauth-authorization-server" if self.redirect:
                return status(302, Location=self.redirect)
            case "/.well-known/oauth-authorization-server":
                names = ("authorization", "token", "registration")
                ends = {f"{name}_endpoint": self._place(name) for name in names}
                return status(
                    200, {"issuer": self.base, **ends, "response_types_supported": ["code"]}
                )
            case "/registration":
                return status(201, {**body, "client_id": "client"})
            case "/token":
                return status(200, TOKENS)
            case "/mcp" if "authorization" in headers:
                return status(200, {})
            case "/mcp":
                where = self._place("resource_metadata")
                return status(401, WWW_Authenticate=f'Bearer resource_metadata="{where}"')
            case _:
                return status(404)

    def _place(self, name: str, path: str | None = None) -> str:
        return self.places.get(name, self.base + (f"/{name}" if path is None else path))


async def log_in_at_public(
    place: str, address: str, store: Path, variables: pytest.MonkeyPatch, **web: Any
) -> LoginAttempt:
    """Log in at a server with a public name that names `address` as a `place`."""
    server = McpServerWithLogin({place: address})
    server.redirect = address if place == "redirect" else ""
    async with serving(server.answer) as server.server, proxying() as proxy:
        server.base = f"http://mcp.example.org:{server.server.port}"
        variables.setenv("http_proxy", proxy.address())
        access = WebAccess(proxies={"http_proxy": proxy.address()}, **web)
        settings = McpServer(url=f"{server.base}/mcp")
        attempt = LoginAttempt("guarded", settings, LoginStore(store), access)
        await run(attempt)
    return attempt


async def run(attempt: LoginAttempt) -> None:
    """Run a login, to which its user agrees if it gets so far."""

    async def agree() -> None:
        await attempt.ready.wait()
        if attempt.address and not attempt.is_over:
            asked = dict(parse_qsl(urlsplit(attempt.address).query))
            assert attempt.paste(f"{asked['redirect_uri']}?code=code&state={asked['state']}")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(agree)
        await attempt.run()


@pytest.fixture
async def victim() -> AsyncGenerator[LocalServer]:
    """Yield a server on this machine."""
    async with serving(status(200, {})) as server:
        yield server


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("host", PRIVATE)
async def test_a_public_server_can_not_lead_a_login_into_a_private_network(
    victim: LocalServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str, host: str
) -> None:
    attempt = await log_in_at_public(place, f"http://{host}:{victim.port}/x", tmp_path, monkeypatch)
    assert REFUSED in attempt.problem
    assert "guarded" in attempt.problem
    assert "`fetch.private_addresses = true`" in attempt.problem
    assert victim.received == []


async def test_a_redirect_leads_no_login_into_a_private_network(
    victim: LocalServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    address = f"http://127.0.0.1:{victim.port}/x"
    attempt = await log_in_at_public("redirect", address, tmp_path, monkeypatch)
    assert attempt.problem
    assert victim.received == []


@pytest.mark.parametrize(
    "address",
    [
        "file:///etc/passwd",
        "ftp://example.org/",
        "http://u:p@example.org/",
        "http://example.org:0/",
    ],
)
@pytest.mark.parametrize("place", ["authorization", "registration", "token"])
async def test_a_login_follows_only_what_may_be_fetched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str, address: str
) -> None:
    attempt = await log_in_at_public(place, address, tmp_path, monkeypatch)
    assert attempt.problem


async def test_the_user_can_allow_private_addresses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = McpServerWithLogin({})
    async with serving(other.answer) as other.server:
        other.base = f"http://127.0.0.1:{other.server.port}"
        token = f"{other.base}/token"
        attempt = await log_in_at_public(
            "token", token, tmp_path, monkeypatch, private_addresses=True
        )
        assert attempt.problem == ""
        assert [one.path for one in other.server.received] == ["/token"]


async def test_a_local_server_may_name_another_local_server(tmp_path: Path) -> None:
    own, other = McpServerWithLogin({}), McpServerWithLogin({})
    async with serving(own.answer) as own.server, serving(other.answer) as other.server:
        own.base = f"http://127.0.0.1:{own.server.port}"
        other.base = f"http://127.0.0.1:{other.server.port}"
        own.places["authorization_server"] = other.base
        store = LoginStore(tmp_path)
        settings = McpServer(url=f"{own.base}/mcp")
        attempt = LoginAttempt("guarded", settings, store, WebAccess())
        await run(attempt)
        assert attempt.problem == ""
        asked = [one.path for one in other.server.received]
        assert asked[-2:] == ["/registration", "/token"]
        login = store.read("guarded", f"{own.base}/mcp")
        assert login is not None
        assert login.is_private


@pytest.mark.parametrize("host", PRIVATE + NAMES_OF_THIS_MACHINE)
async def test_no_request_reaches_this_machine_however_it_is_called(
    victim: LocalServer, host: str
) -> None:
    addresses = LoginAddresses("m", "http://mcp.example.org/", WebAccess(), is_private=False)
    address = f"http://{host}:{victim.port}/token"
    with pytest.raises(HttpTransportProblem, match=REFUSED):
        await addresses.send(httpx2.Request("POST", address, data={"token": "secret"}))
    assert victim.received == []


@each(
    ("server", "named", "refused"),
    [
        ("https://a.example/", "https://b.example/", ""),
        ("https://a.example/", "http://b.example/", "does not begin with https"),
        ("https://a.example/", "http://a.example/", "does not begin with https"),
        ("http://a.example/", "http://b.example/", ""),
        ("http://a.example/", "https://b.example/", ""),
        ("https://a.example/", "https://8.8.8.8/", ""),
        ("https://a.example/", "https://10.0.0.1/", "not on the public internet"),
        ("https://a.example/", "javascript:alert(1)", "is not a URL"),
        ("https://a.example/", "https://[/", "is not a URL"),
        ("https://a.example/", "https:///x", "is not a URL"),
        ("http://10.0.0.1/", "http://10.0.0.1/token", ""),
        ("http://10.0.0.1/", "http://10.0.0.2/token", "not on the public internet"),
    ],
)
def test_addresses_are_checked_before_any_use(server: str, named: str, refused: str) -> None:
    addresses = LoginAddresses("m", server, WebAccess())
    if refused:
        with pytest.raises(HttpTransportProblem, match=refused):
            addresses.checked(named)
    else:
        assert str(addresses.checked(named)) == named


async def test_only_the_first_answer_of_a_server_shows_where_it_is() -> None:
    """A server whose name later leads to this machine must not count as local."""
    async with serving(status(200, {})) as server:
        url = f"http://127.0.0.1:{server.port}/"
        public = LoginAddresses("m", url, WebAccess(), is_private=False)
        unknown = LoginAddresses("m", url, WebAccess())
        transport = HttpTransport(McpServer(url=url))
        async with transport.client as client, client.stream("GET", url) as response:
            for addresses in (public, unknown):
                addresses.note_peer(response)
        assert (public.is_private, unknown.is_private) == (False, True)


def stored_at(url: str, victim: LocalServer, *, is_private: bool | None) -> StoredLogin:
    place, issuer = f"http://127.0.0.1:{victim.port}", "http://mcp.example.org"
    names = ("authorization", "token", "revocation")
    metadata = {f"{name}_endpoint": f"{place}/{name}" for name in names}
    client = {"client_id": "c", "redirect_uris": ["http://127.0.0.1/callback"]}
    server = {"issuer": issuer, "response_types_supported": ["code"], **metadata}
    return StoredLogin(url, TOKENS, client, 1.0, server, None, is_private)


@pytest.mark.parametrize("is_private", [None, False, True])
async def test_a_refresh_and_a_logout_follow_the_same_rules(
    victim: LocalServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_private: bool | None
) -> None:
    url = "http://mcp.example.org/mcp"
    store = LoginStore(tmp_path)
    stored = stored_at(url, victim, is_private=is_private)
    store.write("guarded", stored)
    async with proxying() as proxy:
        monkeypatch.setenv("http_proxy", proxy.address())
        web = WebAccess(proxies={"http_proxy": proxy.address()})
        auth = StoredLoginAuth("guarded", url, store, web)
        async with HttpTransport(McpServer(url=url), auth=auth).client as client:
            with pytest.raises((HttpTransportProblem, httpx2.HTTPError)):
                (await client.post(url)).raise_for_status()
        await revoke("guarded", stored, web)
    paths = [one.path for one in victim.received]
    assert paths == (["/token", "/revocation", "/revocation"] if is_private else [])
