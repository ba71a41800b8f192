"""Permission rules: which calls are allowed, which are asked about, which are denied. Pure.

Rules are one sequence, the weakest layer first: built in, user, project, agent, session, and the
lasting rules of the workspace. The last matching rule wins, but a granted rule (from the answers
`always` and `always_here`) never overrides a denial. If no rule matches, the user is asked. In a
command line, each command is judged (`shell.levels`): all must be allowed, and one denial
denies the line.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

from msgspec import Struct, structs

from tiller_daemon.policy import globs
from tiller_daemon.policy.always import always_network_patterns, always_patterns
from tiller_daemon.policy.secret_files import PUBLIC_FILES, SECRET_FILES
from tiller_daemon.policy.shell.levels import judge_line, last_match, sentence
from tiller_daemon.policy.shell.network import judge_network
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.sandbox.scan import PRUNED
from tiller_protocol.settings import Action, Approve, Rule


def _built_in(permission: str, *patterns: str, action: Action) -> tuple[Rule, ...]:
    return tuple(Rule(permission, pattern, action) for pattern in patterns)


PROTECTED_PATH = "protected_path"
"""The permission to write a file that makes other programs run something, such as a git hook."""

_OF_PACKAGES = tuple(f"{place}{name}/*" for name in sorted(PRUNED) for place in ("", "*/"))
"""Files of installed packages, which hold no secrets, such as certificates of authorities."""

BUILT_IN: tuple[Rule, ...] = (
    *_built_in("read", "*", action="allow"),
    *_built_in("read", *SECRET_FILES, action="ask"),
    *_built_in("read", *PUBLIC_FILES, action="allow"),
    *_built_in("read", *_OF_PACKAGES, action="allow"),
    *_built_in("write", "*", action="ask"),
    *_built_in("external_directory", "*", action="ask"),
    *_built_in(PROTECTED_PATH, "*", action="ask"),
    *_built_in("doom_loop", "*", action="ask"),
    *_built_in("task", "*", action="allow"),
)
"""The weakest layer. It has no rule for `bash`. If no rule matches a command line, its apparent
purpose decides: the line runs in a sandbox, or the user is asked (`shell.levels`)."""


class JudgedRequirement(Protocol):
    """A permission that a call needs, in the shape of `tools.base.Requirement`."""

    @property
    def permission(self) -> str:
        """The kind of action, such as `read` or `bash`."""
        ...

    @property
    def subjects(self) -> tuple[str, ...]:
        """The paths, command lines or addresses in question."""
        ...

    @property
    def always(self) -> tuple[str, ...]:
        """The patterns that the answer `always` would allow."""
        ...

    @property
    def kind(self) -> Literal["path", "command", "network", "plain"]:
        """How the subjects are judged."""
        ...

    @property
    def loosest_unasked(self) -> SandboxLevel | None:
        """For command lines, the loosest level available without a question; may be None."""
        ...


class Verdict(Struct, frozen=True):
    """The decision about a call."""

    action: Action
    """Whether the call is allowed, asked about or denied."""

    reason: str
    """A sentence for the user, and also for the model if the call is denied."""

    permission: str = ""
    """The permission that decided."""

    subject: str = ""
    """The path, command or address that decided."""

    rule: Rule | None = None
    """The rule that decided; None if no rule matched."""

    level: SandboxLevel = SandboxLevel.SESSION
    """The level in which an allowed command line runs."""

    parts: tuple["Verdict", ...] = ()
    """The rules' decision about each subject of the call, before `approve` is applied."""


def evaluate(permission: str, subject: str, layers: Sequence[Rule]) -> Action:
    """Return the action for one subject by the last matching rule; `ask` if no rule matches."""
    rule = last_match(permission, subject, layers)
    return rule.action if rule else "ask"


def denies_all(permission: str, subject: str | None, rules: Sequence[Rule]) -> bool:
    """Whether `rules` deny a permission for `subject`, or for every subject if `subject` is None.

    `rules` are the layers above the built-in one. For None, one rule must deny every subject and
    no later rule may make an exception.
    """
    layers = (*BUILT_IN, *rules)
    if subject is not None:
        return evaluate(permission, subject, layers) == "deny"
    for rule in reversed(layers):
        if rule.granted or not globs.matches(rule.permission, permission):
            continue
        if rule.action != "deny":
            return False
        if not rule.pattern.strip("*"):
            return bool(rule.pattern)
    return False


def decide(
    requirements: Sequence[JudgedRequirement], rules: Sequence[Rule], approve: Approve
) -> Verdict:
    """Decide about a call with all its requirements; `rules` are the layers above the built-in one.

    If any requirement is denied, so is the call; otherwise, if any needs a question, the user is
    asked. A call without requirements is allowed. Finally, `approve` may turn a question into an
    approval (`always`) or a denial (`never`).
    """
    layers = (*BUILT_IN, *rules)
    verdicts = [
        _judge(requirement, subject, layers)
        for requirement in requirements
        for subject in (requirement.subjects or ("",))
    ]
    verdict = structs.replace(_strictest(verdicts), parts=tuple(verdicts))
    if verdict.action != "ask" or approve == "ask":
        return verdict
    if approve == "always":
        reason = f"{verdict.reason} The setting `approve` is `always`, which counts as approval."
        return structs.replace(verdict, action="allow", reason=reason)
    reason = (
        f"{verdict.reason} The setting `approve` is `never`, so no one is asked. This counts as a "
        "denial."
    )
    return structs.replace(verdict, action="deny", reason=reason)


def grants(permission: str, patterns: Iterable[str]) -> tuple[Rule, ...]:
    """Return the rules that the answer `always` makes from the patterns of a request."""
    return tuple(Rule(permission, pattern, "allow", granted=True) for pattern in patterns)


def patterns_for_always(requirement: JudgedRequirement) -> tuple[str, ...]:
    """Return the patterns that the answer `always` would allow; empty if no rule can cover them."""
    match requirement.kind:
        case "command":
            of_line = always_patterns
        case "network":
            of_line = always_network_patterns
        case "path" | "plain":
            return requirement.always
    return tuple(dict.fromkeys(each for line in requirement.subjects for each in of_line(line)))


_STRICTNESS: dict[Action, int] = {"allow": 0, "ask": 1, "deny": 2}


def _strictest(verdicts: Iterable[Verdict]) -> Verdict:
    allowed = Verdict("allow", "Nothing in it needs permission.")
    return max(verdicts, key=lambda verdict: _STRICTNESS[verdict.action], default=allowed)


def _judge(requirement: JudgedRequirement, subject: str, layers: Sequence[Rule]) -> Verdict:
    permission = requirement.permission
    match requirement.kind:
        case "command":
            line = judge_line(subject, permission, layers, requirement.loosest_unasked)
        case "network":
            line = judge_network(subject, layers)
        case "path" | "plain":
            rule = last_match(permission, subject, layers)
            reason = sentence(f"`{permission}` of `{subject}`", rule)
            return Verdict(rule.action if rule else "ask", reason, permission, subject, rule)
    return Verdict(line.action, line.reason, permission, line.command, line.rule, line.level)
