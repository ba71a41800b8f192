"""What the composition root gives every session: the world, behind small functions."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from tiller_daemon.config import Configuration, TrustedProjects
from tiller_daemon.models.base import ModelClient
from tiller_daemon.sandbox.confiner import Confiner
from tiller_daemon.session.hooks import Hooks
from tiller_daemon.session.outbox import Publish
from tiller_daemon.snapshots.snapshots import Snapshots
from tiller_daemon.store.base import Log
from tiller_daemon.tools.base import Diagnostics, Tool
from tiller_daemon.turn.context import CostOf, unpriced
from tiller_protocol.answers import LanguageServerSummary, ServerSummary


class ChosenModel(Struct, frozen=True):
    """A model that can be asked."""

    name: str
    """Provider and model, as the user writes it."""
    provider_model: str
    """What the provider calls it."""
    client: ModelClient
    context_window: int | None = None
    """Tokens; None when unknown."""
    max_output_tokens: int | None = None
    options: dict[str, Any] = {}
    """Of provider and model, as fields of the provider's request."""
    variants: dict[str, dict[str, Any]] = {}
    """The options that each variant adds."""
    images: bool = True
    """Whether it takes images."""
    price: CostOf = unpriced


class ToolServers(Protocol):
    """The MCP servers, whose tools are among `Services.tools`."""

    async def ready(self, *, every: bool = False) -> None:
        """Start what a turn needs, with `every` all that are not up, and wait for them a while."""
        ...

    def problems(self) -> Mapping[str, str]:
        """Which have nothing to offer, and why, as clauses."""
        ...

    def summaries(self) -> tuple[ServerSummary, ...]:
        """All of them, and how they are."""
        ...


class LanguageServers(Diagnostics, Protocol):
    """The language servers."""

    def summaries(self) -> tuple[LanguageServerSummary, ...]:
        """All that may be started, and how they are."""
        ...


@dataclass(frozen=True)
class UserSettings:
    """What the user has configured, and where."""

    configuration: Callable[[], Configuration]
    problem: Callable[[], str]
    """Why the configuration in use is not the one in the file; empty when it is."""
    projects: TrustedProjects
    """Which projects the user trusts."""
    config_directory: Path
    """Absolute, links followed."""
    home: Path
    """Absolute, links followed."""
    platform: str
    """As `sys.platform` names it."""


@dataclass(frozen=True)
class ToolSources:
    """Where the tools of a turn come from, and what watches them."""

    available: Callable[[], Mapping[str, Tool]]
    """The tools that there are now, by name; those of MCP servers are among them."""
    servers: ToolServers
    language_servers: LanguageServers
    hooks: Hooks


@dataclass(frozen=True)
class CommandSettings:
    """What commands and other child processes run with."""

    variables: Callable[[str], Mapping[str, str]]
    """The environment of a child process, by the id of the call that starts it."""
    secrets: Callable[[], tuple[str, ...]]
    """The keys in use now; they are removed from what tools output."""
    confiner: Confiner
    proxies: Mapping[str, str] = field(default_factory=dict[str, str])
    """The daemon's own proxy variables, passwords included: for tools, never for commands."""


@dataclass(frozen=True)
class SessionFiles:
    """The files that the daemon keeps for its sessions."""

    spill_directory: Callable[[str], Path]
    """Where output goes that is too long for a model, by session."""
    journals: Path
    """For changes of several files that are under way."""
    forget: Callable[[str], None]
    """Removes the files of a deleted session."""
    snapshots: Snapshots | None = None
    """None: files are never put back."""


@dataclass(frozen=True)
class Services:
    """The world as sessions see it."""

    log: Log
    publish: Publish
    time: Callable[[], float]
    """Unix seconds."""
    random: Callable[[], float]
    """In [0, 1)."""
    new_id: Callable[[], str]
    """A new ULID."""
    model: Callable[[str | None], ChosenModel]
    """Finds a model by its full name, None for the default; raises `RejectionError`."""
    discover: Callable[[], Awaitable[None]]
    """Looks for what a turn needs beyond the configuration: a local model, tools of servers."""
    user: UserSettings
    tools: ToolSources
    commands: CommandSettings
    files: SessionFiles
