"""Answers: the daemon's reply to a submission, exactly one per submission id."""

from typing import Annotated, Any, Literal

from msgspec import Struct

from tiller_protocol.daemon import BackupResult, DaemonStatusResult
from tiller_protocol.doc import doc
from tiller_protocol.errors import RejectionCode
from tiller_protocol.events import Event
from tiller_protocol.items import FileChange
from tiller_protocol.op import Result
from tiller_protocol.prices import Price
from tiller_protocol.searching import InputHistoryResult, NextPage, SessionSearchResult
from tiller_protocol.settings import Action, SandboxMode
from tiller_protocol.snapshot import SessionSummary, Snapshot

ServerState = Literal["disabled", "idle", "starting", "up", "failed", "needs_login", "ended"]

Problem = Annotated[str, doc("Why this entry can't be used now; empty if it can be used.")]


class Limits(Struct, frozen=True):
    """Limits of this daemon, in bytes."""

    message_bytes_max: Annotated[int, doc("Largest message in either direction.")]
    replay_bytes_max: Annotated[int, doc("Largest answer to `replay`, unless one event is larger.")]
    input_bytes_max: Annotated[int, doc("Largest input: text and images together.")]


class HelloResult(Result, frozen=True, tag="hello"):
    """Identifies the daemon and its log, and shows whether to restart the daemon."""

    daemon_version: Annotated[str, doc("Version of the daemon's program, such as `1.2.0`.")]
    protocol_version: Annotated[int, doc("Version of the protocol that the daemon speaks.")]
    log_id: Annotated[str, doc("Id of the log. If the id has changed, earlier `seq`s are invalid.")]
    limits: Annotated[Limits, doc("Sizes that the daemon accepts.")]
    missing_keys: Annotated[
        tuple[str, ...],
        doc(
            "Missing environment variables for providers' keys: those that the configuration names "
            "and, if no model is configured, the well-known ones."
        ),
    ] = ()
    replaced: Annotated[
        bool, doc("Whether the daemon's program has been replaced since the daemon was started.")
    ] = False
    searches_model: Annotated[
        bool,
        doc(
            "Whether no model is known. Then new sessions and turns first look for a model server "
            "on the daemon's machine."
        ),
    ] = False


class Created(Result, frozen=True, tag="created"):
    """The session that `session_create` or `session_fork` has created."""

    session_id: Annotated[str, doc("Id of the new session.")]


class SessionListResult(Result, frozen=True, tag="session_list"):
    """A page of sessions."""

    sessions: Annotated[tuple[SessionSummary, ...], doc("Sessions, most recently active first.")]
    next: NextPage = None
    problems: Annotated[
        tuple[str, ...], doc("Reasons, in whole sentences, why sessions may be missing.")
    ] = ()


class SessionResult(Result, frozen=True, tag="session"):
    """The current state of a session."""

    snapshot: Annotated[Snapshot, doc("The state at `snapshot.seq`; `replay` has later events.")]


class ReplayResult(Result, frozen=True, tag="replay"):
    """A session's events from `after` + 1 to `upto`."""

    events: Annotated[
        tuple[Event, ...],
        doc("The events, in order. Deltas of items completed long ago may be missing."),
    ]
    upto: Annotated[int, doc("The answer covers all events up to this `seq`.")]
    head: Annotated[int, doc("`seq` of the last event in the log.")]
    followers: Annotated[
        tuple[str, ...], doc("Names of the other frontends that have the session open now.")
    ] = ()


class SessionDiffResult(Result, frozen=True, tag="session_diff"):
    """A session's changes to files."""

    files: Annotated[tuple[FileChange, ...], doc("The changed files.")]
    diff: Annotated[str, doc("Unified diff, without the content of protected files.")]
    cut: Annotated[bool, doc("Whether the list or the diff was too long and has been cut.")] = False
    partial: Annotated[bool, doc("Whether some changes may be unknown and thus missing.")] = False


