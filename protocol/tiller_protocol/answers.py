"""Answers: the daemon's reply to a submission, exactly one per submission id."""

from typing import Annotated, Any, Literal

from msgspec import Struct

from tiller_protocol.doc import doc
from tiller_protocol.errors import RejectionCode
from tiller_protocol.events import Event
from tiller_protocol.items import FileChange
from tiller_protocol.op import Result
from tiller_protocol.prices import Price
from tiller_protocol.searching import InputHistoryResult, SessionSearchResult
from tiller_protocol.settings import Action, SandboxMode
from tiller_protocol.snapshot import SessionSummary, Snapshot

ServerState = Literal["disabled", "idle", "starting", "up", "failed", "needs_login", "ended"]

Problem = Annotated[str, doc("Why this entry can't be used now; empty if it can.")]


class Limits(Struct, frozen=True):
    """Limits of this daemon, in bytes."""

    message_bytes_max: Annotated[int, doc("Largest message, either way.")]
    replay_bytes_max: Annotated[int, doc("A `replay` answer stops before it exceeds this.")]
    input_bytes_max: Annotated[int, doc("Largest input: text and images together.")]


class HelloResult(Result, frozen=True, tag="hello"):
    """Identifies the daemon, and says what a restart may change. No key is ever sent."""

    daemon_version: Annotated[str, doc("Such as `1.2.0`.")]
    protocol_version: Annotated[int, doc("The version that the daemon speaks.")]
    log_id: Annotated[str, doc("Changes when the daemon has a new log; earlier `seq`s are void.")]
    limits: Annotated[Limits, doc("Sizes that the daemon accepts.")]
    missing_keys: Annotated[
        tuple[str, ...],
        doc(
            "Environment variables for providers' keys that the daemon lacks: those named in the "
            "configuration, and well-known ones if no model is configured."
        ),
    ] = ()
    replaced: Annotated[
        bool, doc("The daemon's program has been replaced since the daemon was started.")
    ] = False
    searches_model: Annotated[
        bool,
        doc(
            "No model is known, so that new sessions and turns first look for a model server on "
            "the daemon's machine."
        ),
    ] = False


class Created(Result, frozen=True, tag="created"):
    """The new session, after `session_create` or `session_fork`."""

    session_id: Annotated[str, doc("The new session.")]


class SessionListResult(Result, frozen=True, tag="session_list"):
    """A page of sessions."""

    sessions: Annotated[tuple[SessionSummary, ...], doc("Newest activity first.")]
    next: Annotated[str | None, doc("`after` for the next page; absent if this is the last.")] = (
        None
    )
    problems: Annotated[
        tuple[str, ...], doc("Why sessions may be missing, in whole sentences.")
    ] = ()


class SessionResult(Result, frozen=True, tag="session"):
    """A session as it is now."""

    snapshot: Annotated[Snapshot, doc("For later events: `replay` after `snapshot.seq`.")]


class ReplayResult(Result, frozen=True, tag="replay"):
    """Events of a session, from `after` + 1 to `upto`."""

    events: Annotated[
        tuple[Event, ...],
        doc("In order. Deltas of items completed long ago may be missing."),
    ]
    upto: Annotated[int, doc("The answer covers every event up to this `seq`; go on after it.")]
    head: Annotated[int, doc("`seq` of the last event in the log.")]
    followers: Annotated[
        tuple[str, ...], doc("Names of the other frontends that have the session open now.")
    ] = ()


class SessionDiffResult(Result, frozen=True, tag="session_diff"):
    """What changed in files."""

    files: Annotated[tuple[FileChange, ...], doc("The files that differ.")]
    diff: Annotated[str, doc("Unified diff; omits the content of files that may not be read.")]
    cut: Annotated[bool, doc("The list or the diff was too long; its end is missing.")] = False
    partial: Annotated[bool, doc("Other files may have changed without a snapshot.")] = False


