"""States why a call may run, from the rules' decisions and the user's answers, for events. Pure."""

from collections.abc import Collection

from tiller_daemon.config import LastingRule
from tiller_daemon.policy.rules import Verdict
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.session.requests import Reply
from tiller_protocol.items import Allowed
from tiller_protocol.settings import Rule

REASONS_MAX = 20
"""How many reasons a call keeps. A patch of many files needs a permission for each, but a few rules
decide about all of them, and each rule is stated once."""


def reasons(
    verdict: Verdict, granted: Collection[Rule], answer: Reply | None = None
) -> tuple[Allowed, ...]:
    """Return why a call with this verdict may run, one reason for each way it was allowed.

    `granted` are the rules of the session. `answer` is how the user answered, if they were asked.
    """
    found: dict[tuple[object, ...], Allowed] = {}
    for part in verdict.parts:
        one = _reason(part, granted, answer)
        found.setdefault((one.by, one.permission, one.rule), one)
    return tuple(found.values())[:REASONS_MAX]


def by_answer(permission: str, subject: str, answer: Reply) -> Allowed:
    """Return the reason that an answer to a request gives."""
    if not answer.by:
        reason = "It is allowed by a rule that was added after you were asked."
    else:
        how_long = {
            "always": " for the rest of the session",
            "always_here": " for good in this directory",
        }.get(answer.resolution, "")
        reason = f"You allowed it{how_long}. The answer came from {answer.by}."
    return Allowed("user", reason, permission, subject)


def by_setting(verdict: Verdict) -> Allowed:
    """Return the reason for a call that is allowed by the setting `approve` instead of the user."""
    reason = f"{verdict.reason} The setting `approve` is `always`, which counts as approval."
    return Allowed("approve", reason, verdict.permission, verdict.subject)


def _reason(part: Verdict, granted: Collection[Rule], answer: Reply | None) -> Allowed:
    if part.action != "allow":
        if answer is None:
            return by_setting(part)
        return by_answer(part.permission, part.subject, answer)
    if isinstance(part.rule, LastingRule):
        shown = Rule(part.rule.permission, part.rule.pattern, part.rule.action)
        return Allowed("lasting", part.reason, part.permission, part.subject, shown)
    if part.rule:
        by = "grant" if part.rule in granted else "rule"
    else:
        by = "reading" if part.level is SandboxLevel.READ_ONLY else "sandbox"
    return Allowed(by, part.reason, part.permission, part.subject, part.rule)
