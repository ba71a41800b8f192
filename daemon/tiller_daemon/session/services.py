"""The services that the composition root gives every session: log, time, models, tools, settings.

They are small functions, so that tests and simulations can replace each of them.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from msgspec import Struct, field

from tiller_daemon.config import Configuration, LastingRules, McpServer, TrustedProjects
from tiller_daemon.models.base import ModelClient
from tiller_daemon.models.images import AcceptedInput
from tiller_daemon.sandbox.base import CommandSandbox
from tiller_daemon.sandbox.sandboxes import Sandboxes
from tiller_daemon.session.clock import Clock
from tiller_daemon.session.editor_files import EditorFiles
from tiller_daemon.session.hooks import Hooks
from tiller_daemon.session.outbox import Publish
from tiller_daemon.session.turns.idle_histories import IdleHistories
from tiller_daemon.snapshots.snapshots import Snapshots
from tiller_daemon.store.base import Log
from tiller_daemon.tools.base import FileCheck, Tool, ToolResult
from tiller_daemon.turn.context import CostOf
from tiller_daemon.worktrees.worktrees import Worktrees
from tiller_protocol.answers import McpLoginResult
from tiller_protocol.catalog import (
    CommandSummary,
    LanguageServerSummary,
    ModelSummary,
    ProviderOffer,
    ProviderSummary,
    ServerSummary,
)
from tiller_protocol.ops import McpLogin


class ChosenModel(Struct, frozen=True):
    """A model of a configured provider."""

    name: str
    """Provider and model, as the user writes them."""
    provider_model: str
    """The provider's name for the model."""
    client: ModelClient
    """Sends requests to the provider."""
    price: CostOf
    """Returns the cost of usage."""
    context_window: int | None = None
    """The size of the context window in tokens; None if unknown."""
    max_output_tokens: int | None = None
    """Maximum length of a response; None if the provider decides."""
    options: dict[str, Any] = {}
    """The options of provider and model, as fields of the provider's request."""
    variants: dict[str, dict[str, Any]] = {}
    """The options that each variant adds, by its name."""
    efforts: tuple[str, ...] = ()
    """The variants that need no configuration."""
    prompt_header: str = ""
    """Text that the provider requires at the beginning of each system prompt."""
    accepts: AcceptedInput = AcceptedInput()
    """What the model takes besides text."""
    hosted_tools: dict[str, dict[str, Any]] = {}
    """The tools that the provider runs itself, by name, with their fields in requests."""


class ModelSurvey(NamedTuple):
    """The models that can be chosen, and their providers."""

    models: tuple[ModelSummary, ...] = ()
    providers: tuple[ProviderSummary, ...] = ()
    offers: tuple[ProviderOffer, ...] = ()
    """Providers that could be configured."""


class Lent(NamedTuple):
    """A frontend's loan to one session; empty if the frontend takes everything back."""

    servers: Mapping[str, McpServer]
    """MCP servers by name."""
    reads_files: bool
    """Whether the frontend may be asked for files that are not saved."""


class ToolServers(Protocol):
    """The MCP servers, whose tools are among `ToolSources.available`.

    Methods that take a session include the servers that frontends lend to it.
    """

    def lend(self, session_id: str, lender: str, lent: Lent) -> None:
        """Begin, change or renew a loan, or take it back; raises `RejectionError`."""
        ...

    def share(self, owner_id: str, session_id: str) -> None:
        """Let a sub-agent's session use its owner's loans."""
        ...

    def unload(self, session_id: str) -> None:
        """Note that a session leaves memory. Its loans stay."""
        ...

    def end_loans(self, is_in_use: Callable[[str], bool]) -> None:
        """End the loans whose time is over, except loans to sessions in use."""
        ...

    async def ready(self, session_id: str = "", *, every: bool = False) -> None:
        """Start the servers that a turn needs, or `every` server, and wait briefly for them."""
        ...

    def names(self, session_id: str) -> frozenset[str]:
        """Return the names of the servers that can be used."""
        ...

    def commands(self, session_id: str = "") -> tuple[CommandSummary, ...]:
        """Return the prompts of servers, as commands."""
        ...

    async def prompt(self, session_id: str, server: str, name: str, given: str) -> ToolResult:
        """Return a prompt's text for the arguments that a user typed; raises `ToolFailure`."""
        ...

    async def resource(self, session_id: str, server: str, uri: str) -> ToolResult:
        """Return the content of a resource; raises `ToolFailure`.

        `names` returns the possible values of `server`.
        """
        ...

    async def log_in(self, op: McpLogin) -> McpLoginResult:
        """Log in to a server, or out; raises `RejectionError`."""
        ...

    def problems(self, session_id: str = "") -> Mapping[str, str]:
        """Return why servers offer no tools, as clauses by the server's name."""
        ...

    def left_out(self, session_id: str = "") -> Mapping[str, tuple[str, ...]]:
        """Return why tools are left out, as clauses by the server's name."""
        ...

    def summaries(self, session_id: str = "") -> tuple[ServerSummary, ...]:
        """Return the state of every server."""
        ...


