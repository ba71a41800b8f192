"""Reads content from MCP servers for an input.

This is a prompt (`/mcp:SERVER:PROMPT`) or resources (`@SERVER:URI`). The content is read before the
session handles the input, as a server may be slow. Commands and sub-agents in a server's text are
not called.
"""

import re
from typing import Final

import trio
from msgspec import Struct

from tiller_daemon.errors import RejectionError
from tiller_daemon.session.inputs.validation import check_input, input_data
from tiller_daemon.session.services import ToolServers
from tiller_daemon.tools.base import ToolFailure, ToolResult
from tiller_daemon.tools.truncation import truncate
from tiller_protocol.items import Image
from tiller_protocol.ops import UserInput

READ_S_MAX: Final = 20.0
"""How long servers may take for one input. Frontends give up after 30 s."""

RESOURCES_MAX: Final = 20
"""Maximum number of resources in one input; each may be as long as a tool's result."""

_PROMPT: Final = re.compile(r"/mcp:([A-Za-z0-9_-]+):(\S+)(?:\s+(.*))?\Z", re.DOTALL)
_RESOURCE: Final = re.compile(r"(?<!\S)@([A-Za-z0-9_-]+):([A-Za-z][A-Za-z0-9+.-]*:\S+)")
_AFTER_RESOURCE: Final = ".,;!?)'\""
"""Characters that end a sentence and don't belong to an address before them."""


class ServerContent(Struct, frozen=True):
    """The content that servers contribute to an input."""

    prompt: str | None = None
    """Replaces the input's text."""
    attached: str = ""
    """Text that follows the input's text."""
    images: tuple[Image, ...] = ()


NO_CONTENT: Final = ServerContent()


async def read_server_content(servers: ToolServers, op: UserInput) -> ServerContent:
    """Read the content that `op` names; raises `RejectionError`, which returns the input."""
    if "/mcp:" not in op.text and "@" not in op.text:
        return NO_CONTENT
    # Checked again when the op is handled; here it keeps huge input away from the search.
    check_input(op)
    try:
        with trio.fail_after(READ_S_MAX):
            return await _read(servers, op)
    except ToolFailure as failure:
        raise RejectionError("unavailable", str(failure), input_data(op)) from None
    except trio.TooSlowError:
        message = f"The MCP servers named in the input did not answer within {READ_S_MAX:g} s."
        raise RejectionError("unavailable", message, input_data(op)) from None


async def _read(servers: ToolServers, op: UserInput) -> ServerContent:
    if call := _PROMPT.match(op.text):
        prompt = await servers.prompt(op.session_id, call[1], call[2], call[3] or "")
        return ServerContent(truncate(prompt.output), images=prompt.images)
    names = servers.names(op.session_id)
    found = [
        (match[1], match[2].rstrip(_AFTER_RESOURCE))
        for match in _RESOURCE.finditer(op.text)
        if match[1] in names
    ]
    named = list(dict.fromkeys(found))
    if len(named) > RESOURCES_MAX:
        message = (
            f"The input refers to {len(named)} resources; at most {RESOURCES_MAX} are allowed."
        )
        raise RejectionError("too_large", message, input_data(op))
    read = [
        (server, uri, await servers.resource(op.session_id, server, uri)) for server, uri in named
    ]
    return ServerContent(
        attached="\n\n".join(_attached(*one) for one in read),
        images=tuple(image for _, _, content in read for image in content.images),
    )


def _attached(server: str, uri: str, content: ToolResult) -> str:
    return f"[The user attached {uri} from the MCP server {server}]\n{truncate(content.output)}"
