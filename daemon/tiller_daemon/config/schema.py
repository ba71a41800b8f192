"""What may be configured: frozen structs that refuse what they do not know. No I/O here.

Secrets are never part of it: a provider names the place that its key is in.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from tiller_protocol.prices import Price
from tiller_protocol.settings import Approve, Budget, FollowUps, Rule, SandboxMode, Steps

Api = Literal["openai_responses", "openai_chat", "anthropic_messages", "scripted"]
LogLevel = Literal["debug", "info", "warning", "error"]

DEFAULT_MAX_STEPS = 200
"""Model requests in one turn before it ends as `limit_reached`."""

CONNECT_S = 10.0
FIRST_BYTE_S = 600.0
"""As long as the libraries of OpenAI and Anthropic wait for an answer that is thought about."""

IDLE_S = 300.0

MCP_CALL_S = 120.0
"""As long as a command may take."""

MCP_START_S = 60.0
"""The first start of a server from a package registry takes so long on a slow line."""

HOOK_S = 10.0
"""How long a hook may take: a turn waits for most of them."""

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Command = Annotated[tuple[str, ...], Meta(min_length=1)]
VariablePattern = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_*?\[\]!-]+$")]
Tokens = Annotated[int, Meta(ge=1, le=2**31)]

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
    """A configuration that can't be used; the message names the source, the key and the line.

    It never holds a value: a value may be a secret that was put in the wrong place.
    """

    def __init__(self, code: ConfigurationCode, message: str) -> None:
        super().__init__(message)
        self.code: ConfigurationCode = code
        self.message = message


class Timeouts(Struct, frozen=True, forbid_unknown_fields=True):
    """How long a provider may be silent, in seconds.

    `connect_s` is for reaching it, proxy and encryption included; `first_byte_s` for the time from
    a request to the first piece of its answer: models think, and servers read long histories;
    `idle_s` for the time between two pieces.
    """

    connect_s: Seconds = CONNECT_S
    first_byte_s: Seconds = FIRST_BYTE_S
    idle_s: Seconds = IDLE_S


class Provider(Struct, frozen=True, forbid_unknown_fields=True):
    """One way to reach models.

    `base_url` None means the API's own. The key is in the variable `api_key_env`, or it is the
    first line that `api_key_command` prints or that is in `api_key_file`, or an entry of the
    keyring; it is never in the configuration. It is sent in `api_key_header`, None meaning the
    API's own. `headers` and `query` are sent with each request. `proxy` None means that of the
    environment, "" none. Certificates in `ca_file` are trusted beside the system's.
    `scripts` is the directory that a `scripted` provider plays from. `record` is a file to
    which a `scripted` provider appends each request as a line of JSON. Both are absolute after
    loading. `options` are fields of the provider's own request, for all its models.
    """

    api: Api
    base_url: str | None = None
    api_key_env: str | None = None
    api_key_command: Command | None = None
    api_key_file: str | None = None
    api_key_keyring: str | None = None
    api_key_header: str | None = None
    headers: dict[str, str] = {}
    query: dict[str, str] = {}
    timeouts: Timeouts = Timeouts()
    proxy: str | None = None
    ca_file: str | None = None
    scripts: str | None = None
    record: str | None = None
    options: dict[str, Any] = {}


class Model(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of one model in tokens, and its prices; they override what the daemon knows about it.

    `options` are fields of the provider's request, `variants` more of them under a name. With
    `images` false it is sent none.
    """

    context_window: Tokens | None = None
    max_output: Tokens | None = None
    price: Price | None = None
    images: bool = True
    options: dict[str, Any] = {}
    variants: dict[str, dict[str, Any]] = {}


class Agent(Struct, frozen=True, forbid_unknown_fields=True):
    """A prompt, permissions, tools and a model under one name.

    After loading `prompt` holds the text, also when it came from `prompt_file`. `tools` None means
    all of them. A `read_only` agent may do nothing that writes, whatever the rules say.
    """

    description: str = ""
    prompt_file: str | None = None
    prompt: str | None = None
    model: str | None = None
    permissions: tuple[Rule, ...] = ()
    tools: tuple[str, ...] | None = None
    read_only: bool | None = None
    options: dict[str, Any] = {}


