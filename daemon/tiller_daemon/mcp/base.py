"""Types shared by the modules of this package. Does not import the MCP package."""

from typing import Any, Final, Protocol

import trio
from msgspec import Struct

from tiller_daemon.tools.base import ToolEnvironment, ToolFailure, ToolResult


class ServerUnavailable(Exception):
    """A server can't be used. The message says why, in whole sentences."""

    def __init__(self, message: str, *, needs_login: bool = False) -> None:
        super().__init__(message)
        self.needs_login = needs_login


class CallNotSent(ToolFailure):
    """A call had no effect, so the call can be repeated on another connection."""


class ListedTool(Struct, frozen=True):
    """A tool as its server lists it; `read_only` is the server's own claim."""

    name: str
    description: str
    schema: dict[str, Any]
    read_only: bool


class PromptParameter(Struct, frozen=True):
    """A parameter of a prompt."""

    name: str
    required: bool


class ListedPrompt(Struct, frozen=True):
    """A prompt as its server lists it."""

    name: str
    description: str
    parameters: tuple[PromptParameter, ...]


class McpConnection(Protocol):
    """A connection to a server, for any number of calls at the same time."""

    @property
    def is_over(self) -> bool:
        """Whether the server has gone, even if the reason is not known yet."""
        ...

    async def call(
        self, tool: str, arguments: dict[str, Any], environment: ToolEnvironment
    ) -> ToolResult:
        """Make a call. Raises `ToolFailure`, or `CallNotSent` if a new connection may succeed.

        When cancelled, it returns at once; the server is notified in the background.
        """
        ...

    async def prompt(self, name: str, arguments: dict[str, str]) -> ToolResult:
        """Return the text of a prompt. Raises the same errors as `call`."""
        ...

    async def resource(self, uri: str) -> ToolResult:
        """Return the content of a resource. Raises the same errors as `call`."""
        ...


class McpTransport(Protocol):
    """How a server is reached: by a program's standard input and output, or by HTTP.

    `ended` is set when no more messages arrive or the connection must be given up.
    """

    ended: Final[trio.Event]

    @property
    def session_expired(self) -> bool:
        """Whether the server no longer knows our session, for example after a restart."""
        ...

    def end_reason(self) -> str:
        """Return why the transport ended, in whole sentences about the server: "It …"."""
        ...
