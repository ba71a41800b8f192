"""What clients send: the parameters of ACP v1, as far as they are used.

The names are those of the protocol; unknown fields are ignored, as it asks for.
"""

from typing import Any

from msgspec import Struct, field

PROTOCOL_VERSION = 1


class Wire(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Base of all messages: `tool_call_id` here is `toolCallId` on the wire."""


class SessionSupport(Wire, frozen=True):
    """What the client can show of a session; absent: it can't."""

    compaction: dict[str, Any] | None = None
    notices: dict[str, Any] | None = None


class ElicitationSupport(Wire, frozen=True):
    """How the client can ask the user for text; absent: it can't."""

    form: dict[str, Any] | None = None


class FileSupport(Wire, frozen=True):
    """What the client does with files; it can't where a field is absent."""

    read_text_file: bool = False


class ClientCapabilities(Wire, frozen=True):
    """What the client can do."""

    fs: FileSupport | None = None
    session: SessionSupport | None = None
    elicitation: ElicitationSupport | None = None
    meta: dict[str, Any] | None = field(default=None, name="_meta")

    @property
    def terminal_output(self) -> bool:
        """Whether it shows output of commands that agents run themselves, as a terminal.

        Not part of the protocol; Zed and others agree on it.
        """
        return (self.meta or {}).get("terminal_output") is True

    @property
    def reads_files(self) -> bool:
        """Whether it reads files, as they are in its editor."""
        return self.fs is not None and self.fs.read_text_file

    @property
    def forms(self) -> bool:
        """Whether it can ask the user for text."""
        return self.elicitation is not None and self.elicitation.form is not None

    @property
    def notices(self) -> bool:
        """Whether it shows notices."""
        return self.session is not None and self.session.notices is not None

    @property
    def compaction(self) -> bool:
        """Whether it shows compactions."""
        return self.session is not None and self.session.compaction is not None


class ClientInfo(Wire, frozen=True):
    """Which client it is."""

    name: str = ""


class InitializeParams(Wire, frozen=True):
    """`initialize`."""

    protocol_version: int
    client_capabilities: ClientCapabilities = ClientCapabilities()
    client_info: ClientInfo | None = None


class NamedValue(Wire, frozen=True):
    """A variable or a header of an MCP server."""

    name: str
    value: str


class McpServer(Wire, frozen=True):
    """An MCP server that the editor hands in."""

    name: str
    """What its tools are prefixed with."""
    type: str = "stdio"
    """How it is reached; absent for a program."""
    command: str = ""
    """Its program."""
    args: tuple[str, ...] = ()
    """The arguments of the program."""
    env: tuple[NamedValue, ...] = ()
    """The variables of the program."""
    url: str = ""
    """Its address."""
    headers: tuple[NamedValue, ...] = ()
    """Sent with each request."""


class NewParams(Wire, frozen=True):
    """`session/new`."""

    cwd: str
    additional_directories: tuple[str, ...] | None = None
    mcp_servers: tuple[McpServer, ...] | None = None


class OpenParams(Wire, frozen=True):
    """`session/load`, `session/resume` and `session/fork`."""

    session_id: str
    cwd: str = ""
    additional_directories: tuple[str, ...] | None = None
    mcp_servers: tuple[McpServer, ...] | None = None


class SessionParams(Wire, frozen=True):
    """A method that needs only the session, such as `session/cancel`."""

    session_id: str


class ListParams(Wire, frozen=True):
    """`session/list`."""

    cwd: str | None = None
    cursor: str | None = None


class SetModeParams(Wire, frozen=True):
    """`session/set_mode`."""

    session_id: str
    mode_id: str


class SetOptionParams(Wire, frozen=True):
    """`session/set_config_option`."""

    session_id: str
    config_id: str
    value: str | bool


class CancelRequestParams(Wire, frozen=True):
    """`$/cancel_request`."""

    request_id: int | str | None


class TextBlock(Wire, frozen=True, tag_field="type", tag="text"):
    """Text."""

    text: str


class ImageBlock(Wire, frozen=True, tag_field="type", tag="image"):
    """An image, in base64."""

    data: str
    mime_type: str
    uri: str | None = None


class AudioBlock(Wire, frozen=True, tag_field="type", tag="audio"):
    """Audio, which no model here takes."""


class ResourceLink(Wire, frozen=True, tag_field="type", tag="resource_link"):
    """A file or another resource by its address."""

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
    """`session/prompt`, and our `_tiller/steer` and `_tiller/queue`."""

    session_id: str
    prompt: tuple[ContentBlock, ...]


class QueueEditParams(Wire, frozen=True):
    """Our `_tiller/queue_edit`; the fields are those of the op `queue_edit`."""

    session_id: str
    """The session with the queue."""
    input_id: str
    """The queued input to change."""
    action: str
    """What to do with it."""
    text: str = ""
    """Its new text, where the action takes one."""
    position: int = 0
    """Its new position, where the action takes one; 0 is next."""


class Outcome(Wire, frozen=True):
    """How the user dealt with a permission request: `selected` or `cancelled`."""

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
