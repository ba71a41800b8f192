"""Which hosted tools a turn offers: those that are configured for the model, and not excluded.

The configuration is the consent: a provider runs them within a response, so that no call can be
asked about. A rule that denies `hosted_tool`, or an agent's list of tools, excludes them.
"""

from collections.abc import Sequence
from typing import Any

from tiller_daemon.policy.rules import BUILT_IN, evaluate
from tiller_protocol.settings import Rule

PERMISSION = "hosted_tool"


def offered_hosted_tools(
    configured: dict[str, dict[str, Any]], names: Sequence[str] | None, rules: Sequence[Rule]
) -> dict[str, dict[str, Any]]:
    """Return the tools to offer: of those in `names`, or of all, those that no rule denies."""
    every = (*BUILT_IN, *rules)
    return {
        name: fields
        for name, fields in configured.items()
        if (names is None or name in names) and evaluate(PERMISSION, name, every) != "deny"
    }
