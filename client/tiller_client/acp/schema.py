"""The messages from clients: the parameters of ACP v1 that tiller uses.

Names are as in ACP. Unknown fields are ignored, as ACP requires.
"""

from typing import Any

from msgspec import Struct, field

PROTOCOL_VERSION = 1


class Wire(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Base of all messages: `tool_call_id` here is `toolCallId` on the wire."""


class SessionSupport(Wire, frozen=True):
    """The parts of a session that the client can show. An absent field means that it can't."""

    compaction: dict[str, Any] | None = None
    notices: dict[str, Any] | None = None


class ElicitationSupport(Wire, frozen=True):
    """How the client can ask the user for text; without `form`, it can't."""

    form: dict[str, Any] | None = None


class FileSupport(Wire, frozen=True):
    """Whether the client can read files; if the field is absent, it can't."""

    read_text_file: bool = False


class ClientCapabilities(Wire, frozen=True):
    """The client's capabilities, as in `initialize`."""

    fs: FileSupport | None = None
    session: SessionSupport | None = None
    elicitation: ElicitationSupport | None = None
    meta: dict[str, Any] | None = field(default=None, name="_meta")

    @property
    def terminal_output(self) -> bool:
        """Whether the client shows the output of an agent's commands as a terminal.

        This is not in ACP, but a convention of Zed and other clients.
        """
        return (self.meta or {}).get("terminal_output") is True

    @property
    def reads_files(self) -> bool:
        """Whether the client reads files for us, with the editor's unsaved changes."""
        return self.fs is not None and self.fs.read_text_file

    @property
    def forms(self) -> bool:
        """Whether the client can ask the user for text."""
        return self.elicitation is not None and self.elicitation.form is not None

    @property
    def notices(self) -> bool:
        """Whether the client shows notices."""
        return self.session is not None and self.session.notices is not None

    @property
    def compaction(self) -> bool:
        """Whether the client shows compactions."""
        return self.session is not None and self.session.compaction is not None


class ClientInfo(Wire, frozen=True):
    """The client's name and version."""

    name: str = ""


class InitializeParams(Wire, frozen=True):
    """Parameters of `initialize`."""

    protocol_version: int
    client_capabilities: ClientCapabilities = ClientCapabilities()
    client_info: ClientInfo | None = None


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