class RevertResult(Result, frozen=True, tag="revert"):
    """What happened to files; paths are relative to the workspace."""

    files: Annotated[tuple[str, ...], doc("Files that were put back.")] = ()
    conflicts: Annotated[
        tuple[str, ...], doc("Files that something else has changed; left as they are.")
    ] = ()
    partial: Annotated[bool, doc("Other files may have changed without a snapshot.")] = False
    sub_agents: Annotated[
        tuple[str, ...],
        doc("Sessions of background sub-agents whose changes stay; revert each one separately."),
    ] = ()


class Started(Result, frozen=True, tag="started"):
    """The input began this turn."""

    turn_id: Annotated[str, doc("The new turn.")]


class Steered(Result, frozen=True, tag="steered"):
    """The input goes to the running turn before its next model request.

    If the turn ends before that, the input is queued.
    """

    turn_id: Annotated[str, doc("The running turn.")]
    input_id: Annotated[str, doc("The input, while it waits.")]


class Queued(Result, frozen=True, tag="queued"):
    """The input waits until the running turn ends."""

    input_id: Annotated[str, doc("The queued input.")]
    position: Annotated[int, doc("0 is next.")]


class RateLimit(Struct, frozen=True, omit_defaults=True):
    """A provider's limit on the use of a model, as of the last response."""

    name: Annotated[str, doc("The provider's name for the unit: `requests`, `tokens`, …")]
    remaining: Annotated[int, doc("Units left until the reset.")]
    limit: Annotated[int | None, doc("Units available after a reset.")] = None
    resets_at: Annotated[float | None, doc("Unix seconds.")] = None


class ModelSummary(Struct, frozen=True, omit_defaults=True):
    """A model."""

    name: Annotated[str, doc("`provider/model`.")]
    api: Annotated[str, doc("The API of its provider.")]
    default: Annotated[bool, doc("Used where no model is chosen.")] = False
    context_window: Annotated[int | None, doc("Tokens; absent if unknown.")] = None
    problem: Problem = ""
    max_output: Annotated[int | None, doc("Tokens; absent if unknown.")] = None
    price: Annotated[Price | None, doc("Absent if unknown.")] = None
    variants: Annotated[tuple[str, ...], doc("Names of variants that a turn can choose.")] = ()
    listed: Annotated[bool, doc("Not in the configuration; only the provider lists it.")] = False
    rate_limits: Annotated[
        tuple[RateLimit, ...], doc("Limits last reported by the provider; empty if none.")
    ] = ()


class ProviderSummary(Struct, frozen=True, omit_defaults=True):
    """A model provider that is in use."""

    name: Annotated[str, doc("The part of a model's name before the slash.")]
    api: Annotated[str, doc("The API that it speaks.")]
    base_url: Annotated[str, doc("Address of the provider's server; empty if there is none.")] = ""
    key: Annotated[
        str, doc("Source of the key, such as `the variable X`; empty if the provider has none.")
    ] = ""
    default: Annotated[bool, doc("The default model belongs to this provider.")] = False
    answers: Annotated[
        bool | None, doc("Whether the provider answered just now; absent if it was not asked.")
    ] = None
    problem: Problem = ""


class ProviderOffer(Struct, frozen=True, omit_defaults=True):
    """A provider that could be configured: one with a well-known key, or a server found here."""

    name: Annotated[str, doc("Suggested name for the provider.")]
    api: Annotated[str, doc("The API that it speaks.")]
    base_url: Annotated[str, doc("The address of its server.")]
    models: Annotated[tuple[str, ...], doc("The provider's models, the best choice first.")]
    api_key_env: Annotated[
        str, doc("The well-known variable for the key; empty for a running server.")
    ] = ""


class ToolSummary(Struct, frozen=True, omit_defaults=True):
    """A tool."""

    name: Annotated[str, doc("As the model calls it.")]
    effect: Annotated[str, doc("What a call does: `read`, `write`, `command` or `agent`.")]
    description: Annotated[str, doc("As the model gets it.")]
    server: Annotated[str, doc("The MCP server that provides it; empty: built in.")] = ""


