"""Types shared by the modules of this package. Does not import the MCP package."""

from typing import Any, Final, Protocol

import trio
from msgspec import Struct

from tiller_daemon.tools.base import ToolFailure


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
