"""What a session can choose from: models, tools, agents, commands and the servers behind them."""

from typing import Literal

from msgspec import Struct

from tiller_protocol.prices import Price
from tiller_protocol.settings import SandboxMode

ServerState = Literal["disabled", "idle", "starting", "up", "failed", "ended"]


class ModelSummary(Struct, frozen=True, omit_defaults=True):
    """A model that the configuration names, or with `listed` only its provider.

    `problem` says why it can't be used now. `context_window` and `max_output` are in tokens; what
    nobody knows is `None`. `variants` are the names that a turn can choose.
    """

    name: str
    api: str
    default: bool = False
    context_window: int | None = None
    problem: str = ""
    max_output: int | None = None
    price: Price | None = None
    variants: tuple[str, ...] = ()
    listed: bool = False


class ToolSummary(Struct, frozen=True, omit_defaults=True):
    """A tool as the model sees it; `server` names the MCP server that it is of."""

    name: str
    effect: str
    description: str
    server: str = ""


class ServerSummary(Struct, frozen=True, omit_defaults=True):
    """An MCP server, and how it is; `problem` says why it is not `up`.

    `idle` is one that was not needed yet, `ended` one that has gone and is started again for the
    next call, `failed` one that could not be started.
    """

    name: str
    state: ServerState
    tools: int = 0
    problem: str = ""


class LanguageServerSummary(Struct, frozen=True, omit_defaults=True):
    """A language server that may be started; `program` is empty when it is not installed.

    It is `chosen` when the configuration names it, else used if it is the first of its language
    that is there. `running` counts directories; `problem` says why one has ended.
    """

    name: str
    languages: tuple[str, ...]
    program: str = ""
    chosen: bool = False
    running: int = 0
    problem: str = ""


class AgentSummary(Struct, frozen=True, omit_defaults=True):
    """An agent: a prompt, permissions and a model under one name.

    A `read_only` one does nothing that writes; `problem` says why it can't be used.
    """

    name: str
    description: str = ""
    model: str | None = None
    read_only: bool = False
    problem: str = ""


class CommandSummary(Struct, frozen=True, omit_defaults=True):
    """A custom command, typed as `/name`; `problem` says why it can't be used."""

    name: str
    description: str = ""
    agent: str | None = None
    model: str | None = None
    problem: str = ""


class SandboxSummary(Struct, frozen=True, omit_defaults=True):
    """What commands may do unless a session says otherwise, and by what they are held to it.

    With a `problem` by nothing: then each command is asked about. `limits` is what is less than it
    should be, and `instead` why nothing better works here.
    """

    mode: SandboxMode
    network: bool = False
    name: str = ""
    problem: str = ""
    limits: str = ""
    instead: str = ""


class HookSummary(Struct, frozen=True, omit_defaults=True):
    """A hook: a `command` that runs at a moment of a turn; `tool` is a pattern of tools' names."""

    on: str
    command: str
    tool: str = "*"
    name: str = ""