class RevertResult(Result, frozen=True, tag="revert"):
    """The effect of a revert on files. Paths are relative to the workspace."""

    files: Annotated[tuple[str, ...], doc("Files that were restored or removed.")] = ()
    conflicts: Annotated[tuple[str, ...], doc("Files that can't be restored and stay as is.")] = ()
    partial: Annotated[bool, doc("Whether some changes may be unknown and not reverted.")] = False
    sub_agents: Annotated[
        tuple[str, ...],
        doc("Sessions of background sub-agents whose changes stay; revert each one separately."),
    ] = ()
    removed: Annotated[tuple[str, ...], doc("Those of `files` that were removed.")] = ()
    without_snapshot: Annotated[tuple[str, ...], doc("Conflicts that no snapshot contains.")] = ()
    problems: Annotated[dict[str, str], doc("Why conflicts could not be written, by path.")] = {}  # noqa: RUF012


class Started(Result, frozen=True, tag="started"):
    """A turn has started."""

    turn_id: Annotated[str, doc("Id of the new turn.")]


class Steered(Result, frozen=True, tag="steered"):
    """The running turn gets the input before its next model request.

    If the turn ends first, the input is queued.
    """

    turn_id: Annotated[str, doc("Id of the running turn.")]
    input_id: Annotated[str, doc("Id of the input while it waits.")]


class Queued(Result, frozen=True, tag="queued"):
    """The input waits in the queue."""

    input_id: Annotated[str, doc("Id of the queued input.")]
    position: Annotated[int, doc("Position in the queue; 0 is next.")]


class RateLimit(Struct, frozen=True, omit_defaults=True):
    """A provider's limit on the use of a model, as of the last response."""

    name: Annotated[str, doc("The provider's name for the unit: `requests`, `tokens`, …")]
    remaining: Annotated[int, doc("Number of units that can still be used before the reset.")]
    limit: Annotated[int | None, doc("Units available after a reset.")] = None
    resets_at: Annotated[float | None, doc("Time of the reset, in Unix seconds.")] = None


class ModelSummary(Struct, frozen=True, omit_defaults=True):
    """A model."""

    name: Annotated[str, doc("`provider/model`.")]
    api: Annotated[str, doc("The API of the model's provider.")]
    default: Annotated[bool, doc("Whether this model is used if none is chosen.")] = False
    context_window: Annotated[
        int | None, doc("Size of the context window in tokens; absent if unknown.")
    ] = None
    problem: Problem = ""
    max_output: Annotated[int | None, doc("Longest output in tokens; absent if unknown.")] = None
    price: Annotated[Price | None, doc("Prices of the model; absent if unknown.")] = None
    variants: Annotated[tuple[str, ...], doc("Names of variants that a turn can choose.")] = ()
    listed: Annotated[bool, doc("Whether the model is known only from the provider's list.")] = (
        False
    )
    rate_limits: Annotated[
        tuple[RateLimit, ...], doc("Limits last reported by the provider; empty if none.")
    ] = ()


class ProviderSummary(Struct, frozen=True, omit_defaults=True):
    """A model provider that is in use."""

    name: Annotated[str, doc("The part of a model's name before the slash.")]
    api: Annotated[str, doc("The API that the provider speaks.")]
    base_url: Annotated[str, doc("Address of the provider's server; empty if there is none.")] = ""
    key: Annotated[
        str, doc("Source of the key, such as `the variable X`; empty if the provider needs no key.")
    ] = ""
    default: Annotated[bool, doc("Whether the default model belongs to this provider.")] = False
    answers: Annotated[
        bool | None, doc("Whether the provider answered; absent if the op did not ask it.")
    ] = None
    problem: Problem = ""


class ProviderOffer(Struct, frozen=True, omit_defaults=True):
    """A provider that could be configured: a well-known one, or a server found on this machine."""

    name: Annotated[str, doc("Suggested name for the provider.")]
    api: Annotated[str, doc("The API that the provider speaks.")]
    base_url: Annotated[str, doc("Address of the provider's server.")]
    models: Annotated[tuple[str, ...], doc("The provider's models, the best choice first.")]
    api_key_env: Annotated[
        str, doc("The well-known variable for the key; empty for a server found on this machine.")
    ] = ""


class ToolSummary(Struct, frozen=True, omit_defaults=True):
    """A tool."""

    name: Annotated[str, doc("Name by which the model calls the tool.")]
    effect: Annotated[str, doc("What a call does: `read`, `write`, `command` or `agent`.")]
    description: Annotated[str, doc("Description that the model gets.")]
    server: Annotated[str, doc("The tool's MCP server; empty for built-in tools.")] = ""


