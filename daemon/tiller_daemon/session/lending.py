"""Checks the MCP servers that frontends lend to sessions."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from tiller_daemon.config import McpServer
from tiller_daemon.config.constraints import ServerName
from tiller_daemon.config.source import find_problem
from tiller_daemon.errors import RejectionError
from tiller_protocol.lending import LentServer

LENT_CHARS_MAX: Final = 256 * 1024
"""Maximum number of characters in a loan's servers; Linux accepts hardly more for a program."""

_NOT_IN_HEADERS: Final = re.compile(r"[^\t -~]")


def checked_servers(lent: tuple[LentServer, ...]) -> Mapping[str, McpServer]:
    """Return the servers as if they were configured; raises `RejectionError`.

    The error names no secrets.
    """
    servers: dict[str, McpServer] = {}
    for one in lent:
        if problem := _problem(one):
            raise RejectionError("invalid_settings", f"The MCP server {one.name!r}: {problem}.")
        if one.name in servers:
            message = f"Two MCP servers are called {one.name!r}. Give each server its own name."
            raise RejectionError("invalid_settings", message)
        servers[one.name] = msgspec.convert(_table(one), McpServer)
    if (size := sum(map(_size, lent))) > LENT_CHARS_MAX:
        message = (
            f"The definitions of the MCP servers have {size:,} characters; at most "
            f"{LENT_CHARS_MAX:,} are allowed."
        )
        raise RejectionError("too_large", message, {"limit": LENT_CHARS_MAX, "size": size})
    return servers


def _problem(server: LentServer) -> str:
    if any(server.command[:1]) == bool(server.url):
        return "expected either `command` or `url`"
    if found := find_problem({server.name: _table(server)}, dict[ServerName, McpServer]):
        key, problem = found
        return f"`{key[1]}`: {problem}" if key[1:] else problem
    texts = (*server.headers, *server.headers.values())
    if any(_NOT_IN_HEADERS.search(text) for text in texts) or "" in server.headers:
        return "`headers`: names and values may contain only printable ASCII characters"
    return ""


def _table(server: LentServer) -> dict[str, object]:
    """Return the fields of the configured server that is like a lent one."""
    if server.url:
        return {"url": server.url, "headers": server.headers}
    return {"command": server.command, "env": server.env}


def _size(server: LentServer) -> int:
    pairs = (*server.env.items(), *server.headers.items())
    texts = (*server.command, server.url or "", *(text for pair in pairs for text in pair))
    return sum(map(len, texts))
