"""Chooses the hosted tools that a turn offers: those configured for the model and not excluded.

Configuring a hosted tool counts as the user's consent, because the provider runs it within a
response, where nobody can be asked about a call. A rule that denies `hosted_tool`, or an agent's
list of tools, excludes it.
"""

from collections.abc import Sequence
from typing import Any

from tiller_daemon.policy.rules import BUILT_IN, evaluate
from tiller_daemon.turn.context import Permissions

PERMISSION = "hosted_tool"


def offered_hosted_tools(
    configured: dict[str, dict[str, Any]], names: Sequence[str] | None, permissions: Permissions
) -> dict[str, dict[str, Any]]:
    """Return the tools that the turn may use; with `names`, only tools named there."""
    every = (*BUILT_IN, *permissions.rules)
    return {
        name: fields
        for name, fields in configured.items()
        if all(chosen is None or name in chosen for chosen in (names, permissions.tools))
        and evaluate(PERMISSION, name, every) != "deny"
    }
