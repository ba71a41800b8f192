"""The schema of the configuration: frozen structs that reject unknown keys. No I/O here.

Secrets are never part of it: a provider names the place where its key is.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from tiller_daemon.config.model_schema import Command, Family, KeyPlaces, Model, Provider, Seconds
from tiller_daemon.config.retry import Retry
from tiller_protocol.settings import Approve, Budget, FollowUps, Rule, SandboxMode, Steps

LogLevel = Literal["debug", "info", "warning", "error"]

DEFAULT_MAX_STEPS = 200
"""Model requests in one turn before it ends as `limit_reached`."""

FULL_SHARE = 0.85
"""The share of the usable context window at which history is compacted."""

PRESERVED_INPUT_TOKENS = 20_000
"""How much of the newest user input a compaction preserves verbatim."""

PRUNE_PROTECT_TOKENS = 40_000
PRUNE_GAIN_TOKENS = 20_000
"""At the end of a turn the newest tool output is not pruned, and nothing is for a smaller gain:
pruning changes the request prefix that providers cache."""

MCP_CALL_S = 120.0
"""As long as a command may take."""

MCP_START_S = 60.0
"""Enough to install a server from a package registry over a slow connection."""

HOOK_S = 10.0
"""Time limit of a hook: a turn waits for most of them."""

VariablePattern = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_*?\[\]!-]+$")]
Share = Annotated[float, Meta(gt=0, le=1)]

ConfigurationCode = Literal[
    "missing_file",
    "unreadable_file",
    "syntax",
    "unknown_key",
    "wrong_type",
    "invalid_value",
    "not_allowed",
]


class ConfigurationError(Exception):
    """The configuration is invalid; the message names the source, the line and the key.

    It never contains a value, which may be a secret in the wrong place.
    """

    def __init__(self, code: ConfigurationCode, message: str) -> None:
        super().__init__(message)
        self.code: ConfigurationCode = code
        self.message = message


class Agent(Struct, frozen=True, forbid_unknown_fields=True):
    """A prompt, permissions, tools and a model under one name.

    Absent fields are those of a file's or built-in agent of the same name, if there is one.
    """

    description: str = ""
    """Tells users and models what the agent is for."""
    prompt_file: str | None = None
    """The file of the prompt; excludes `prompt`."""
    prompt: str | None = None
    """After loading also the text of `prompt_file`."""
    model: str | None = None
    """Absent means the model of the session."""
    variant: str | None = None
    """The variant of its model; absent means that of the configuration, empty means none."""
    permissions: tuple[Rule, ...] = ()
    """Rules that follow, and so override, those of the configuration."""
    tools: tuple[str, ...] | None = None
    """Names of its tools, or patterns for those of MCP servers; absent means all tools."""
    read_only: bool | None = None
    """Whether writing is denied, regardless of the rules; absent finally means no."""
    options: dict[str, Any] = {}
    """Extra fields of requests."""
    max_steps: Steps | None = None
    """Model requests per turn; absent means what the configuration says."""


class OAuthClient(Struct, frozen=True, forbid_unknown_fields=True):
    """A client that the user has registered with a server, at which others can't register."""

    client_id: Annotated[str, Meta(min_length=1)]
    """The name that the server gave it."""
    client_secret_env: str | None = None
    """The variable that holds its secret; absent like the next three for a client without one."""
    client_secret_command: Command | None = None
    """A command that prints the secret on its first line."""
    client_secret_file: str | None = None
    """A file with the secret on its first line; absolute after loading."""
    client_secret_keyring: str | None = None
    """The entry of the keyring that holds the secret."""
    client_secret_method: Literal["basic", "post"] | None = None
    """Whether the secret is sent in the header `Authorization` or in the form; absent: what the
    server says that it takes, the header if it takes both."""
    scopes: tuple[Annotated[str, Meta(pattern=r"^[!#-\[\]-~]+$")], ...] = ()
    """What a login asks for; empty leaves it to what the server says."""
    redirect_port: Annotated[int, Meta(ge=1, le=65_535)] | None = None
    """The port of `http://127.0.0.1:PORT/callback`, if it is registered; absent means any free."""

    @property
    def secret_places(self) -> KeyPlaces:
        """Where its secret is, as the place of a key."""
        return KeyPlaces(
            api_key_env=self.client_secret_env,
            api_key_command=self.client_secret_command,
            api_key_file=self.client_secret_file,
            api_key_keyring=self.client_secret_keyring,
        )