class ServerSummary(Struct, frozen=True, omit_defaults=True):
    """An MCP server."""

    name: Annotated[str, doc("Its name in the configuration.")]
    state: Annotated[
        ServerState,
        doc(
            "`idle`: not needed yet. `ended`: gone, and started again for the next call. "
            "`failed`: could not be started. `needs_login`: use the op `mcp_login`."
        ),
    ]
    tools: Annotated[int, doc("Number of its tools.")] = 0
    problem: Annotated[str, doc("Why it is not `up`; empty if there is no problem.")] = ""


class LanguageServerSummary(Struct, frozen=True, omit_defaults=True):
    """A language server that may be started."""

    name: Annotated[str, doc("Its name in the configuration.")]
    languages: Annotated[tuple[str, ...], doc("Languages that it checks.")]
    program: Annotated[str, doc("Path; empty if it is not installed.")] = ""
    chosen: Annotated[
        bool,
        doc("Whether the configuration names it. Else the first server installed runs."),
    ] = False
    running: Annotated[int, doc("Number of directories in which the server runs.")] = 0
    problem: Annotated[str, doc("Why a process has ended; empty if none has failed.")] = ""


class AgentSummary(Struct, frozen=True, omit_defaults=True):
    """An agent: a prompt, permissions and a model under one name."""

    name: Annotated[str, doc("Name by which the agent is chosen.")]
    description: Annotated[str, doc("One line; may be empty.")] = ""
    model: Annotated[str | None, doc("Absent: the session's model.")] = None
    read_only: Annotated[bool, doc("Whether the agent can only read.")] = False
    problem: Problem = ""
    variant: Annotated[str | None, doc("Variant of the model; absent: the configured one.")] = None
    max_steps: Annotated[int | None, doc("Steps per turn; absent: the configured limit.")] = None


class CommandSummary(Struct, frozen=True, omit_defaults=True):
    """A custom command."""

    name: Annotated[str, doc("Typed as `/name`.")]
    description: Annotated[str, doc("One line; may be empty.")] = ""
    agent: Annotated[str | None, doc("Agent of the turn; absent: the session's agent.")] = None
    model: Annotated[str | None, doc("Model of the turn; absent: the session's model.")] = None
    problem: Problem = ""
    subtask: Annotated[bool, doc("A sub-agent does it; `agent` is then the sub-agent.")] = False


class SandboxSummary(Struct, frozen=True, omit_defaults=True):
    """The sandbox of commands."""

    mode: Annotated[SandboxMode, doc("What commands may do unless a session says otherwise.")]
    network: Annotated[bool, doc("Whether commands may use the network.")] = False
    name: Annotated[str, doc("The mechanism, such as `bubblewrap`; empty if none works.")] = ""
    problem: Annotated[
        str, doc("Why no mechanism works, so that every command needs approval; else empty.")
    ] = ""
    limits: Annotated[str, doc("What this mechanism can't enforce; empty if it enforces all.")] = ""
    instead: Annotated[str, doc("Why no better mechanism works; empty if this is the best.")] = ""


class CatalogResult(Result, frozen=True, tag="catalog"):
    """Lists the models, agents, tools, commands and servers."""

    models: Annotated[tuple[ModelSummary, ...], doc("The default model first.")]
    tools: Annotated[tuple[ToolSummary, ...], doc("Tools offered to models.")]
    agents: Annotated[tuple[AgentSummary, ...], doc("Agents that can be chosen.")]
    commands: Annotated[tuple[CommandSummary, ...], doc("Custom commands.")] = ()
    servers: Annotated[tuple[ServerSummary, ...], doc("MCP servers.")] = ()
    language_servers: Annotated[
        tuple[LanguageServerSummary, ...], doc("Language servers that may be started.")
    ] = ()
    sandbox: Annotated[SandboxSummary | None, doc("The sandbox of commands.")] = None
    providers: Annotated[
        tuple[ProviderSummary, ...], doc("The providers of the models, by their names.")
    ] = ()
    offers: Annotated[
        tuple[ProviderOffer, ...],
        doc("If requested: providers with well-known keys, set or not, then local servers."),
    ] = ()
    problem: Annotated[str, doc("Why the configuration file is not in effect, if so.")] = ""


