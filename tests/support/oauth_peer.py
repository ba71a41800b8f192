"""A third-party MCP server behind OAuth: `fastmcp` from PyPI, with its own OAuth provider.

Its authorization page agrees at once, so that any HTTP client can act as the browser. One variant
lets clients register themselves; the other knows a single client.
"""

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from support.peers import _installed, _pip_install_whole, _running

FASTMCP = "fastmcp==4.1.2"

CODE = """
import json, os, socket, sys, threading
import uvicorn
from fastmcp import Context, FastMCP
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider
from fastmcp.server.dependencies import get_access_token
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull

listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
base = f"http://127.0.0.1:{listener.getsockname()[1]}"
known = json.loads(sys.argv[1])
options = ClientRegistrationOptions(enabled=not known)
auth = InMemoryOAuthProvider(base_url=base, client_registration_options=options)
if known:
    auth.clients[known["client_id"]] = OAuthClientInformationFull(**known)
server = FastMCP("guarded", auth=auth)

@server.tool(annotations={"readOnlyHint": True})
def whoami() -> str:
    return f"client {get_access_token().client_id} with {get_access_token().token}"

@server.tool(annotations={"readOnlyHint": True})
def revoke(refresh: bool = False) -> str:
    auth.access_tokens.clear()
    if refresh:
        auth.refresh_tokens.clear()
    return "revoked"

def end_with_input():
    sys.stdin.read()
    os._exit(0)

threading.Thread(target=end_with_input, daemon=True).start()
print(base + "/mcp", flush=True)
uvicorn.Server(uvicorn.Config(server.http_app(path="/mcp"), log_level="warning")).run(
    sockets=[listener]
)
"""


@pytest.fixture(scope="session")
def guarded_server() -> Iterator[str]:
    """Yield the address of an MCP server that wants a login; it offers `whoami` and `revoke`."""
    with _serving({}) as url:
        yield url


class OwnClient(NamedTuple):
    """A client that was registered by hand, and its server, which registers no other client."""

    url: str
    secret: str
    redirect_port: int


@pytest.fixture
def own_client(method: str) -> Iterator[OwnClient]:
    """Yield a server that knows only the client `own`, which sends its secret by `method`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    known = {
        "client_id": "own",
        "client_secret": "secret-of-own",
        "redirect_uris": [f"http://127.0.0.1:{port}/callback"],
        "scope": "read write",
        "token_endpoint_auth_method": method,
    }
    if method == "none":
        del known["client_secret"]
    with _serving(known) as url:
        yield OwnClient(url, "secret-of-own", port)


@contextmanager
def _serving(known: dict[str, Any]) -> Iterator[str]:
    place = _installed(FASTMCP, _pip_install_whole)
    variables = {**os.environ, "PYTHONPATH": str(place), "FASTMCP_CHECK_FOR_UPDATES": "off"}
    command = [sys.executable, "-c", CODE, json.dumps(known)]
    with _running(command, place, variables) as (url, _):
        yield url
