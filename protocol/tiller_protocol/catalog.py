"""What the user can choose from: models with their prices, agents, tools, commands, servers.

Ops list these, log in to servers and to accounts at model providers, and trust a project's
definitions. Prices are in US dollars per million tokens.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from tiller_protocol.doc import doc
from tiller_protocol.ids import IdText
from tiller_protocol.items import Usage
from tiller_protocol.op import Op, Result
from tiller_protocol.settings import SandboxMode

TOKENS_PER_PRICE = 1_000_000

ACCOUNT_DEFAULT: Final = "chatgpt"
"""The name of an account if the user gives none."""

REDIRECT_PATH: Final = "/auth/callback"
"""The path on 127.0.0.1 to which a login sends the browser."""

LOGIN_S_MAX: Final = 600.0
"""How long a person may take to log in."""

ServerState = Literal["disabled", "idle", "starting", "up", "failed", "needs_login", "ended"]

Dollars = Annotated[float, Meta(ge=0)]

Problem = Annotated[str, doc("Why this entry can't be used now; empty if it can be used.")]


class Catalog(Op, frozen=True, tag="catalog"):
    """Lists models, agents, tools, commands and servers. Answered by `CatalogResult`."""

    workspace: Annotated[
        str | None, doc("Include the definitions in this directory. Default: only the user's.")
    ] = None
    start_servers: Annotated[bool, doc("Start the MCP servers that are not up, and wait.")] = False
    ask: Annotated[bool, doc("Ask the providers for their models; may take some seconds.")] = False
    offers: Annotated[bool, doc("Look for providers that could be configured.")] = False
    session_id: Annotated[
        IdText | None, doc("Include the MCP servers that frontends lend to this session.")
    ] = None


class PriceTier(Struct, frozen=True, omit_defaults=True):
    """Prices for requests with long input, in US dollars per million tokens."""

    above: Annotated[
        int, Meta(ge=1), doc("The tier applies if the request has more input tokens than this.")
    ]
    input: Annotated[Dollars, doc("Input tokens.")]
    output: Annotated[Dollars, doc("Output tokens, including reasoning.")]
    cached_input: Annotated[
        Dollars | None, doc("Tokens read from a cache. Default: the price of `input`.")
    ] = None
    cache_write: Annotated[
        Dollars | None, doc("Tokens written to a cache. Default: the price of `input`.")
    ] = None


class Price(Struct, frozen=True, omit_defaults=True):
    """Prices of a model in US dollars per million tokens."""

    input: Annotated[Dollars, doc("Input tokens.")]
    output: Annotated[Dollars, doc("Output tokens, including reasoning.")]
    cached_input: Annotated[
        Dollars | None, doc("Tokens read from a cache. Default: the price of `input`.")
    ] = None
    cache_write: Annotated[
        Dollars | None, doc("Tokens written to a cache. Default: the price of `input`.")
    ] = None
    tiers: tuple[PriceTier, ...] = ()
    """Prices for long input; the highest tier that a request reaches applies to all its tokens."""

    def cost(self, usage: Usage) -> float | None:
        """Cost of a request in US dollars; `None` if its tokens were not counted."""
        if usage == Usage():
            return None
        reached = [tier for tier in self.tiers if usage.input_tokens > tier.above]
        price = max(reached, key=lambda tier: tier.above) if reached else self
        cached = price.input if price.cached_input is None else price.cached_input
        written = price.input if price.cache_write is None else price.cache_write
        plain = usage.input_tokens - usage.cached_input_tokens - usage.cache_write_tokens
        dollars = (
            max(0, plain) * price.input
            + usage.cached_input_tokens * cached
            + usage.cache_write_tokens * written
            + usage.output_tokens * price.output
        )
        return dollars / TOKENS_PER_PRICE


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
    """A provider that could be configured: an account, a well-known one, or a local server."""

    name: Annotated[str, doc("Suggested name for the provider.")]
    api: Annotated[str, doc("The API that the provider speaks.")]
    base_url: Annotated[str, doc("Address of the provider's server.")]
    models: Annotated[tuple[str, ...], doc("The provider's models, the best choice first.")]
    api_key_env: Annotated[
        str, doc("The well-known variable for the key; empty for a server found on this machine.")
    ] = ""
    account: Annotated[str, doc("The account with which the user is logged in, if any.")] = ""


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


class Project(Op, frozen=True, tag="project"):
    """Returns the definitions in a workspace's `.tiller`. Answered by `ProjectResult`.

    With `trust`, the op also changes whether the definitions are trusted.
    """

    workspace: Annotated[str, doc("Absolute path of the directory.")]
    trust: Annotated[
        bool | None,
        doc(
            "True: trust the content that has this `digest`, from the next turn on. False: trust "
            "nothing. Absent: change nothing."
        ),
    ] = None
    digest: Annotated[str, doc("`digest` of the `ProjectResult` that the user agreed to.")] = ""


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


class McpLogin(Op, frozen=True, tag="mcp_login"):
    """Logs in to or out of an MCP server. Answered by `McpLoginResult`, or rejected on failure."""

    server: Annotated[str, doc("Name of the server in the configuration.")]
    action: Annotated[
        Literal["begin", "check", "finish", "cancel", "logout"],
        doc(
            "`begin` returns the address to open. `check` tells whether the login is complete. "
            "`finish` completes it with `redirect`, if the browser can't reach the daemon. "
            "`cancel` gives up. `logout` forgets the login."
        ),
    ] = "begin"
    redirect: Annotated[
        str, doc("For `finish`: the browser's last address, or the `code` in that address.")
    ] = ""


class McpLoginResult(Result, frozen=True, tag="mcp_login"):
    """The state of a login to an MCP server."""

    state: Annotated[
        Literal["waiting", "done", "logged_out"],
        doc("`waiting`: the user has to open `url`. `done`: the login is stored."),
    ]
    url: Annotated[str, doc("The address that the user opens in a browser, while `waiting`.")] = ""


class AccountSummary(Struct, frozen=True, omit_defaults=True):
    """A login of the user at a model provider. No token is ever part of the protocol."""

    name: Annotated[str, doc("Name of the account, and of the provider that uses it.")]
    state: Annotated[
        Literal["signed_in", "signed_out", "ended", "not_permitted"],
        doc(
            "`ended`: the provider has ended the login. `not_permitted`: the login does not permit "
            "the use of the plan. In each state but `signed_in`, the user has to log in."
        ),
    ]
    email: Annotated[str, doc("Address of the account at the provider, if known.")] = ""
    model: Annotated[
        str, doc("The first model of the account's list, as `provider/model`; empty if unknown.")
    ] = ""


class Accounts(Op, frozen=True, tag="accounts"):
    """Lists accounts, or logs in or out. Answered by `AccountsResult`, or rejected on failure.

    The frontend receives the browser's redirect, so the daemon opens no port for a login.
    """

    action: Annotated[
        Literal["list", "begin", "finish", "cancel", "logout"],
        doc(
            "`begin` returns the address to open in a browser. `finish` completes the login with "
            "`redirect`. `cancel` gives up. `logout` revokes the login and forgets its tokens."
        ),
    ] = "list"
    account: Annotated[str, doc("Name of the account. A new name adds an account.")] = (
        ACCOUNT_DEFAULT
    )
    port: Annotated[
        int,
        doc(
            "For `begin`: the port on 127.0.0.1, on the machine of the browser, at which the "
            "frontend expects the redirect to `/auth/callback`."
        ),
    ] = 0
    redirect: Annotated[str, doc("For `finish`: the address to which the browser was sent.")] = ""


class AccountsResult(Result, frozen=True, tag="accounts"):
    """The accounts, and the state of a login."""

    accounts: Annotated[
        tuple[AccountSummary, ...], doc("For `list`: all accounts. Otherwise the account named.")
    ]
    url: Annotated[str, doc("For `begin`: the address that the user opens in a browser.")] = ""
    warning: Annotated[
        str, doc("What the user should know, such as that the provider did not confirm a logout.")
    ] = ""
