"""What the parts of this room tell each other: a tool as listed, a connection, its owner."""

from pathlib import Path
from typing import Any, Final, Protocol

import trio
from msgspec import Struct

from tiller_daemon.config import McpServer
from tiller_daemon.mcp.environment import ServerEnvironment
from tiller_daemon.tools.base import ToolEnvironment, ToolFailure, ToolResult


class ServerUnavailable(Exception):
    """A server can't be used; the message is a clause that says why."""


class CallNotSent(ToolFailure):
    """A call that surely did nothing: it can be made again on another connection."""


class ListedTool(Struct, frozen=True):
    """A tool as its server lists it; one that is `read_only` says so itself."""

    name: str
    description: str
    schema: dict[str, Any]
    read_only: bool


class McpConnection(Protocol):
    """A line to a server, to which many calls may be made at the same time."""

    @property
    def is_over(self) -> bool:
        """Whether the server has gone, though it may not be known yet why."""
        ...

    async def call(
        self, tool: str, arguments: dict[str, Any], environment: ToolEnvironment
    ) -> ToolResult:
        """Make a call; raises `ToolFailure`, and `CallNotSent` when another connection may do.

        When cancelled the server is told, in its own time.
        """
        ...


class ServerOwner(Protocol):
    """Whose connection it is: `server.ManagedServer`."""

    name: str
    settings: McpServer
    environment: ServerEnvironment

    def connected(self, connection: McpConnection, tools: tuple[ListedTool, ...]) -> None:
        """Say that calls can be made, and which."""
        ...

    def tools_changed(self, tools: tuple[ListedTool, ...]) -> None:
        """Say that the server lists other tools now."""
        ...


class McpTransport(Protocol):
    """How a server is reached: through pipes, by HTTP.

    `ended` is set when nothing comes from there any more, or nothing that comes is wanted.
    """

    ended: Final[trio.Event]

    @property
    def session_expired(self) -> bool:
        """Whether the server does not know us any more: it was started anew."""
        ...

    def end_reason(self) -> str:
        """Why, as a clause."""
        ...


def directory_of(settings: McpServer, environment: ServerEnvironment) -> Path:
    """Where a server is started."""
    return Path(settings.cwd) if settings.cwd else environment.home
