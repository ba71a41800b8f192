"""Permission rules: which calls are allowed, which are asked about, which are denied. Pure.

Rules come in one sequence, weakest layer first: built in, user, project, agent, session. The last
rule that matches wins, and what no rule matches is asked about. A command line is judged by each
command in it (`enclosures`): all of them must be allowed, and one denial denies the whole.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

from msgspec import Struct, structs

from tiller_daemon.policy.always import always_patterns
from tiller_daemon.policy.shell.enclosures import judge_line, last_match
from tiller_daemon.sandbox.enclosure import Enclosure
from tiller_daemon.sandbox.scan import PRUNED
from tiller_protocol.settings import Action, Approve, Rule


def _built_in(permission: str, *patterns: str, action: Action) -> tuple[Rule, ...]:
    return tuple(Rule(permission, pattern, action) for pattern in patterns)


PROTECTED_PATH = "protected_path"
"""To write a file that makes another program run something, such as a hook of git."""

_OF_PACKAGES = tuple(f"{place}{name}/*" for name in sorted(PRUNED) for place in ("", "*/"))
"""Files of installed packages, such as the certificates of public authorities: no secrets."""

BUILT_IN: tuple[Rule, ...] = (
    *_built_in("read", "*", action="allow"),
    *_built_in("read", "*.env", "*.env.*", "*.envrc", action="ask"),
    *_built_in("read", "*.env.example", "*.env.sample", "*.env.template", action="allow"),
    *_built_in("read", "*id_rsa*", "*id_ecdsa*", "*id_ed25519*", "*id_dsa*", action="ask"),
    *_built_in("read", "*.pem", "*.key", "*.p12", "*.pfx", "*.kdbx", action="ask"),
    *_built_in("read", "*.netrc", "*.pgpass", "*.git-credentials", action="ask"),
    *_built_in("read", "*.aws/credentials*", "*.kube/config", "*.gnupg/*", action="ask"),
    *_built_in("read", *_OF_PACKAGES, action="allow"),
    *_built_in("write", "*", action="ask"),
    *_built_in("external_directory", "*", action="ask"),
    *_built_in(PROTECTED_PATH, "*", action="ask"),
    *_built_in("doom_loop", "*", action="ask"),
    *_built_in("task", "*", action="allow"),
)
"""The weakest layer. It has no rule for `bash`: a command line that no rule matches is given an
enclosure by what it seems to do, or asked about (`enclosures`)."""


class JudgedRequirement(Protocol):
    """A permission that a call needs: `Requirement` of the tools has this shape."""

    @property
    def permission(self) -> str:
        """What kind of thing the call would do."""
        ...

    @property
    def subjects(self) -> tuple[str, ...]:
        """To what: paths, command lines, addresses."""
        ...

    @property
    def always(self) -> tuple[str, ...]:
        """Patterns to allow when the user answers `always`."""
        ...

    @property
    def kind(self) -> Literal["path", "command", "plain"]:
        """How the subjects are judged."""
        ...

    @property
    def most_unasked(self) -> Enclosure | None:
        """For command lines, the loosest enclosure to be had for what nobody was asked about."""
        ...


class Verdict(Struct, frozen=True):
    """What becomes of a call. `reason` is a sentence for the user and, of a denial, for the model.

    `permission` and `subject` are what decided, `rule` the rule if it was one. An allowed command
    line runs in `enclosure`.
    """

    action: Action
    reason: str
    permission: str = ""
    subject: str = ""
    rule: Rule | None = None
    enclosure: Enclosure = Enclosure.SESSION


def evaluate(permission: str, subject: str, layers: Sequence[Rule]) -> Action:
    """What the rules say of one subject: the last match wins, no match asks."""
    rule = last_match(permission, subject, layers)
    return rule.action if rule else "ask"


def decide(
    requirements: Sequence[JudgedRequirement], rules: Sequence[Rule], approve: Approve
) -> Verdict:
    """What becomes of a call with all its needs; `rules` are the layers above the built-in one.

    Any denial denies, else any question asks, else it is allowed; no need at all is allowed. Then
    `approve` turns a question into consent (`always`) or into a denial (`never`).
    """
    layers = (*BUILT_IN, *rules)
    verdicts = [
        _judge(requirement, subject, layers)
        for requirement in requirements
        for subject in (requirement.subjects or ("",))
    ]
    verdict = _strictest(verdicts)
    if verdict.action != "ask" or approve == "ask":
        return verdict
    if approve == "always":
        reason = f"{verdict.reason} It is allowed because `approve` is `always`."
        return structs.replace(verdict, action="allow", reason=reason)
    reason = f"{verdict.reason} It is denied because `approve` is `never`: nobody is asked."
    return structs.replace(verdict, action="deny", reason=reason)


def rules_for_always(requirements: Sequence[JudgedRequirement]) -> tuple[Rule, ...]:
    """The rules that the answer `always` to a request about `requirements` adds to the session."""
    rules: dict[Rule, None] = {}
    for requirement in requirements:
        for pattern in patterns_for_always(requirement):
            rules[Rule(requirement.permission, pattern, "allow")] = None
    return tuple(rules)


def patterns_for_always(requirement: JudgedRequirement) -> tuple[str, ...]:
    """The patterns to show in a request: what `always` would allow, none when it can't be said."""
    if requirement.kind != "command":
        return requirement.always
    found = (pattern for command in requirement.subjects for pattern in always_patterns(command))
    return tuple(dict.fromkeys(found))


_STRICTNESS: dict[Action, int] = {"allow": 0, "ask": 1, "deny": 2}


def _strictest(verdicts: Iterable[Verdict]) -> Verdict:
    allowed = Verdict("allow", "Nothing in it needs a permission.")
    return max(verdicts, key=lambda verdict: _STRICTNESS[verdict.action], default=allowed)


def _judge(requirement: JudgedRequirement, subject: str, layers: Sequence[Rule]) -> Verdict:
    if requirement.kind == "command":
        line = judge_line(subject, requirement.permission, layers, requirement.most_unasked)
        return Verdict(
            line.action,
            line.reason,
            requirement.permission,
            line.command,
            line.rule,
            line.enclosure,
        )
    rule = last_match(requirement.permission, subject, layers)
    return _verdict(rule.action if rule else "ask", requirement.permission, subject, rule)


def _verdict(action: Action, permission: str, subject: str, rule: Rule | None) -> Verdict:
    what = f"`{permission}` of `{subject}`"
    match action:
        case "allow":
            reason = f"{what} is allowed."
        case "ask":
            reason = f"{what} needs an approval."
        case "deny":
            reason = f"{what} is denied."
    if rule:
        reason += f" The rule is `{rule.permission}` `{rule.pattern}` {rule.action}."
    return Verdict(action, reason, permission, subject, rule)
