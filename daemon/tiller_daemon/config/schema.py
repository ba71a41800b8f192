"""The schema of the configuration: frozen structs that reject unknown keys. No I/O here.

Secrets are never part of the configuration; a provider names the place of its key instead.
"""

import re
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field, structs

from tiller_daemon.config.constraints import (
    VARIABLE,
    Destination,
    Extension,
    FieldError,
    HostLabel,
    ModelName,
    ProviderName,
    ServerName,
    Url,
    VariableName,
    check_exclusive,
    check_options,
    expected,
)
from tiller_daemon.config.hook_schema import Hook, ProjectHook
from tiller_daemon.config.model_schema import (
    KEY_FIELDS,
    Command,
    Family,
    KeyPlaces,
    Model,
    Provider,
    Retry,
    Seconds,
)
from tiller_daemon.config.notify_schema import Notify
from tiller_daemon.config.worktrees import ProjectWorktree, Worktree
from tiller_protocol.fleet import Fleet
from tiller_protocol.settings import Approve, Budget, FollowUps, Rule, SandboxMode, Steps

LogLevel = Literal["debug", "info", "warning", "error"]

DEFAULT_MAX_STEPS = 200
"""How many model requests one turn may make before it ends as `limit_reached`."""

VariablePattern = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_*?\[\]!-]+$")]


class ConfigurationError(Exception):
    """The configuration is invalid; the message names the source, the line and the key.

    The message never contains a value, which may be a secret in the wrong place.
    """


class Agent(Struct, frozen=True, forbid_unknown_fields=True):
    """A prompt, permissions, tools and a model under one name.

    Absent fields are taken from an agent's file or a built-in agent with the same name, if any.
    """

    description: str = ""
    """Tells users and models what the agent is for."""
    prompt_file: str | None = None
    """The file of the prompt; excludes `prompt`."""
    prompt: str | None = None
    """The prompt; after loading also the text of `prompt_file`."""
    model: ModelName | None = None
    """The agent's model; absent means the session's model."""
    variant: str | None = None
    """The variant of the model; absent means the configuration's variant, empty means none."""
    permissions: tuple[Rule, ...] = ()
    """Rules that come after the configuration's rules, and so override them."""
    tools: tuple[str, ...] | None = None
    """Names of the agent's tools, or patterns for MCP servers' tools; absent means all tools."""
    read_only: bool | None = None
    """Whether writing is denied, regardless of the rules; if absent everywhere, it is not."""
    options: dict[str, Any] = {}
    """Extra fields of requests."""
    max_steps: Steps | None = None
    """The most model requests per turn; absent means the configuration's limit."""

    def __post_init__(self) -> None:
        check_options(self.options, "options")


class OAuthClient(Struct, frozen=True, forbid_unknown_fields=True):
    """A client that the user has registered with a server where clients can't register themselves.

    A client without a secret has none of the fields for places of a secret.
    """

    client_id: Annotated[str, Meta(min_length=1)]
    """The name that the server gave the client."""
    client_secret_env: VariableName | None = None
    """The variable that holds the secret."""
    client_secret_command: Command | None = None
    """A command that prints the secret on its first line."""
    client_secret_file: str | None = None
    """A file with the secret on its first line; absolute after loading."""
    client_secret_keyring: str | None = None
    """The keyring entry that holds the secret."""
    client_secret_method: Literal["basic", "post"] | None = None
    """Whether the secret is sent in the header `Authorization` or in the form. Absent means
    whichever the server accepts, and the header if it accepts both."""
    scopes: tuple[Annotated[str, Meta(pattern=r"^[!#-\[\]-~]+$")], ...] = ()
    """The scopes that a login asks for; empty means the scopes that the server names."""
    redirect_port: Annotated[int, Meta(ge=1, le=65_535)] | None = None
    """The registered port of `http://127.0.0.1:PORT/callback`; absent means any free port."""

    def __post_init__(self) -> None:
        check_exclusive(
            self, (f"client_secret_{one.removeprefix('api_key_')}" for one in KEY_FIELDS)
        )

    @property
    def secret_places(self) -> KeyPlaces:
        """The place of the client's secret, as the place of a key."""
        return KeyPlaces(
            api_key_env=self.client_secret_env,
            api_key_command=self.client_secret_command,
            api_key_file=self.client_secret_file,
            api_key_keyring=self.client_secret_keyring,
        )


