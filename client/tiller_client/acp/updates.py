"""The messages to clients: results and session updates of ACP v1."""

from typing import Any, Literal

from msgspec import Struct, field

from tiller_client.acp.schema import ImageBlock, ResourceBlock, TextBlock, Wire

ToolKind = Literal["read", "edit", "search", "execute", "think", "fetch", "other"]
ToolStatus = Literal["pending", "in_progress", "completed", "failed"]
StopReason = Literal["end_turn", "max_turn_requests", "refusal", "cancelled"]


class Shown(Wire, frozen=True, tag_field="type", tag="content"):
    """Text or an image as content of a tool call."""

    content: TextBlock | ImageBlock | ResourceBlock


class FileDiff(Wire, frozen=True, tag_field="type", tag="diff"):
    """A change of a file, or of one part of it; without `old_text`, the file is new."""

    path: str
    new_text: str
    old_text: str | None = None


class TerminalView(Wire, frozen=True, tag_field="type", tag="terminal"):
    """The output of a command, shown as a terminal."""

    terminal_id: str


CallContent = Shown | FileDiff | TerminalView


class CallLocation(Wire, frozen=True):
    """A file that a call works on."""

    path: str
    line: int | None = None


class Update(Struct, frozen=True, omit_defaults=True, rename="camel", tag_field="sessionUpdate"):
    """Base of all session updates."""


class UserChunk(Update, frozen=True, tag="user_message_chunk"):
    """A piece of the user's message."""

    content: TextBlock | ImageBlock | ResourceBlock
    message_id: str | None = None


class AgentChunk(Update, frozen=True, tag="agent_message_chunk"):
    """A piece of the model's text."""

    content: TextBlock
    message_id: str | None = None


class ThoughtChunk(Update, frozen=True, tag="agent_thought_chunk"):
    """A piece of the model's reasoning."""

    content: TextBlock
    message_id: str | None = None


class CallFields(Wire, frozen=True):
    """The description of a tool call, for updates and permission requests."""

    tool_call_id: str
    """The id of the call's item."""
    title: str | None = None
    """The call in one line."""
    name: str | None = None
    """The tool's name, as the model knows it."""
    kind: ToolKind | None = None
    """The kind of tool, by which the client chooses an icon."""
    status: ToolStatus | None = None
    """The state of the call; `completed` and `failed` are final."""
    content: tuple[CallContent, ...] | None = None
    """Everything that the call has produced so far."""
    locations: tuple[CallLocation, ...] | None = None
    """The files that the call works on, which an editor may open."""
    raw_input: Any = None
    """The arguments of the call."""
    raw_output: Any = None
    """The result as the model gets it."""
    meta: dict[str, Any] | None = field(default=None, name="_meta")
    """Output for clients that show it as a terminal."""


class CallStarted(CallFields, frozen=True, tag_field="sessionUpdate", tag="tool_call"):
    """A new tool call."""


class CallChanged(CallFields, frozen=True, tag_field="sessionUpdate", tag="tool_call_update"):
    """A change of a tool call; absent fields stay as they are."""


class PlanLine(Wire, frozen=True):
    """One entry of the plan."""

    content: str
    status: str
    priority: str


class PlanShown(Update, frozen=True, tag="plan"):
    """The whole plan."""

    entries: tuple[PlanLine, ...]


class CommandHint(Wire, frozen=True):
    """A hint at what to type after a command's name."""

    hint: str


class Command(Wire, frozen=True):
    """A command, typed as `/name`."""

    name: str
    description: str
    input: CommandHint | None = None


class CommandsShown(Update, frozen=True, tag="available_commands_update"):
    """All commands of the workspace, after a change."""

    available_commands: tuple[Command, ...]


class ModeShown(Update, frozen=True, tag="current_mode_update"):
    """The session has another mode."""

    current_mode_id: str


class Choice(Wire, frozen=True):
    """A value of an option."""

    value: str
    name: str
    description: str | None = None


class ConfigOption(Wire, frozen=True, tag_field="type", tag="select"):
    """A setting of the session that the user may choose."""

    id: str
    """Name of the setting."""
    name: str
    """The label that users see."""
    current_value: str
    """The value that is set, one of `options`."""
    options: tuple[Choice, ...]
    """The values that the user may choose."""
    category: str | None = None
    """The topic of the setting, by which the client chooses a key and an icon."""


class OptionsShown(Update, frozen=True, tag="config_option_update"):
    """All options of the session, with their values, after a change."""

    config_options: tuple[ConfigOption, ...]


class InfoShown(Update, frozen=True, tag="session_info_update"):
    """The session has a new title."""

    title: str
    updated_at: str


class Cost(Wire, frozen=True):
    """What the session has cost so far."""

    amount: float
    currency: str


class UsageShown(Update, frozen=True, tag="usage_update"):
    """How much of the context window is used, in tokens."""

    used: int
    size: int
    cost: Cost | None = None


class NoticeShown(Update, frozen=True, tag="notice"):
    """Something that the user should know."""

    severity: Literal["info", "warning", "error"]
    title: str


class CompactionShown(Update, frozen=True, tag="compaction_update"):
    """History was summarised."""

    compaction_id: str
    status: str
    summary: tuple[TextBlock, ...]


AnyUpdate = (
    UserChunk
    | AgentChunk
    | ThoughtChunk
    | CallStarted
    | CallChanged
    | PlanShown
    | CommandsShown
    | ModeShown
    | OptionsShown
    | InfoShown
    | UsageShown
    | NoticeShown
    | CompactionShown
)


class SessionUpdate(Wire, frozen=True):
    """Parameters of `session/update`."""

    session_id: str
    update: AnyUpdate


class Mode(Wire, frozen=True):
    """An agent, as a mode of the session."""

    id: str
    name: str
    description: str | None = None


class Modes(Wire, frozen=True):
    """All modes, and the current one."""

    current_mode_id: str
    available_modes: tuple[Mode, ...]


class Opened(Wire, frozen=True):
    """The result of `session/new`, `load`, `resume` and `fork`."""

    modes: Modes
    config_options: tuple[ConfigOption, ...]
    session_id: str | None = None


class PromptResult(Wire, frozen=True):
    """The result of `session/prompt`."""

    stop_reason: StopReason
    meta: dict[str, Any] | None = field(default=None, name="_meta")


class ListedSession(Wire, frozen=True):
    """An entry of `session/list`."""

    session_id: str
    cwd: str
    title: str | None = None
    updated_at: str | None = None


class ListResult(Wire, frozen=True):
    """The result of `session/list`."""

    sessions: tuple[ListedSession, ...]
    next_cursor: str | None = None


class PermissionOption(Wire, frozen=True):
    """One way to answer a permission request."""

    option_id: str
    name: str
    kind: Literal["allow_once", "allow_always", "reject_once"]


class PermissionParams(Wire, frozen=True):
    """Parameters of `session/request_permission`."""

    session_id: str
    tool_call: CallFields
    options: tuple[PermissionOption, ...]


class ReadFileParams(Wire, frozen=True):
    """Parameters of `fs/read_text_file`."""

    session_id: str
    path: str


class FormParams(Wire, frozen=True):
    """Parameters of `elicitation/create`."""

    session_id: str
    """The session with the question."""
    mode: Literal["form"]
    """The way to ask: always a form."""
    message: str
    """The question."""
    requested_schema: dict[str, Any]
    """The JSON Schema of the form's fields."""
    tool_call_id: str | None = None
    """The tool call that asks the question."""