class HookSummary(Struct, frozen=True, omit_defaults=True):
    """A hook: a command that runs at a moment of a turn."""

    on: Annotated[str, doc("The moment of a turn at which the hook runs.")]
    command: Annotated[str, doc("A command line for the shell.")]
    tool: Annotated[str, doc("Pattern of tool names, for hooks that run at tool calls.")] = "*"
    name: Annotated[str, doc("Name for messages; may be empty.")] = ""


class ProjectResult(Result, frozen=True, tag="project"):
    """What a workspace's `.tiller` defines; it has no effect unless it is trusted."""

    workspace: Annotated[str, doc("Absolute path.")]
    digest: Annotated[str, doc("Digest of the content of `files`; empty if there are no files.")]
    files: Annotated[tuple[str, ...], doc("Relative to the workspace.")]
    trusted: Annotated[bool, doc("Whether the user trusts this digest.")]
    problem: Annotated[str, doc("Why the files can't be trusted; empty if they can.")] = ""
    hooks: Annotated[tuple[HookSummary, ...], doc("Hooks that the files define.")] = ()


class RuleSummary(Struct, frozen=True, omit_defaults=True):
    """A permission rule that an answer or a frontend made."""

    id: Annotated[str, doc("For `rule_revoke`.")]
    permission: Annotated[str, doc("Such as `bash`.")]
    pattern: Annotated[str, doc("A glob over the subject, such as a command or a path.")]
    action: Annotated[Action, doc("The rule's decision; a lasting rule always allows.")] = "allow"
    workspace: Annotated[str, doc("Directory of a lasting rule; empty for a session's rule.")] = ""
    session_id: Annotated[str, doc("Session that has the rule; empty for a lasting rule.")] = ""
    granted_at: Annotated[float | None, doc("Unix seconds; absent if unknown.")] = None
    by: Annotated[str, doc("The frontend that granted it; empty if unknown.")] = ""


class RulesResult(Result, frozen=True, tag="rules"):
    """Lasting rules by directory, then the session's own, oldest first."""

    rules: Annotated[tuple[RuleSummary, ...], doc("The rules; later ones take precedence.")]


class DaemonStatusResult(Result, frozen=True, tag="daemon_status"):
    """Figures about the process."""

    daemon_version: Annotated[str, doc("Such as `1.2.0`.")]
    pid: Annotated[int, doc("The daemon's process id.")]
    uptime_s: Annotated[float, doc("Seconds.")]
    log_path: Annotated[str, doc("The database with all sessions.")]
    sessions: Annotated[int, doc("Sessions in the log.")]
    sessions_loaded: Annotated[int, doc("Sessions in memory.")]
    turns_running: Annotated[int, doc("Turns that are running now.")]
    rss_bytes: Annotated[int, doc("Resident memory; 0 where the system does not report it.")] = 0
    draining: Annotated[bool, doc("Whether the daemon is about to end.")] = False
    problems: Annotated[
        tuple[str, ...], doc("What is wrong with the log, in whole sentences.")
    ] = ()


class McpLoginResult(Result, frozen=True, tag="mcp_login"):
    """Progress of a login to an MCP server."""

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
    | RulesResult
    | DaemonStatusResult
)


class Accepted(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="accepted"):
    """The op took effect and is in the log."""

    submission_id: Annotated[str, doc("The submission that this answers.")]
    result: Annotated[AnyResult | None, doc("Absent for ops without a result.")] = None


class Rejected(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="rejected"):
    """The op had no effect."""

    submission_id: Annotated[str, doc("The submission that this answers; empty if unreadable.")]
    code: Annotated[RejectionCode, doc("The reason, for programs.")]
    message: Annotated[str, doc("Sentences for people.")]
    data: Annotated[dict[str, Any], doc("Details of the code, such as the refused input.")] = {}


AnyAnswer = Accepted | Rejected