class ServerSummary(Struct, frozen=True, omit_defaults=True):
    """An MCP server."""

    name: Annotated[str, doc("Name in the configuration.")]
    state: Annotated[
        ServerState,
        doc(
            "`idle`: not needed yet. `ended`: no longer running; the next call starts the server "
            "again. `failed`: could not be started. `needs_login`: use the op `mcp_login`."
        ),
    ]
    tools: Annotated[int, doc("Number of the server's tools.")] = 0
    problem: Annotated[str, doc("Why the server is not `up`; empty if there is no problem.")] = ""


class LanguageServerSummary(Struct, frozen=True, omit_defaults=True):
    """A language server that the daemon can start."""

    name: Annotated[str, doc("Name in the configuration.")]
    languages: Annotated[tuple[str, ...], doc("Languages that the server checks.")]
    program: Annotated[str, doc("Path of the program; empty if it is not installed.")] = ""
    chosen: Annotated[
        bool,
        doc(
            "Whether the configuration names this server. If it names none for a file, one server "
            "checks the file: the first in this list that is installed and supports the language."
        ),
    ] = False
    running: Annotated[int, doc("Number of directories in which the server runs.")] = 0
    problem: Annotated[str, doc("Why a process failed; empty if no process has failed.")] = ""


class AgentSummary(Struct, frozen=True, omit_defaults=True):
    """An agent: a prompt, permissions and a model under one name."""

    name: Annotated[str, doc("Name by which the agent is chosen.")]
    description: Annotated[str, doc("Description in one line; may be empty.")] = ""
    model: Annotated[str | None, doc("Model of the agent. Default: the session's model.")] = None
    read_only: Annotated[bool, doc("Whether the agent is limited to reading.")] = False
    problem: Problem = ""
    variant: Annotated[str | None, doc("Variant of the model. Default: the configured one.")] = None
    max_steps: Annotated[int | None, doc("Steps per turn. Default: the configured limit.")] = None


class CommandSummary(Struct, frozen=True, omit_defaults=True):
    """A custom command."""

    name: Annotated[str, doc("Name of the command, which is typed as `/name`.")]
    description: Annotated[str, doc("Description in one line; may be empty.")] = ""
    agent: Annotated[str | None, doc("Agent of the turn. Default: the session's agent.")] = None
    model: Annotated[str | None, doc("Model of the turn. Default: the session's model.")] = None
    problem: Problem = ""
    subtask: Annotated[bool, doc("Whether `agent` does the work as a sub-agent.")] = False


class SandboxSummary(Struct, frozen=True, omit_defaults=True):
    """The sandbox in which commands run."""

    mode: Annotated[SandboxMode, doc("What commands are allowed to do by default.")]
    network: Annotated[bool, doc("Whether commands are allowed to use the network.")] = False
    name: Annotated[str, doc("The mechanism, such as `bubblewrap`; empty if none works.")] = ""
    problem: Annotated[
        str, doc("Why no mechanism works (so every command needs approval); empty if one works.")
    ] = ""
    limits: Annotated[str, doc("What this mechanism can't enforce; may be empty.")] = ""
    instead: Annotated[str, doc("Why no better mechanism works; empty if `name` is the best.")] = ""


class CatalogResult(Result, frozen=True, tag="catalog"):
    """The models, agents, tools, commands and servers."""

    models: Annotated[tuple[ModelSummary, ...], doc("Models, the default model first.")]
    tools: Annotated[tuple[ToolSummary, ...], doc("Tools offered to models.")]
    agents: Annotated[tuple[AgentSummary, ...], doc("Agents that can be chosen.")]
    commands: Annotated[tuple[CommandSummary, ...], doc("Custom commands.")] = ()
    servers: Annotated[tuple[ServerSummary, ...], doc("MCP servers.")] = ()
    language_servers: Annotated[
        tuple[LanguageServerSummary, ...], doc("Language servers that the daemon can start.")
    ] = ()
    sandbox: Annotated[SandboxSummary | None, doc("The sandbox of commands.")] = None
    providers: Annotated[
        tuple[ProviderSummary, ...], doc("The providers of the models, sorted by name.")
    ] = ()
    offers: Annotated[
        tuple[ProviderOffer, ...],
        doc("If requested: all well-known providers, even without a key; then local servers."),
    ] = ()
    problem: Annotated[str, doc("Why the configuration is not in effect; empty if it is.")] = ""


