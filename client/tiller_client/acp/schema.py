"""The messages from clients: the parameters of ACP v1 that tiller uses.

Names are as in ACP. As ACP requires, unknown fields are ignored.
"""

from typing import Any, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

PROTOCOL_VERSION = 1

TERMINAL_LOGIN = (("auth", "terminal"), ("_meta", "terminal-auth"))
"""Where a client says that it supports logins in a terminal: in ACP, and before ACP had them."""

_Kind = TypeVar("_Kind")


def read(raw: Raw, kind: type[_Kind]) -> _Kind:
    """Decode a message, in which null means the same as an absent field.

    Raises `msgspec.DecodeError`, `UnicodeDecodeError` or `RecursionError`.
    """
    value = msgspec.json.decode(raw)
    return msgspec.convert({} if value is None else _without_nulls(value), kind)


class Wire(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Base of all messages: `tool_call_id` here is `toolCallId` on the wire."""


class ClientCapabilities(Struct, frozen=True):
    """What the client can do; by default nothing."""

    reads_files: bool = False
    """Whether the client reads files for us, with the editor's unsaved changes."""
    forms: bool = False
    """Whether the client can ask the user for text."""
    notices: bool = False
    """Whether the client shows notices."""
    compaction: bool = False
    """Whether the client shows compactions."""
    terminal_output: bool = False
    """Whether the client shows the output of an agent's commands as a terminal. This is not in ACP,
    but a convention of Zed and other clients."""
    shows_queue: bool = False
    """Whether the client knows our extensions, and shows the queue."""
    terminal_login: bool = False
    """Whether the client can run this program in a terminal, for a login."""


class InitializeParams(Wire, frozen=True):
    """Parameters of `initialize`. A malformed part of the last two counts as absent, as in ACP."""

    protocol_version: int
    client_capabilities: Any = None
    client_info: Any = None

    @property
    def client(self) -> ClientCapabilities:
        """The client's capabilities."""
        told = self.client_capabilities
        return ClientCapabilities(
            reads_files=_member(told, "fs", "readTextFile") is True,
            forms=isinstance(_member(told, "elicitation", "form"), dict),
            notices=isinstance(_member(told, "session", "notices"), dict),
            compaction=isinstance(_member(told, "session", "compaction"), dict),
            terminal_output=_member(told, "_meta", "terminal_output") is True,
            shows_queue=_member(told, "_meta", "tiller") is True,
            terminal_login=True in (_member(told, *path) for path in TERMINAL_LOGIN),
        )

    @property
    def client_name(self) -> str:
        """The client's name; empty if it told none."""
        name = _member(self.client_info, "name")
        return name if isinstance(name, str) else ""


class AuthenticateParams(Wire, frozen=True):
    """Parameters of `authenticate`."""

    method_id: str


class NamedValue(Wire, frozen=True):
    """A variable or a header of an MCP server."""

    name: str
    value: str


class McpServer(Wire, frozen=True):
    """An MCP server that the editor lends to a session."""

    name: str
    """The name of the server, which prefixes the names of its tools."""
    type: str = "stdio"
    """The server's transport; absent for a program that speaks over stdio."""
    command: str = ""
    """The program to run, for `stdio`."""
    args: tuple[str, ...] = ()
    """The arguments of the program."""
    env: tuple[NamedValue, ...] = ()
    """The variables of the program."""
    url: str = ""
    """The address of a server that is not a program."""
    headers: tuple[NamedValue, ...] = ()
    """Headers to send with each HTTP request."""


class NewParams(Wire, frozen=True):
    """Parameters of `session/new`."""

    cwd: str
    additional_directories: tuple[str, ...] | None = None
    mcp_servers: tuple[McpServer, ...] | None = None


class OpenParams(Wire, frozen=True):
    """Parameters of `session/load`, `session/resume` and `session/fork`."""

    session_id: str
    cwd: str = ""
    additional_directories: tuple[str, ...] | None = None
    mcp_servers: tuple[McpServer, ...] | None = None


class SessionParams(Wire, frozen=True):
    """Parameters of a method that needs only the session, such as `session/cancel`."""

    session_id: str


class ListParams(Wire, frozen=True):
    """Parameters of `session/list`."""

    cwd: str | None = None
    cursor: str | None = None


class SetModeParams(Wire, frozen=True):
    """Parameters of `session/set_mode`."""

    session_id: str
    mode_id: str


class SetOptionParams(Wire, frozen=True):
    """Parameters of `session/set_config_option`."""

    session_id: str
    config_id: str
    value: str | bool


class CancelRequestParams(Wire, frozen=True):
    """Parameters of `$/cancel_request`, which both sides may send."""

    request_id: int | str | None = None


class TextBlock(Wire, frozen=True, tag_field="type", tag="text"):
    """Text."""

    text: str


class ImageBlock(Wire, frozen=True, tag_field="type", tag="image"):
    """An image, in base64."""

    data: str
    mime_type: str
    uri: str | None = None


class AudioBlock(Wire, frozen=True, tag_field="type", tag="audio"):
    """Audio, which is rejected, as no supported model takes it."""


class ResourceLink(Wire, frozen=True, tag_field="type", tag="resource_link"):
    """A file or another resource, given by its address."""

    uri: str
    name: str = ""


class ResourceContents(Wire, frozen=True):
    """The content of a resource: text, or a `blob` in base64."""

    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None


class ResourceBlock(Wire, frozen=True, tag_field="type", tag="resource"):
    """A resource with its content, such as the text in an editor's buffer."""

    resource: ResourceContents


ContentBlock = TextBlock | ImageBlock | AudioBlock | ResourceLink | ResourceBlock


class PromptParams(Wire, frozen=True):
    """Parameters of `session/prompt`, and of our `_tiller/steer` and `_tiller/queue`."""

    session_id: str
    prompt: tuple[ContentBlock, ...]


class QueueEditParams(Wire, frozen=True):
    """Parameters of our `_tiller/queue_edit`, with the same fields as the op `queue_edit`."""

    session_id: str
    """The session with the queue."""
    input_id: str
    """The queued input to change."""
    action: str
    """What to do with the queued input."""
    text: str = ""
    """The new text, if the action takes a text."""
    position: int = 0
    """The new position, if the action takes a position; 0 is next."""


class Outcome(Wire, frozen=True):
    """How a permission request ended: an option was `selected`, or it was `cancelled`."""

    outcome: str
    option_id: str = ""


class PermissionResult(Wire, frozen=True):
    """The answer to `session/request_permission`."""

    outcome: Outcome


class FormResult(Wire, frozen=True):
    """The answer to `elicitation/create`: `accept` with content, `decline` or `cancel`."""

    action: str
    content: dict[str, Any] | None = None


class FileContent(Wire, frozen=True):
    """The answer to `fs/read_text_file`."""

    content: str


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - whatever the client sent
    match value:
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {name: _without_nulls(one) for name, one in items if one is not None}
        case list():
            return list(map(_without_nulls, cast("list[Any]", value)))
        case _:
            return value


def _member(value: Any, *names: str) -> Any:  # noqa: ANN401 - whatever the client sent
    """The member of a member … of an object; None if there is none."""
    for name in names:
        value = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    return value