class McpServer(KeyPlaces, frozen=True, forbid_unknown_fields=True):
    """An MCP server, started by `command` or reached at `url`. Only the latter has a key."""

    command: Command | None = None
    """Program and arguments, run without a shell; excludes `url`."""
    cwd: str | None = None
    """Working directory, absolute after loading; absent means the user's home directory."""
    env: dict[str, str] = field(default_factory=dict[str, str])
    """Variables in addition to those that every child process gets."""
    env_vars: tuple[str, ...] = ()
    """Names of variables that are passed from the daemon's environment."""
    url: str | None = None
    """Address of a streamable HTTP server; excludes `command`."""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    """Sent with each request."""
    api_key_header: str | None = None
    """The header that carries the key; absent means `Authorization: Bearer`."""
    oauth: OAuthClient | None = None
    """The client that a login is made for; absent means that the daemon registers one."""
    timeout_s: Seconds = MCP_CALL_S
    """Time limit of a call, not counting the time in which the user is asked something."""
    start_timeout_s: Seconds = MCP_START_S
    """Time limit from the start until the tools are listed."""
    enabled: bool = True
    """False keeps the server out without removing its table."""


class LanguageServer(Struct, frozen=True, forbid_unknown_fields=True):
    """A language server. Absent fields are those of the built-in server of the same name."""

    command: Command | None = None
    """Program and arguments, run without a shell."""
    files: dict[str, str] = {}
    """Language identifiers of the protocol by the ending of file names."""
    root_markers: tuple[str, ...] = ()
    """The server's root is the nearest directory with one of these files, else the workspace."""
    initialization: dict[str, Any] = {}
    """Sent once, with `initialize`."""
    settings: dict[str, Any] = {}
    """Sent when the server requests them."""
    enabled: bool = True
    """False turns off a built-in server."""


class SandboxPolicy(Struct, frozen=True, forbid_unknown_fields=True):
    """What commands may do to the machine.

    `network` allows connections to other machines. `writable` are directories in addition to the
    workspace for the mode `workspace_write`; `readable` are paths that are otherwise hidden. Both
    are absolute after loading.
    """

    mode: SandboxMode = "workspace_write"
    network: bool = False
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()


class CompactionPolicy(Struct, frozen=True, forbid_unknown_fields=True):
    """When history is made shorter so that requests fit the context window."""

    auto: bool = True
    """Whether that happens unasked: when the window is nearly full, or the provider says so."""
    full_share: Share = FULL_SHARE
    """The share of the window, without what is left for the answer, that counts as nearly full."""
    preserve_tokens: Annotated[int, Meta(ge=0)] = PRESERVED_INPUT_TOKENS
    """How much of the newest user input stays verbatim; the newest message always does."""
    prune: bool = True
    """Whether old tool output is no longer sent after the end of a turn."""
    prune_protect_tokens: Annotated[int, Meta(ge=0)] = PRUNE_PROTECT_TOKENS
    """How much of the newest tool output is always sent."""
    prune_gain_tokens: Annotated[int, Meta(ge=1)] = PRUNE_GAIN_TOKENS
    """The least that pruning must save."""


class Fetch(Struct, frozen=True, forbid_unknown_fields=True):
    """What the tool `fetch` may reach.

    With `private_addresses` also this machine and others that are not on the public internet.
    """

    private_addresses: bool = False


class Sourcegraph(KeyPlaces, frozen=True, forbid_unknown_fields=True):
    """The server of the tool `sourcegraph`."""

    endpoint: str | None = None
    """Address of the server; absent means that the tool does not exist."""


