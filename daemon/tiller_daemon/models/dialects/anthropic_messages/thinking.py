"""The request fields for thinking, which depend on the model's name. Pure.

Claude 4.6 and later models decide how much to think, accept an effort and refuse a token budget.
Older Claude models need a budget and refuse an effort. Other models with this API accept budgets.
Source: https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking
"""

import re
from typing import Any, Literal

ThinkingStyle = Literal["adaptive", "budget", "foreign"]
"""How to request thinking: as for a new Claude, an older Claude with a budget, or another model."""

ADAPTIVE_SINCE = (4, 6)

EFFORTS = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
"""The effort for each variant."""

BUDGET_TOKENS = {
    "minimal": 1_024,
    "low": 4_096,
    "medium": 10_000,
    "high": 20_000,
    "xhigh": 31_000,
    "max": 31_000,
}
"""The budget for each variant. The API's documentation says that larger budgets cause timeouts."""

BUDGET_TOKENS_MIN = 1_024
"""The smallest budget that the API accepts."""

ANSWER_TOKENS_MIN = 1_000
"""How many of `max_tokens` a budget leaves for the answer; the API does not allow zero."""

NO_THINKING = "none"

_version_of = re.compile(r"claude-(?:[a-z]+-)?(\d+)(?:[-.](\d{1,2})(?!\d))?").search

Thinking = dict[str, Any]
"""The field `thinking` of a request."""


def thinking_style(model: str) -> ThinkingStyle:
    """Return the style of `model`. A Claude without a version in its name counts as new."""
    if "claude" not in model.lower():
        return "foreign"
    found = _version_of(model.lower())
    if found is None or (int(found[1]), int(found[2] or 0)) >= ADAPTIVE_SINCE:
        return "adaptive"
    return "budget"


def thinking_field(variant: str, style: ThinkingStyle, max_tokens: int) -> Thinking | None:
    """Return the field `thinking` for a variant; None to leave it out."""
    if variant == NO_THINKING:
        return {"type": "disabled"}
    if style == "adaptive":
        # Without `display`, newer models think for minutes without streaming anything.
        return {"type": "adaptive", "display": "summarized"}
    budget = min(BUDGET_TOKENS.get(variant, 0), max_tokens - ANSWER_TOKENS_MIN)
    return {"type": "enabled", "budget_tokens": budget} if budget >= BUDGET_TOKENS_MIN else None


def accepts_earlier_thinking(thinking: Thinking | None, style: ThinkingStyle) -> bool:
    """Whether a request with this field may contain the thinking of earlier responses.

    A Claude refuses earlier thinking unless thinking is enabled. Other models want it unless
    thinking is disabled.
    """
    if thinking is None:
        return style == "foreign"
    return thinking != {"type": "disabled"}
