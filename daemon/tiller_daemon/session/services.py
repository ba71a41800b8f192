"""What every session is handed by the composition root: the world, behind small functions."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from tiller_daemon.config import Configuration, Projects
from tiller_daemon.models.base import ModelClient
from tiller_daemon.sandbox.confinement import Confiner
from tiller_daemon.session.hooks import Hooks
from tiller_daemon.session.outbox import Publish
from tiller_daemon.snapshots.snapshots import Snapshots
from tiller_daemon.store.base import Log
from tiller_daemon.tools.base import Diagnostics, Tool
from tiller_daemon.turn.context import CostOf, unpriced
from tiller_protocol.answers import LanguageServerSummary, ServerSummary


class ChosenModel(Struct, frozen=True):
    """A model that can be asked: its full name, its provider's name for it, and its client.

    `options` are those of provider and model, `variants` those that a variant adds.
    `images` says whether it can be shown some, `price` what some usage of it costs.
    """

    name: str
    provider_model: str
    client: ModelClient
    context_window: int | None = None
    max_output_tokens: int | None = None
    options: dict[str, Any] = {}
    variants: dict[str, dict[str, Any]] = {}
    images: bool = True
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
class Services:
    """`time` is Unix seconds, `random` in [0, 1), `new_id` a fresh ULID.

    `problem` says why the configuration is not the one in the file, if so. `model` finds a model by
    its full name (`None`: the default) and raises `RejectionError` with what to do; `discover`
    looks for what a turn needs beyond the configuration: a model when none is configured, the tools
    of `servers`. `tools` are those there are now. `variables` makes the environment of a command
    from a call id. `forget` removes the files of a deleted session. `journals` is the directory of
    what is being changed in several files at once. `secrets` are the keys in use: they are taken
    out of what a tool says. `projects` knows which projects are trusted, `confiner` makes the
    sandboxes of commands. `config_directory` and `home` are the user's; both absolute, with links
    followed. `snapshots` None means that files are never put back. `proxies` are the daemon's
    own variables that name them, for tools that ask the web.
    """

    log: Log
    publish: Publish
    time: Callable[[], float]
    random: Callable[[], float]
    new_id: Callable[[], str]
    configuration: Callable[[], Configuration]
    problem: Callable[[], str]
    model: Callable[[str | None], ChosenModel]
    discover: Callable[[], Awaitable[None]]
    tools: Callable[[], Mapping[str, Tool]]
    servers: ToolServers
    language_servers: LanguageServers
    hooks: Hooks
    variables: Callable[[str], Mapping[str, str]]
    spill_directory: Callable[[str], Path]
    journals: Path
    forget: Callable[[str], None]
    secrets: Callable[[], tuple[str, ...]]
    projects: Projects
    confiner: Confiner
    platform: str
    config_directory: Path
    home: Path
    snapshots: Snapshots | None = None
    proxies: Mapping[str, str] = field(default_factory=dict[str, str])
