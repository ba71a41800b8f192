"""The session settings that a client offers: agent, model, variant, approvals, sandbox. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from tiller_client.acp.updates import (
    Choice,
    Command,
    CommandHint,
    ConfigOption,
    Mode,
    Modes,
)
from tiller_protocol.answers import CatalogResult
from tiller_protocol.settings import Settings
from tiller_protocol.snapshot import Snapshot

DEFAULT = ":default"
"""The value that unsets a setting; no name of an agent, model or variant begins with a colon."""

DEFAULT_AGENT = "build"
"""The agent of a session whose settings name none."""

MODE_OPTION = "agent"
"""The setting that a client sees also as the session's mode."""

_APPROVE = (
    Choice("ask", "Ask", "Asks you about calls that need approval."),
    Choice("always", "Always allow", "Allows everything that no rule denies."),
    Choice("never", "Never ask", "Denies instead of asking."),
)
_SANDBOX = (
    Choice("read_only", "Read only", "Commands can't write."),
    Choice(
        "workspace_write",
        "Write in the workspace",
        "Commands can write only in the workspace and the directories in `writable`.",
    ),
    Choice("full_access", "Full access", "Commands may do whatever you may do."),
)


class Offer(NamedTuple):
    """The models, agents and commands of a workspace, from the daemon's catalog."""

    catalog: CatalogResult
    agents: tuple[Mode, ...]
    commands: tuple[Command, ...]


def offer_of(catalog: CatalogResult) -> Offer:
    """Convert a catalog to an offer; agents and commands with a problem are left out."""
    agents = tuple(
        Mode(one.name, one.name, one.description or None)
        for one in catalog.agents
        if not one.problem
    )
    commands = tuple(
        Command(one.name, one.description or one.name, CommandHint("arguments"))
        for one in catalog.commands
        if not one.problem
    )
    return Offer(catalog, agents, commands)


def modes_of(offer: Offer, settings: Settings) -> Modes:
    """Convert the agents to modes; an unknown current agent is added."""
    current = settings.agent or DEFAULT_AGENT
    known = {mode.id for mode in offer.agents}
    more = () if current in known else (Mode(current, current),)
    return Modes(current, offer.agents + more)


def options_of(offer: Offer, snapshot: Snapshot) -> tuple[ConfigOption, ...]:
    """The options of a session, with their current values."""
    settings = snapshot.settings
    modes = modes_of(offer, settings)
    agents = [Choice(one.id, one.name, one.description) for one in modes.available_modes]
    model = _model_of(offer, settings)
    models = [Choice(one.name, one.name) for one in offer.catalog.models if not one.problem]
    variants = next((one.variants for one in offer.catalog.models if one.name == model), ())
    options = [
        _option(MODE_OPTION, "Agent", modes.current_mode_id, agents, "mode"),
        _option("model", "Model", model, models, "model"),
        _option("approve", "Approvals", settings.approve or DEFAULT, (_DEFAULT, *_APPROVE)),
        _option("sandbox", "Sandbox", settings.sandbox or DEFAULT, (_DEFAULT, *_SANDBOX)),
    ]
    if variants:
        choices = [_DEFAULT, *(Choice(name, name) for name in variants)]
        variant = _option(
            "variant", "Variant", settings.variant or DEFAULT, choices, "thought_level"
        )
        options.insert(2, variant)
    return tuple(option for option in options if option.options)


def window_of(offer: Offer, settings: Settings) -> int:
    """The context window of the next turn's model, in tokens; 0 if unknown."""
    model = _model_of(offer, settings)
    windows = (one.context_window for one in offer.catalog.models if one.name == model)
    return next(windows, None) or 0


_DEFAULT = Choice(DEFAULT, "As configured")


def _option(
    name: str, label: str, current: str, choices: Iterable[Choice], category: str | None = None
) -> ConfigOption:
    """Make an option; the current value is added to its choices if it is no longer offered."""
    offered = tuple(choices)
    if current and current not in {choice.value for choice in offered}:
        offered += (Choice(current, current),)
    return ConfigOption(name, label, current, offered, category)


def _model_of(offer: Offer, settings: Settings) -> str:
    """The model of the next turn: the session's, its agent's or the default model."""
    agent = settings.agent or DEFAULT_AGENT
    of_agent = next((one.model for one in offer.catalog.agents if one.name == agent), None)
    default = next((one.name for one in offer.catalog.models if one.default), "")
    return settings.model or of_agent or default
