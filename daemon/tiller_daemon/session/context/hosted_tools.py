"""Which hosted tools a turn offers: those that are configured for the model, and not excluded.

The configuration is the consent: a provider runs them within a response, so that no call can be
asked about. A rule that denies `hosted_tool`, or an agent's list of tools, excludes them.
"""

from collections.abc import Sequence
from typing import Any

from tiller_daemon.policy.rules import BUILT_IN, evaluate
from tiller_daemon.turn.context import Permissions

PERMISSION = "hosted_tool"


def offered_hosted_tools(
    configured: dict[str, dict[str, Any]], names: Sequence[str] | None, permissions: Permissions
) -> dict[str, dict[str, Any]]:
    """Return the tools to offer: of those in `names`, or of all, those that the turn may use."""
    every = (*BUILT_IN, *permissions.rules)
    return {
        name: fields
        for name, fields in configured.items()
        if all(chosen is None or name in chosen for chosen in (names, permissions.tools))
        and evaluate(PERMISSION, name, every) != "deny"
    }
