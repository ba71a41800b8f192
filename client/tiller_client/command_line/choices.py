"""Reads the settings on the command line for a turn or session: model, agent, limits and tools."""

from argparse import Namespace
from typing import Any

from tiller_client.command_line.turn_arguments import NUMBER_MAX
from tiller_client.errors import UsageError
from tiller_protocol.settings import Budget, Settings, TurnOverrides

BUDGET_HINT = (
    "give dollars, such as 2.50, or limits, such as tokens=200000,time_s=600; tokens and steps "
    "must be at least 1, dollars and seconds more than 0"
)


def read_settings(arguments: Namespace) -> Settings:
    """Return the settings of a new session, including agent and model."""
    return Settings(**_chosen(arguments))


def read_overrides(
    arguments: Namespace, output_schema: dict[str, Any] | None = None
) -> TurnOverrides:
    """Return the choices for one turn."""
    return TurnOverrides(**_chosen(arguments), output_schema=output_schema)


def read_budget(text: str) -> Budget:
    """Parse a budget: US dollars, or limits as `name=value`; raises `UsageError`."""
    if "=" not in text:
        return Budget(cost=_positive(text, text))
    limits: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in Budget.__struct_fields__:
            names = ", ".join(Budget.__struct_fields__)
            raise UsageError(f"there is no budget limit {name!r}, only {names}; {BUDGET_HINT}")
        number = _positive(value, text)
        if name in ("steps", "tokens"):
            number = int(number)
        limits[name] = number
    # Less than one step or token was rounded to 0, which is not a usable limit.
    if not all(limits.values()):
        raise UsageError(f"{text!r} is not a budget; {BUDGET_HINT}")
    return Budget(**limits)  # type: ignore[arg-type] - the whole numbers are integers


def read_tools(text: str) -> tuple[str, ...]:
    """Return the names in a comma-separated list of tools; raises `UsageError`."""
    names = tuple(part.strip() for part in text.strip().removesuffix(",").split(","))
    if not all(names):
        raise UsageError(f"{text!r} contains an empty name; give names of tools, such as read,grep")
    return names


def _chosen(arguments: Namespace) -> dict[str, Any]:
    """Return the fields that settings and overrides have in common."""
    return {
        "agent": arguments.agent,
        "model": arguments.model,
        "variant": arguments.variant,
        "approve": arguments.approve,
        "sandbox": arguments.sandbox,
        "max_steps": arguments.max_steps,
        "turn_budget": None if arguments.budget is None else read_budget(arguments.budget),
        "tools": None if arguments.tools is None else read_tools(arguments.tools),
    }


def _positive(text: str, whole: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= NUMBER_MAX:
        raise UsageError(f"{whole!r} is not a budget; {BUDGET_HINT}")
    return number
