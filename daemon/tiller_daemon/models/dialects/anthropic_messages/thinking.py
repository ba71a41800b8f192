"""How a model of the Messages API is asked to think, by its name. Pure.

Claude 4.6 and later decide themselves how much to think, and take an effort; older ones want a
budget of tokens and refuse the other way; newer ones refuse a budget. What else speaks this wire
knows budgets.
Source: https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking
"""

import re
from typing import Any, Literal

ThinkingStyle = Literal["adaptive", "budget", "foreign"]
"""How a model thinks: a Claude by itself, a Claude by a budget, or another model."""

ADAPTIVE_SINCE = (4, 6)

EFFORTS = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
"""Variants, and the effort that each stands for."""

BUDGET_TOKENS = {
    "minimal": 1_024,
    "low": 4_096,
    "medium": 10_000,
    "high": 20_000,
    "xhigh": 31_000,
    "max": 31_000,
}
"""The same variants for models with a budget. Longer ones run into timeouts, says the API."""

BUDGET_TOKENS_MIN = 1_024
"""The smallest budget that the API takes."""

ANSWER_TOKENS_MIN = 1_000
"""What a budget leaves of `max_tokens` at least: it must be smaller."""

NO_THINKING = "none"

_version_of = re.compile(r"claude-(?:[a-z]+-)?(\d+)(?:[-.](\d{1,2})(?!\d))?").search

Thinking = dict[str, Any]
"""The field `thinking` of a request."""


def thinking_style(model: str) -> ThinkingStyle:
    """How `model` thinks; a Claude without a version in its name is taken for a new one."""
    if "claude" not in model.lower():
        return "foreign"
    found = _version_of(model.lower())
    if found is None or (int(found[1]), int(found[2] or 0)) >= ADAPTIVE_SINCE:
        return "adaptive"
    return "budget"


def thinking_field(variant: str, style: ThinkingStyle, max_tokens: int) -> Thinking | None:
    """The field `thinking` for a variant; None if nothing is said of thinking."""
    if variant == NO_THINKING:
        return {"type": "disabled"}
    if style == "adaptive":
        # Without `display` the newer ones think for minutes and show nothing of it.
        return {"type": "adaptive", "display": "summarized"}
    budget = min(BUDGET_TOKENS.get(variant, 0), max_tokens - ANSWER_TOKENS_MIN)
    return {"type": "enabled", "budget_tokens": budget} if budget >= BUDGET_TOKENS_MIN else None


def accepts_earlier_thinking(thinking: Thinking | None, style: ThinkingStyle) -> bool:
    """Whether a request with this field may hold thinking of earlier responses.

    A Claude that does not think refuses it; others want all of it, whatever the request says.
    """
    if thinking is None:
        return style == "foreign"
    return thinking != {"type": "disabled"}