class McpServer(Struct, frozen=True, forbid_unknown_fields=True):
    """An MCP server, whose tools models are offered: started by `command`, or reached at `url`.

    `command` is run without a shell, in `cwd` (absolute after loading; None is the user's home).
    Of the daemon's environment it gets what a command gets and the variables in `env_vars`, and
    beside that what `env` says. With a `url` it gets `headers` with each
    request, and a key as a provider does. `timeout_s` is for a call, `start_timeout_s` for the
    time until its tools are known.
    """

    command: Command | None = None
    cwd: str | None = None
    env: dict[str, str] = {}
    env_vars: tuple[str, ...] = ()
    url: str | None = None
    headers: dict[str, str] = {}
    api_key_env: str | None = None
    api_key_command: Command | None = None
    api_key_file: str | None = None
    api_key_keyring: str | None = None
    api_key_header: str | None = None
    timeout_s: Seconds = MCP_CALL_S
    start_timeout_s: Seconds = MCP_START_S
    enabled: bool = True


class LanguageServer(Struct, frozen=True, forbid_unknown_fields=True):
    """A language server, which finds errors in files; what is left out is that of the known one.

    `command` is run without a shell. `files` says which files it is for: how their names end, and
    what the protocol calls their language. It is started for the nearest directory that holds one
    of `root_markers`, else for the workspace. It is given `initialization` once, and `settings`
    when it asks.
    """

    command: Command | None = None
    files: dict[str, str] = {}
    root_markers: tuple[str, ...] = ()
    initialization: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    enabled: bool = True


class SandboxPolicy(Struct, frozen=True, forbid_unknown_fields=True):
    """What commands may do to the machine.

    `writable` are directories beside the workspace that `workspace_write` covers, `readable` what
    may be read although it is hidden from commands; both absolute after loading. `network` lets
    commands reach others.
    """

    mode: SandboxMode = "workspace_write"
    network: bool = False
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()


class Fetch(Struct, frozen=True, forbid_unknown_fields=True):
    """What the tool `fetch` may ask.

    With `private_addresses` also machines that are not on the public internet: this one, and those
    in its network.
    """

    private_addresses: bool = False


class Sourcegraph(Struct, frozen=True, forbid_unknown_fields=True):
    """The server that the tool `sourcegraph` searches on, and its key, if it wants one.

    Without `endpoint` there is no such tool. The key is found as a provider's.
    """

    endpoint: str | None = None
    api_key_env: str | None = None
    api_key_command: Command | None = None
    api_key_file: str | None = None
    api_key_keyring: str | None = None


HookMoment = Literal["turn_start", "turn_end", "tool_before", "tool_after", "request"]


class Hook(Struct, frozen=True, forbid_unknown_fields=True):
    """A command that is told of a moment of a turn, and at some may say no.

    `command` is text for the shell, or words that are run without one, in the workspace. `tool` is
    a pattern for the names of tools. With `on_failure` of `deny` a hook that fails says no.
    """

    on: HookMoment
    command: str | Command
    name: str = ""
    tool: str = "*"
    timeout_s: Seconds = HOOK_S
    on_failure: Literal["go_on", "deny"] = "go_on"


class ProjectHook(Hook, frozen=True, forbid_unknown_fields=True):
    """A hook that a trusted project brings: it runs in the sandbox of the project's commands."""


class Configuration(Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that can be configured. Models are named `provider/model`.

    `approve`, `follow_ups` and `max_steps` are what a session has that chose nothing else. `resume`
    says what becomes of a turn that was running when the daemon died. With `snapshots` a revert
    puts files back as well. `record` is a directory that gets a recording of what models say in
    each session; absolute after loading. `env_keep` are patterns for names of variables that
    commands get beside the usual ones.
    """

    model: str | None = None
    small_model: str | None = None
    compaction_model: str | None = None
    approve: Approve = "ask"
    follow_ups: FollowUps = "one_at_a_time"
    max_steps: Steps = DEFAULT_MAX_STEPS
    turn_budget: Budget = Budget()
    session_budget: Budget = Budget()
    resume: Literal["never", "auto"] = "never"
    log_level: LogLevel = "info"
    snapshots: bool = True
    record: str | None = None
    env_keep: tuple[VariablePattern, ...] = ()
    providers: dict[str, Provider] = {}
    models: dict[str, Model] = {}
    agents: dict[str, Agent] = {}
    permissions: tuple[Rule, ...] = ()
    sandbox: SandboxPolicy = SandboxPolicy()
    mcp: dict[str, McpServer] = {}
    fetch: Fetch = Fetch()
    sourcegraph: Sourcegraph = Sourcegraph()
    lsp: dict[str, LanguageServer] = {}
    hooks: tuple[Hook, ...] = ()