class LanguageServers(Protocol):
    """The language servers. With `make_sandbox`, they run in a sandbox; see `lsp.servers`."""

    async def before_change(
        self,
        workspace: Path,
        files: Sequence[Path],
        make_sandbox: Callable[[], Awaitable[CommandSandbox | None]],
    ) -> FileCheck | None:
        """Record the state of files; see `tools.base.Diagnostics`."""
        ...

    async def report(
        self,
        workspace: Path,
        path: Path | None,
        make_sandbox: Callable[[], Awaitable[CommandSandbox | None]],
    ) -> str:
        """Return the errors in a file, or in all files; see `tools.base.Diagnostics`."""
        ...

    def summaries(self) -> tuple[LanguageServerSummary, ...]:
        """Return the state of every server that may be started."""
        ...


class UserSettings(Struct, frozen=True):
    """The user's configuration and its environment."""

    configuration: Callable[[], Configuration]
    """Returns the configuration in use."""
    refresh: Callable[[], Awaitable[None]]
    """Applies the configuration's files if any has changed; otherwise it has no checkpoint."""
    problem: Callable[[], str]
    """Returns sentences that say why the configuration file is not in use; empty if it is."""
    missing_keys: Callable[[], tuple[str, ...]]
    """Returns the variables for providers' keys that the daemon's environment lacks."""
    has_default_model: Callable[[], bool]
    """Returns whether there is a default model, without a search for models."""
    projects: TrustedProjects
    """The projects that the user trusts."""
    lasting_rules: LastingRules
    """The user's lasting rules, by workspace."""
    config_directory: Path
    """The absolute path of the configuration's directory, with links resolved."""
    home: Path
    """The absolute path of the user's home directory, with links resolved."""
    platform: str
    """A value of `sys.platform`."""


class ToolSources(Struct, frozen=True):
    """The sources of a turn's tools, and the checks of their work."""

    available: Callable[[str], Mapping[str, Tool]]
    """Returns by name the tools now available to a session, including MCP servers' tools; for "",
    only the tools that every session has."""
    servers: ToolServers
    """The MCP servers: the daemon's own, and lent ones."""
    language_servers: LanguageServers
    """Report errors that a change to a file caused."""
    hooks: Hooks
    """Runs the user's hooks around calls and turns."""
    editors: EditorFiles
    """Finds unsaved changes to files in editors."""


class CommandSettings(Struct, frozen=True):
    """The environment of commands and other child processes."""

    variables: Callable[[str], Mapping[str, str]]
    """Returns the environment variables for a child process of the call with this id."""
    secrets: Callable[[], tuple[str, ...]]
    """Returns the API keys in use, which are removed from tool output."""
    sandboxes: Sandboxes
    proxies: Mapping[str, str] = field(default_factory=dict[str, str])
    """The daemon's proxy variables with passwords, which tools get but commands never do."""


class SessionFiles(Struct, frozen=True):
    """The files that the daemon keeps for its sessions."""

    spill_directory: Callable[[str], Path]
    """Returns the directory of a session for output that is too long for the model."""
    journals: Path
    """The directory for journals of changes to several files."""
    forget: Callable[[str], None]
    """Removes the files of a deleted session."""
    snapshots: Snapshots | None = None
    """Takes and restores snapshots; None if files can't be reverted."""
    worktrees: Worktrees | None = None
    """Makes worktrees for sessions; None if there are none."""


class Services(Struct, frozen=True):
    """The services that all sessions share."""

    log: Log
    """The durable log of events."""
    publish: Publish
    """Sends encoded events to frontends."""
    clock: Clock
    """The time of day, and a clock that never jumps."""
    random: Callable[[], float]
    """Returns a number in [0, 1)."""
    new_id: Callable[[], str]
    """Returns a new ULID."""
    model: Callable[[str | None], ChosenModel]
    """Finds a model by its full name, or the default model for None; raises `RejectionError`."""
    discover: Callable[[str], Awaitable[None]]
    """Prepares a session's turn: rereads a changed configuration, looks for local models, starts
    servers."""
    user: UserSettings
    """The user's configuration."""
    tools: ToolSources
    """Tools, their servers and hooks."""
    commands: CommandSettings
    """The environment of commands."""
    files: SessionFiles
    """Files that the daemon writes for sessions."""
    histories: IdleHistories = field(default_factory=IdleHistories)
    """A cache of histories between turns."""

    def time(self) -> float:
        """Return Unix seconds."""
        return self.clock.wall()
