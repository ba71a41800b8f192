"""An MCP server behind OAuth that nobody here wrote: `fastmcp` from PyPI, with its own provider.

Its authorization page agrees at once, so that any HTTP client can be the browser.
"""

import os
import sys
from collections.abc import Iterator

import pytest

from support.peers import _installed, _pip_install_whole, _running

FASTMCP = "fastmcp==4.1.2"

CODE = """
import os, socket, sys, threading
import uvicorn
from fastmcp import Context, FastMCP
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider
from fastmcp.server.dependencies import get_access_token
from mcp.server.auth.settings import ClientRegistrationOptions

listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
base = f"http://127.0.0.1:{listener.getsockname()[1]}"
options = ClientRegistrationOptions(enabled=True)
auth = InMemoryOAuthProvider(base_url=base, client_registration_options=options)
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
    """The address of an MCP server that wants a login. It has tools `whoami` and `revoke`."""
    place = _installed(FASTMCP, _pip_install_whole)
    variables = {**os.environ, "PYTHONPATH": str(place), "FASTMCP_CHECK_FOR_UPDATES": "off"}
    with _running([sys.executable, "-c", CODE], place, variables) as (url, _):
        yield url