class HookSummary(Struct, frozen=True, omit_defaults=True):
    """A hook: a command that runs at a certain point of each turn."""

    on: Annotated[str, doc("The point of a turn at which the hook runs.")]
    command: Annotated[str, doc("The hook's command line, for the shell.")]
    tool: Annotated[str, doc("Pattern of tool names, for hooks that run at tool calls.")] = "*"
    name: Annotated[str, doc("The hook's name in messages; may be empty.")] = ""


class ProjectResult(Result, frozen=True, tag="project"):
    """The definitions in a workspace's `.tiller`. They have no effect until trusted."""

    workspace: Annotated[str, doc("Absolute path of the workspace.")]
    digest: Annotated[str, doc("Digest of the content of `files`; empty if there are no files.")]
    files: Annotated[tuple[str, ...], doc("Files with the definitions, relative to the workspace.")]
    trusted: Annotated[bool, doc("Whether the user trusts the content with this digest.")]
    problem: Annotated[str, doc("Why the files can't be trusted; empty if they can.")] = ""
    hooks: Annotated[tuple[HookSummary, ...], doc("Hooks that the files define.")] = ()


class RuleSummary(Struct, frozen=True, omit_defaults=True):
    """A permission rule that was made by an answer or a frontend."""

    id: Annotated[str, doc("Id of the rule, for `rule_revoke`.")]
    permission: Annotated[str, doc("The permission that the rule decides, such as `bash`.")]
    pattern: Annotated[str, doc("A glob that matches subjects, such as commands or paths.")]
    action: Annotated[Action, doc("The rule's decision; a lasting rule always allows.")] = "allow"
    workspace: Annotated[str, doc("Directory of a lasting rule; empty for a session's rule.")] = ""
    session_id: Annotated[str, doc("Session that has the rule; empty for a lasting rule.")] = ""
    granted_at: Annotated[
        float | None, doc("When the rule was made, in Unix seconds; absent if unknown.")
    ] = None
    by: Annotated[str, doc("Name of the frontend that made the rule; empty if unknown.")] = ""


class RulesResult(Result, frozen=True, tag="rules"):
    """The lasting rules, by directory. If the op names a session, that session's rules follow."""

    rules: Annotated[tuple[RuleSummary, ...], doc("The rules. Later rules take precedence.")]


class McpLoginResult(Result, frozen=True, tag="mcp_login"):
    """The state of a login to an MCP server."""

    state: Annotated[
        Literal["waiting", "done", "logged_out"],
        doc("`waiting`: the user has to open `url`. `done`: the login is stored."),
    ]
    url: Annotated[str, doc("The address that the user opens in a browser, while `waiting`.")] = ""


AnyResult = (
    HelloResult
    | Created
    | SessionListResult
    | SessionSearchResult
    | InputHistoryResult
    | SessionResult
    | ReplayResult
    | SessionDiffResult
    | RevertResult
    | Started
    | Steered
    | Queued
    | CatalogResult
    | ProjectResult
    | McpLoginResult
    | BackupResult
    | RulesResult
    | DaemonStatusResult
)


class Accepted(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="accepted"):
    """The op has taken effect and is in the log."""

    submission_id: Annotated[str, doc("Id of the submission to which this is the answer.")]
    result: Annotated[AnyResult | None, doc("The op's result; absent if the op has none.")] = None


class Rejected(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="rejected"):
    """The op had no effect."""

    submission_id: Annotated[str, doc("Id of the submission; empty if the id was unreadable.")]
    code: Annotated[RejectionCode, doc("The reason, for programs.")]
    message: Annotated[str, doc("The reason in whole sentences, for people.")]
    data: Annotated[dict[str, Any], doc("Details for `code`, such as the rejected input.")] = {}


AnyAnswer = Accepted | Rejected