class WebSearch(KeyPlaces, frozen=True, forbid_unknown_fields=True):
    """The engine of the tool `web_search`."""

    engine: Literal["searxng", "brave"] | None = None
    """Whose API the server speaks; absent means that the tool does not exist."""
    endpoint: str | None = None
    """Address of the server; absent means Brave's own."""


HookMoment = Literal[
    "session_start",
    "session_end",
    "turn_start",
    "turn_done",
    "turn_end",
    "tool_before",
    "tool_after",
    "request",
    "compaction_before",
    "compaction_after",
    "sub_agent_end",
]


class Hook(Struct, frozen=True, forbid_unknown_fields=True):
    """A command that runs at a certain moment of a session. At some moments it may deny."""

    on: HookMoment
    """The moment."""
    command: str | Command
    """Text for the shell, or a program and its arguments; it runs in the workspace."""
    name: str = ""
    """For people; empty means the beginning of the command."""
    tool: str = "*"
    """Pattern for names of tools; only for `tool_before` and `tool_after`."""
    timeout_s: Seconds = HOOK_S
    """Time limit in seconds; a hook that exceeds it has failed."""
    on_failure: Literal["go_on", "deny"] = "go_on"
    """Whether a failure denies; only for `turn_start` and `tool_before`."""


class ProjectHook(Hook, frozen=True, forbid_unknown_fields=True):
    """A hook of a trusted project: it runs in the sandbox of the model's commands."""


class Configuration(Struct, frozen=True, forbid_unknown_fields=True):
    """The complete configuration. Models are named `provider/model`."""

    model: str | None = None
    """The model of sessions that choose none."""
    variant: str | None = None
    """The variant of sessions and agents that choose none."""
    small_model: str | None = None
    """For small tasks such as titles; absent means the model of the turn."""
    compaction_model: str | None = None
    """For summaries of long histories; absent means the model of the turn."""
    compaction: CompactionPolicy = CompactionPolicy()
    """When history is made shorter."""
    approve: Approve = "ask"
    """Default of new sessions."""
    follow_ups: FollowUps = "one_at_a_time"
    """Default of new sessions."""
    max_steps: Steps = DEFAULT_MAX_STEPS
    """Default of new sessions: model requests per turn."""
    turn_budget: Budget = Budget()
    """Default of new sessions."""
    session_budget: Budget = Budget()
    """Default of new sessions."""
    resume: Literal["never", "auto"] = "never"
    """Whether turns that ran when the daemon died continue at the next start."""
    log_level: LogLevel = "info"
    """Of the daemon's own log."""
    retry: Retry = Retry()
    """When and how long failed requests to models are made again."""
    snapshots: bool = True
    """Whether changes of files are recorded, so that a revert can restore them."""
    record: str | None = None
    """Directory for recordings of what models send in each session, absolute after loading."""
    env_keep: tuple[VariablePattern, ...] = ()
    """Patterns of variables that commands inherit in addition to the usual ones."""
    providers: dict[str, Provider] = {}
    """The providers by name."""
    models: dict[str, Model] = {}
    """What is configured for models, by `provider/model`."""
    families: dict[str, Family] = {}
    """The families by name; they come before the built-in ones."""
    agents: dict[str, Agent] = {}
    """The agents by name."""
    permissions: tuple[Rule, ...] = ()
    """The rules; the last one that matches wins."""
    sandbox: SandboxPolicy = SandboxPolicy()
    """What commands of models may do."""
    mcp: dict[str, McpServer] = {}
    """The MCP servers by name."""
    fetch: Fetch = Fetch()
    """What the tool `fetch` may reach."""
    sourcegraph: Sourcegraph = Sourcegraph()
    """The server of the tool `sourcegraph`."""
    web_search: WebSearch = WebSearch()
    """The engine of the tool `web_search`."""
    lsp: dict[str, LanguageServer] = {}
    """The language servers by name."""
    hooks: tuple[Hook, ...] = ()
    """The hooks in order of execution; those of a trusted project come last."""