class McpServer(KeyPlaces, frozen=True, forbid_unknown_fields=True):
    """An MCP server, started by `command` or reached at `url`; only a `url` may need a key."""

    command: Command | None = None
    """The program and its arguments, run without a shell; excludes `url`."""
    cwd: str | None = None
    """The working directory, absolute after loading; absent means the user's home directory."""
    env: dict[str, str] = field(default_factory=dict[str, str])
    """Variables in addition to those that every child process gets."""
    env_vars: tuple[VariableName, ...] = ()
    """Names of variables that are passed from the daemon's environment."""
    url: Url | None = None
    """The address of a streamable HTTP server; excludes `command`."""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    """Extra headers that are sent with each request."""
    api_key_header: str | None = None
    """The header that carries the key; absent means `Authorization: Bearer`."""
    oauth: OAuthClient | None = None
    """The client for logins; absent means that the daemon registers a client."""
    timeout_s: Seconds = 120.0
    """The time limit of a call, not counting the time in which the user is asked something. By
    default, a call may take as long as a command."""
    start_timeout_s: Seconds = 60.0
    """The time limit from the start until the tools are listed. The default is enough to install a
    server from a package registry over a slow connection."""
    enabled: bool = True
    """False turns the server off without removing its table."""

    def __post_init__(self) -> None:
        if not self.command and not self.url:
            raise FieldError("expected `command`, which starts the server, or `url`, its address")
        for one in ("url", "headers", "api_key_header", "oauth", *KEY_FIELDS):
            check_exclusive(self, ("command", one))
        for one in ("cwd", "env", "env_vars"):
            check_exclusive(self, ("url", one))
        check_exclusive(self, (*KEY_FIELDS, "oauth"))
        # Not a type of names: an error would name the key, which may be a secret in a wrong place.
        if not all(re.search(VARIABLE, name) for name in self.env):
            raise FieldError("expected names of environment variables", "env")


class LanguageServer(Struct, frozen=True, forbid_unknown_fields=True):
    """A language server; absent fields are taken from the built-in server with the same name."""

    command: Command | None = None
    """The program and its arguments, run without a shell."""
    files: dict[Extension, str] = {}
    """The protocol's language identifiers, by the ending of file names."""
    root_markers: tuple[str, ...] = ()
    """The server's root is the nearest directory with one of these files, else the workspace."""
    initialization: dict[str, Any] = {}
    """Options that are sent once, with `initialize`."""
    settings: dict[str, Any] = {}
    """Settings that are sent when the server requests them."""
    enabled: bool = True
    """False turns off a built-in server."""

    def __post_init__(self) -> None:
        if self.command and "/" in self.command[0] and not self.command[0].startswith("/"):
            raise FieldError("expected the name of a program, or its absolute path", "command")


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
    """When history is shortened so that requests fit the context window."""

    auto: bool = True
    """Whether history is shortened automatically if the window is nearly full or overflows."""
    full_share: Annotated[float, Meta(gt=0, le=1)] = 0.85
    """The share of the window, without the space for the answer, that counts as nearly full."""
    preserve_tokens: Annotated[int, Meta(ge=0)] = 20_000
    """How much of the newest user input stays verbatim; the newest message always does."""
    prune: bool = True
    """Whether old tool output is no longer sent after the end of a turn."""
    prune_protect_tokens: Annotated[int, Meta(ge=0)] = 40_000
    """How much of the newest tool output is always sent."""
    prune_gain_tokens: Annotated[int, Meta(ge=1)] = 20_000
    """The fewest tokens that pruning must save, because it changes the prefix of requests that
    providers cache."""


class Fetch(Struct, frozen=True, forbid_unknown_fields=True):
    """The addresses that the tool `fetch` may reach.

    With `private_addresses`, it may also reach this machine and other machines that are not on the
    public internet.
    """

    private_addresses: bool = False


class Sourcegraph(KeyPlaces, frozen=True, forbid_unknown_fields=True):
    """The server of the tool `sourcegraph`."""

    endpoint: Url | None = None
    """The address of the server; absent means that the tool does not exist."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(structs.astuple(self)) and not self.endpoint:
            raise FieldError("expected `endpoint`, the address of the server")


class WebSearch(KeyPlaces, frozen=True, forbid_unknown_fields=True):
    """The engine of the tool `web_search`."""

    engine: Literal["searxng", "brave"] | None = None
    """The engine whose API the server speaks; absent means that the tool does not exist."""
    endpoint: Url | None = None
    """The address of the server; absent means Brave's own server."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(structs.astuple(self)) and not self.engine:
            raise FieldError("expected `engine` with the value `searxng` or `brave`")
        if self.engine == "searxng" and not self.endpoint:
            raise FieldError("expected `endpoint`, the address of the SearXNG server")


