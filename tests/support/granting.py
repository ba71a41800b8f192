"""Computes the rules that the answer `always` grants."""

from collections.abc import Sequence

from tiller_daemon.policy.rules import JudgedRequirement, grants, patterns_for_always
from tiller_protocol.settings import Rule


def granted_by_always(requirements: Sequence[JudgedRequirement]) -> tuple[Rule, ...]:
    """Return the rules that the answer `always` to each of `requirements` grants."""
    return tuple(
        rule
        for requirement in requirements
        for rule in grants(requirement.permission, patterns_for_always(requirement))
    )
