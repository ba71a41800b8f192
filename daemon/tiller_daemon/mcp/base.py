"""Types shared by the modules of this package. Does not import the MCP package."""

from collections.abc import Mapping
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
    """A tool that a server lists."""

    name: str
    """The server's own name for the tool."""
    description: str
    """The description for models."""
    schema: dict[str, Any]
    """The schema of its arguments, changed so that every provider accepts it."""
    read_only: bool
    """Whether the server claims that the tool changes nothing."""
    property_names: Mapping[str, str] = {}
    """The server's own names of the properties that have other names in `schema`."""


class ToolList(Struct, frozen=True):
    """The tools that a server lists."""

    offered: tuple[ListedTool, ...] = ()
    left_out: tuple[str, ...] = ()
    """Why tools can't be offered, each as a clause with its name."""


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
