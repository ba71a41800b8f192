"""Chooses a turn's model and variant by layers, of which the strongest wins."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from msgspec import structs

from tiller_daemon.config import Agent, Configuration
from tiller_daemon.errors import RejectionError
from tiller_daemon.session.services import ChosenModel, Services
from tiller_daemon.tools.suggestions import did_you_mean
from tiller_daemon.turn.context import TurnContext
from tiller_protocol.events import WarningRaised
from tiller_protocol.settings import Settings, TurnChoices, TurnOverrides
from tiller_protocol.snapshot import Mark, Snapshot

Chosen = TypeVar("Chosen", Settings, TurnOverrides)


class ModelChoice(NamedTuple):
    """The model and the variant that one layer chooses."""

    model: str | None
    """The model; None leaves the choice to weaker layers."""
    variant: str | None
    """The variant; empty for no variant, None to leave the choice to weaker layers."""
    origin: str = ""
    """If the model can't be used, this sentence tells the user where it is named and what to do."""


OF_SESSION = "The session is set to this model; `tiller set SESSION model NAME` chooses another."
OF_AGENT = "The agent's definition names this model."


def layers_of(
    configuration: Configuration,
    agent: Agent,
    settings: Settings,
    overrides: TurnOverrides | None = None,
) -> tuple[ModelChoice, ...]:
    """Return the choices of all layers, the strongest first."""
    owners = ((overrides, ""), (settings, OF_SESSION), (agent, OF_AGENT), (configuration, ""))
    return tuple(ModelChoice(one.model, one.variant, origin) for one, origin in owners if one)


def choose_model(services: Services, layers: Sequence[ModelChoice]) -> tuple[ChosenModel, str]:
    """Return the model and its variant, which may be empty; raises `RejectionError`.

    A variant that the model does not have is refused. But if it comes from a weaker layer than the
    model, it was meant for another model and is ignored.
    """
    depth = next((n for n, layer in enumerate(layers) if layer.model), len(layers))
    chosen = layers[depth] if depth < len(layers) else ModelChoice(None, None)
    try:
        model = services.model(chosen.model)
    except RejectionError as error:
        message = f"{error.message} {chosen.origin}".rstrip()
        raise RejectionError(error.code, message, error.data) from None
    named = ((n, layer.variant) for n, layer in enumerate(layers) if layer.variant is not None)
    n, variant = next(named, (0, ""))
    if has_variant(model, variant):
        return model, variant
    if n <= depth:
        raise RejectionError("invalid_settings", _unknown_variant(model, variant))
    return model, ""


def without_foreign_variant(services: Services, choice: Chosen) -> Chosen:
    """Return `choice` without its variant if its model does not have that variant."""
    if has_variant(services.model(choice.model), choice.variant or ""):
        return choice
    return structs.replace(choice, variant=None)


def continued_choices(
    services: Services, marks: Sequence[Mark], overrides: TurnOverrides
) -> TurnChoices:
    """Return the choices of the latest turn that used a model, with `overrides` on top of them.

    If the model changes, the earlier options are dropped, as they are fields for the old model's
    requests.
    """
    before = next((m.choices for m in reversed(marks) if m.choices is not None), TurnChoices())
    merged = merge_choices(before.overrides, overrides)
    if overrides.model not in (None, before.overrides.model):
        merged = structs.replace(merged, options=overrides.options)
        if overrides.variant is None:
            merged = without_foreign_variant(services, merged)
    return TurnChoices(merged, before.system)


def merge_choices(weaker: Chosen, stronger: Chosen) -> Chosen:
    """Return `weaker` with all fields that `stronger` sets replaced."""
    names = stronger.__struct_fields__
    chosen = {name: value for name in names if (value := getattr(stronger, name)) is not None}
    return structs.replace(weaker, **chosen)


def replaced_model_warnings(
    services: Services, snapshot: Snapshot, context: TurnContext, choices: TurnChoices
) -> tuple[WarningRaised, ...]:
    """Return a warning if a turn uses another model than the turn before it in `snapshot`.

    There is no warning if the turn or the session names the model, or if the agent has changed,
    because then a person has just chosen the model.
    """
    before = next((mark for mark in reversed(snapshot.marks) if mark.step), None)
    if before is None or before.agent != context.agent:
        return ()
    asked, now = before.model, context.model.name
    if asked in ("", now) or choices.overrides.model or snapshot.settings.model:
        return ()
    try:
        services.model(asked)
    except RejectionError as error:
        advice = error.message
    else:
        advice = f"To go back to {asked}: tiller set {snapshot.session_id} model {asked}"
    message = f"This turn uses the model {now}, but the previous turn used {asked}. {advice}"
    return (WarningRaised("model_replaced", message),)


def has_variant(model: ChosenModel, variant: str) -> bool:
    """Whether a model has a variant; every model has the empty variant."""
    return not variant or variant in model.variants or variant in model.efforts


def _unknown_variant(model: ChosenModel, variant: str) -> str:
    known = dict.fromkeys((*model.variants, *model.efforts))
    if not known:
        return f"The model {model.name} has no variants, so it does not have {variant!r}."
    hint = did_you_mean(variant, known)
    names = ", ".join(known)
    return f"The model {model.name} has no variant {variant!r}.{hint} Its variants: {names}."
