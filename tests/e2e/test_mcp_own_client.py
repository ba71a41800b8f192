"""Logins with a client that the user registered by hand, at a server that registers no clients."""

import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import trio

from e2e.test_mcp_login import log_in, one_call, server, stored, tool
from support.daemon import CONFIG, Daemon
from support.frontend import Frontend
from support.oauth_peer import OwnClient, own_client
from tiller_protocol.answers import McpLoginResult
from tiller_protocol.ops import McpLogin

__all__ = ["own_client"]

pytestmark = pytest.mark.peer

SECRET = {"MCP_SECRET": "secret-of-own"}

BY_VARIABLE = 'client_secret_env = "MCP_SECRET"\n'

METHODS = pytest.mark.parametrize("method", ["client_secret_post", "client_secret_basic", "none"])


def config(own: OwnClient, secret: str = BY_VARIABLE, scopes: str = '["read"]') -> str:
    return (
        f'{CONFIG}[mcp.guarded]\nurl = "{own.url}"\n[mcp.guarded.oauth]\nclient_id = "own"\n'
        f"{secret}scopes = {scopes}\nredirect_port = {own.redirect_port}\n"
    )


@METHODS
@pytest.mark.nightly
async def test_a_client_of_ones_own_logs_in_and_its_token_is_refreshed(
    new_daemon: Callable[..., Daemon],
    own_client: OwnClient,
    nursery: trio.Nursery,
    workspace: Path,
    method: str,
) -> None:
    secrets = {
        "none": "",
        "client_secret_basic": BY_VARIABLE,
        # The server says that it accepts both methods.
        "client_secret_post": f'{BY_VARIABLE}client_secret_method = "post"\n',
    }
    daemon = new_daemon(config(own_client, secrets[method]))
    daemon.start(**SECRET)
    frontend = await Frontend.connect(daemon, nursery)
    assert (await server(frontend)).state == "needs_login"
    await log_in(frontend)
    assert (await server(frontend)).state == "up"
    assert (await one_call(frontend, workspace, tool("whoami"))).output.startswith("client own ")
    old = json.loads(stored(daemon).read_bytes())["tokens"]
    assert old["scope"] == "read"
    await one_call(frontend, workspace, tool("revoke"))
    assert (await one_call(frontend, workspace, tool("whoami"))).state == "completed"
    assert json.loads(stored(daemon).read_bytes())["tokens"]["access_token"] != old["access_token"]
    state = daemon.places.state
    for file in (path for path in state.rglob("*") if path.is_file() and path != stored(daemon)):
        assert own_client.secret.encode() not in file.read_bytes(), file
    await frontend.close()


@pytest.mark.parametrize("method", ["client_secret_post"])
async def test_without_a_client_such_a_server_is_named_with_what_to_do(
    new_daemon: Callable[..., Daemon], own_client: OwnClient, nursery: trio.Nursery, method: str
) -> None:
    daemon = new_daemon(f'{CONFIG}[mcp.guarded]\nurl = "{own_client.url}"\n')
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    refused = await frontend.refused(McpLogin("guarded"))
    assert refused.code == "unavailable"
    assert "set its `client_id` in `[mcp.guarded.oauth]`" in refused.message
    await frontend.close()


@pytest.mark.parametrize("method", ["client_secret_post"])
@pytest.mark.nightly
async def test_a_login_asks_for_the_scopes_and_with_the_port_that_are_registered(
    new_daemon: Callable[..., Daemon], own_client: OwnClient, nursery: trio.Nursery, method: str
) -> None:
    daemon = new_daemon(config(own_client, scopes='["write", "read"]'))
    daemon.start(**SECRET)
    frontend = await Frontend.connect(daemon, nursery)
    begun = await frontend.must(McpLogin("guarded"))
    assert isinstance(begun, McpLoginResult)
    asked = parse_qs(urlsplit(begun.url).query)
    assert asked["scope"] == ["write read"]
    assert asked["client_id"] == ["own"]
    assert asked["redirect_uri"] == [f"http://127.0.0.1:{own_client.redirect_port}/callback"]
    assert own_client.secret not in begun.url
    await frontend.close()


NOT_THERE = {
    'client_secret_env = "NOT_SET"\n': "expected in the variable NOT_SET, which is not set",
    'client_secret_command = ["false"]\n': "`false` that prints the key failed with status 1",
    'client_secret_file = "missing"\n': "missing",
}


@pytest.mark.parametrize("method", ["client_secret_post"])
async def test_a_secret_that_is_not_there_says_where_it_was_looked_for(
    new_daemon: Callable[..., Daemon], own_client: OwnClient, nursery: trio.Nursery, method: str
) -> None:
    servers = [
        config(own_client, secret).removeprefix(CONFIG).replace("mcp.guarded", f"mcp.s{number}")
        for number, secret in enumerate(NOT_THERE)
    ]
    daemon = new_daemon(CONFIG + "".join(servers))
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    for number, says in enumerate(NOT_THERE.values()):
        refused = await frontend.refused(McpLogin(f"s{number}"))
        assert says in refused.message
    await frontend.close()
