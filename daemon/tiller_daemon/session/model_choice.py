"""Which model a turn asks, and in which variant: several layers may choose, the strongest wins."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import structs

from tiller_daemon.config import Agent, Configuration
from tiller_daemon.errors import RejectionError
from tiller_daemon.session.services import ChosenModel, Services
from tiller_daemon.tools.suggestions import did_you_mean
from tiller_protocol.settings import Settings, TurnOverrides


class ModelChoice(NamedTuple):
    """What one layer chooses."""

    model: str | None
    """None leaves it to weaker layers."""
    variant: str | None
    """None leaves it to weaker layers; empty means none."""


def layers_of(
    configuration: Configuration,
    agent: Agent,
    settings: Settings,
    overrides: TurnOverrides | None = None,
) -> tuple[ModelChoice, ...]:
    """Return the layers, the strongest first."""
    owners = (overrides, settings, agent, configuration)
    return tuple(ModelChoice(one.model, one.variant) for one in owners if one)


def choose_model(services: Services, layers: Sequence[ModelChoice]) -> tuple[ChosenModel, str]:
    """Return the model and its variant, which may be empty; raises `RejectionError`.

    A variant that was chosen for another model, in a weaker layer than this one, does not apply to
    a model that does not have it. Any other unknown variant is refused.
    """
    depth = next((n for n, layer in enumerate(layers) if layer.model), len(layers))
    model = services.model(layers[depth].model if depth < len(layers) else None)
    for n, layer in enumerate(layers):
        if layer.variant is None:
            continue
        if has_variant(model, layer.variant):
            return model, layer.variant
        if n <= depth:
            raise RejectionError("invalid_settings", _unknown_variant(model, layer.variant))
        return model, ""
    return model, ""


def without_foreign_variant(services: Services, settings: Settings) -> Settings:
    """Return settings whose variant is gone if their model does not have it."""
    if has_variant(services.model(settings.model), settings.variant or ""):
        return settings
    return structs.replace(settings, variant=None)


def has_variant(model: ChosenModel, variant: str) -> bool:
    """Whether a model has a variant; every one has none, the empty one."""
    known = not variant or variant in model.variants
    return known or model.efforts is None or variant in model.efforts


def _unknown_variant(model: ChosenModel, variant: str) -> str:
    known = dict.fromkeys((*model.variants, *(model.efforts or ())))
    names = ", ".join(known) or "none"
    hint = did_you_mean(variant, known)
    return f"The model {model.name} has no variant {variant!r}.{hint} Its variants: {names}."