class Configuration(Struct, frozen=True, forbid_unknown_fields=True):
    """The complete configuration. Models are named `provider/model`."""

    model: ModelName | None = None
    """The model for sessions that choose no model."""
    variant: str | None = None
    """The variant for sessions and agents that choose no variant."""
    small_model: ModelName | None = None
    """The model for small tasks such as titles; absent means the turn's model."""
    compaction_model: ModelName | None = None
    """The model for summaries of long histories; absent means the turn's model."""
    compaction: CompactionPolicy = CompactionPolicy()
    """When history is shortened."""
    approve: Approve = "ask"
    """New sessions' default for approving calls."""
    follow_ups: FollowUps = "one_at_a_time"
    """New sessions' default for how many queued inputs a turn takes at once."""
    max_steps: Steps = DEFAULT_MAX_STEPS
    """New sessions' default for the most model requests per turn."""
    turn_budget: Budget = Budget()
    """New sessions' default for the budget of a turn."""
    session_budget: Budget = Budget()
    """New sessions' default for the budget of the session."""
    resume: Literal["never", "auto"] = "never"
    """Whether turns that were running when the daemon died continue at the next start."""
    log_level: LogLevel = "info"
    """The level of the daemon's own log."""
    retry: Retry = Retry()
    """When and how long failed requests to models are repeated."""
    snapshots: bool = True
    """Whether changes of files are recorded, so that a revert can restore the files."""
    record: str | None = None
    """The directory for recordings of models' responses in each session; absolute after loading."""
    env_keep: tuple[VariablePattern, ...] = ()
    """Patterns of variables that commands inherit in addition to the usual ones."""
    providers: dict[ProviderName, Provider] = {}
    """The providers by name."""
    models: dict[ModelName, Model] = {}
    """The configuration of models, by `provider/model`."""
    families: dict[str, Family] = {}
    """The families of models by name; they come before the built-in families."""
    agents: dict[str, Agent] = {}
    """The agents by name."""
    permissions: tuple[Rule, ...] = ()
    """The rules; the last matching rule wins."""
    sandbox: SandboxPolicy = SandboxPolicy()
    """What models' commands may do."""
    mcp: dict[ServerName, McpServer] = {}
    """The MCP servers by name."""
    fetch: Fetch = Fetch()
    """The addresses that the tool `fetch` may reach."""
    sourcegraph: Sourcegraph = Sourcegraph()
    """The server of the tool `sourcegraph`."""
    web_search: WebSearch = WebSearch()
    """The engine of the tool `web_search`."""
    lsp: dict[str, LanguageServer] = {}
    """The language servers by name."""
    hooks: tuple[Hook, ...] = ()
    """The hooks in order of execution; a trusted project's hooks come last."""
    worktree: Worktree = Worktree()
    """How worktrees are made; a trusted project's settings override the user's."""
    hosts: dict[HostLabel, Destination] = {}
    """Other machines with a daemon of the user, as destinations for ssh by name. Only the command
    line uses them."""
    fleet: Fleet = Fleet()
    """How this machine takes part in a fleet. Only the gateway and the command line use it."""
    notify: tuple[Notify, ...] = ()
    """The rules for messages to a user who looks elsewhere."""
    awake: bool = False
    """Whether the machine is kept from sleeping while a turn works."""


class ProjectConfiguration(Struct, frozen=True, forbid_unknown_fields=True):
    """What a trusted project's file may set.

    It can name no servers, files or commands, except for the commands of hooks, which run in the
    sandbox.
    """

    model: ModelName | None = None
    """Overrides the user's model."""
    small_model: ModelName | None = None
    """Overrides the user's model for small tasks."""
    approve: Annotated[Literal["never"], expected("a project may only set it to `never`")] = "never"
    """Overrides the user's default for approving calls."""
    max_steps: Steps = 1
    """Lowers the user's limit."""
    permissions: tuple[Rule, ...] = ()
    """Denials, which come after the user's rules."""
    hooks: tuple[ProjectHook, ...] = ()
    """Hooks, which come after the user's hooks."""
    worktree: ProjectWorktree = ProjectWorktree()
    """Settings for worktrees, which override the user's."""

    def __post_init__(self) -> None:
        for index, rule in enumerate(self.permissions):
            if rule.action != "deny":
                # Later rules win, so `ask` would override the user's denials.
                problem = (
                    "a project may only use `deny`: other actions could override your own denials"
                )
                raise FieldError(problem, "permissions", index, "action")
