"""Permission rules: which calls are allowed, which are asked about, which are denied. Pure.

Rules come in one sequence, weakest layer first: built in, user, project, agent, session. The last
rule that matches wins, and what no rule matches is asked about. A command line is judged by each
command in it (`shell_commands`): all of them must be allowed, and one denial denies the whole.
"""

import fnmatch
import re
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

from msgspec import Struct, structs

from tiller_daemon.policy import globs
from tiller_daemon.policy.shell_commands import Command, Parsed, always_patterns, parse_command
from tiller_protocol.settings import Action, Approve, Rule


def _built_in(permission: str, *patterns: str, action: Action) -> tuple[Rule, ...]:
    return tuple(Rule(permission, pattern, action) for pattern in patterns)


SANDBOXED = "sandboxed"
"""To run in a sandbox without a question, as far as no rule says otherwise about the command."""

UNSANDBOXED = "unsandboxed"
"""To run without a sandbox: by a rule, or where there is none, after a question."""

PROTECTED_PATH = "protected_path"
"""To write a file that makes another program run something, such as a hook of git."""

BUILT_IN: tuple[Rule, ...] = (
    *_built_in("read", "*", action="allow"),
    *_built_in("read", "*.env", "*.env.*", "*.envrc", action="ask"),
    *_built_in("read", "*.env.example", "*.env.sample", "*.env.template", action="allow"),
    *_built_in("read", "*id_rsa*", "*id_ecdsa*", "*id_ed25519*", "*id_dsa*", action="ask"),
    *_built_in("read", "*.pem", "*.key", "*.p12", "*.pfx", "*.kdbx", action="ask"),
    *_built_in("read", "*.netrc", "*.pgpass", "*.git-credentials", action="ask"),
    *_built_in("read", "*.aws/credentials*", "*.kube/config", "*.gnupg/*", action="ask"),
    *_built_in("write", "*", action="ask"),
    *_built_in("external_directory", "*", action="ask"),
    *_built_in("repository_programs", "*", action="ask"),
    *_built_in(PROTECTED_PATH, "*", action="ask"),
    *_built_in("doom_loop", "*", action="ask"),
    *_built_in("task", "*", action="allow"),
)
"""The weakest layer. It has no rule for `bash`: a command that no rule matches and that provably
only reads is allowed, and so is one that builds or tests where a sandbox holds it to the workspace;
any other is asked about."""


class Needed(Protocol):
    """A permission that a call needs: `Need` of the tools has this shape."""

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
    def place(self) -> str:
        """Where command lines are run."""
        ...

    @property
    def held(self) -> bool:
        """Whether a sandbox lets them write in the workspace only, and without a network."""
        ...


class Verdict(Struct, frozen=True):
    """What becomes of a call. `reason` is a sentence for the user and, of a denial, for the model.

    `permission` and `subject` are what decided, `rule` the rule if it was one.
    """

    action: Action
    reason: str
    permission: str = ""
    subject: str = ""
    rule: Rule | None = None


def evaluate(permission: str, subject: str, layers: Sequence[Rule]) -> Action:
    """What the rules say of one subject: the last match wins, no match asks."""
    rule = last_match(permission, subject, layers)
    return rule.action if rule else "ask"


def last_match(permission: str, subject: str, layers: Sequence[Rule]) -> Rule | None:
    """The rule that decides; the permission of a rule may be a glob as well."""
    for rule in reversed(layers):
        if globs.matches(rule.permission, permission) and globs.matches(rule.pattern, subject):
            return rule
    return None


def decide(needs: Sequence[Needed], rules: Sequence[Rule], approve: Approve) -> Verdict:
    """What becomes of a call with all its needs; `rules` are the layers above the built-in one.

    Any denial denies, else any question asks, else it is allowed; no need at all is allowed. Then
    `approve` turns a question into consent (`always`) or into a denial (`never`).
    """
    layers = (*BUILT_IN, *rules)
    verdicts = [
        _judge(need, subject, layers) for need in needs for subject in (need.subjects or ("",))
    ]
    verdict = _strictest(verdicts)
    if verdict.action != "ask" or approve == "ask":
        return verdict
    if approve == "always":
        reason = f"{verdict.reason} It is allowed because `approve` is `always`."
        return structs.replace(verdict, action="allow", reason=reason)
    reason = f"{verdict.reason} It is denied because `approve` is `never`: nobody is asked."
    return structs.replace(verdict, action="deny", reason=reason)


def runs_unsandboxed(command: str, rules: Sequence[Rule]) -> bool:
    """Whether rules for `UNSANDBOXED` by that very name let a command leave its sandbox.

    All of it but for parts that only read. A rule for every permission does not: who allows a
    command does not mean that.
    """
    named = [rule for rule in rules if rule.permission == UNSANDBOXED]
    parsed = parse_command(command)
    acting = [part.text for part in parsed.commands if not part.only_reads]
    matches = [last_match(UNSANDBOXED, text, named) for text in acting]
    named_all = all(rule is not None and rule.action == "allow" for rule in matches)
    return parsed.certain and bool(matches) and named_all


def rules_of_always(needs: Sequence[Needed]) -> tuple[Rule, ...]:
    """The rules that the answer `always` to a request about `needs` adds to the session."""
    rules: dict[Rule, None] = {}
    for need in needs:
        for pattern in patterns_of_always(need):
            rules[Rule(need.permission, pattern, "allow")] = None
    return tuple(rules)


def patterns_of_always(need: Needed) -> tuple[str, ...]:
    """The patterns to show in a request: what `always` would allow, none when it can't be said."""
    if need.kind != "command":
        return need.always
    found = (pattern for command in need.subjects for pattern in always_patterns(command))
    return tuple(dict.fromkeys(found))


_SECRET_BY_CUSTOM = (
    *(".env", ".env.local", ".envrc", "id_rsa", "id_ed25519", "id_ecdsa", ".netrc", ".pgpass"),
    *("server.pem", "private.key", "store.p12", "store.pfx", ".git-credentials"),
)
"""Names of files that a pattern may be meant for."""

_SHELL_SIGNS = re.compile(r"[|&;<>()$`\n]")
"""What a pattern holds that is about more than one command."""

_STRICTNESS: dict[Action, int] = {"allow": 0, "ask": 1, "deny": 2}


def _strictest(verdicts: Iterable[Verdict]) -> Verdict:
    allowed = Verdict("allow", "Nothing in it needs a permission.")
    return max(verdicts, key=lambda verdict: _STRICTNESS[verdict.action], default=allowed)


def _judge(need: Needed, subject: str, layers: Sequence[Rule]) -> Verdict:
    if need.kind == "command":
        return _judge_command(need, subject, layers)
    rule = last_match(need.permission, subject, layers)
    return _verdict(rule.action if rule else "ask", need.permission, subject, rule)


def _verdict(
    action: Action, permission: str, subject: str, rule: Rule | None, because: str = ""
) -> Verdict:
    what = f"`{permission}` of `{subject}`"
    match action:
        case "allow":
            reason = f"{what} is allowed."
        case "ask":
            reason = f"{what} needs an approval."
        case "deny":
            reason = f"{what} is denied."
    if because:
        reason += f" {because}"
    elif rule:
        reason += f" The rule is `{rule.permission}` `{rule.pattern}` {rule.action}."
    return Verdict(action, reason, permission, subject, rule)


def _judge_command(need: Needed, text: str, layers: Sequence[Rule]) -> Verdict:
    """Each command by itself; the whole text for rules that speak of what stands between them."""
    permission = need.permission
    parsed = parse_command(text, need.place)
    held = need.held and not runs_unsandboxed(text, layers)
    verdicts = [_judge_part(permission, command, layers, held=held) for command in parsed.commands]
    named = [rule for rule in layers if rule.pattern != "*"]
    verdicts += [_judge_around(permission, wrapper, named) for wrapper in parsed.wrappers]
    syntactic = [rule for rule in named if _SHELL_SIGNS.search(rule.pattern)]
    verdicts.append(_judge_around(permission, text, syntactic))
    if not parsed.certain:
        verdicts.append(_judge_uncertain(permission, text, parsed, layers, held=held))
    return _strictest(verdicts)


def _judge_part(
    permission: str, command: Command, layers: Sequence[Rule], *, held: bool
) -> Verdict:
    for spelling in (command.text, *command.other_spellings):
        rule = last_match(permission, spelling, layers)
        if rule and rule.action == "deny":
            return _verdict("deny", permission, command.text, rule)
    rule = last_match(permission, command.text, layers)
    if rule:
        return _verdict(rule.action, permission, command.text, rule)
    if not command.only_reads:
        return _judge_acting(permission, command, layers, held=held)
    for word in command.shows:
        if any(evaluate("read", name, layers) != "allow" for name in _names_of(word)):
            because = f"It may read `{word}`, and reading that is not simply allowed."
            return _verdict("ask", permission, command.text, None, because)
    return _verdict("allow", permission, command.text, None, "It only reads.")


def _judge_acting(
    permission: str, command: Command, layers: Sequence[Rule], *, held: bool
) -> Verdict:
    """A command that no rule matches and that does more than read: what matters is who holds it."""
    rule = last_match(SANDBOXED, command.text, layers) if held else None
    if rule:
        return _verdict(rule.action, permission, command.text, rule)
    if held and command.works:
        because = "It builds or tests, and the sandbox holds it to the workspace."
        return _verdict("allow", permission, command.text, None, because)
    return _verdict("ask", permission, command.text, None)


def _names_of(word: str) -> list[str]:
    """What a word may name: itself, and what is secret by custom if its pattern hints at that."""
    pattern = word.rpartition("/")[2]
    if not pattern.strip("*?.") or not re.search(r"[*?[]", pattern):
        return [word]
    return [word, *(name for name in _SECRET_BY_CUSTOM if fnmatch.fnmatchcase(name, pattern))]


def _judge_around(permission: str, text: str, layers: Sequence[Rule]) -> Verdict:
    """The text around commands that are judged by themselves: rules may only tighten there."""
    rule = last_match(permission, text, layers)
    return _verdict(rule.action if rule else "allow", permission, text, rule)


def _judge_uncertain(
    permission: str, text: str, parsed: Parsed, layers: Sequence[Rule], *, held: bool
) -> Verdict:
    """A text that can't be taken apart for sure.

    A denial of the whole denies. Only a rule for everything allows it, and only when no later rule
    is stricter about something: what that rule is about may be in there unseen.
    """
    rule = last_match(permission, text, layers)
    if rule and rule.action == "deny":
        return _verdict("deny", permission, text, rule)
    decisive = _decisive(permission, layers)
    if decisive is None and held:
        decisive = _decisive(SANDBOXED, layers)
    if decisive and decisive.action == "allow":
        return _verdict("allow", permission, text, decisive)
    because = f"It can't be judged by its parts: {parsed.doubt}."
    return _verdict("ask", permission, text, None, because)


def _decisive(permission: str, layers: Sequence[Rule]) -> Rule | None:
    """The last rule for everything, or a later one that is stricter about something."""
    about = [one for one in layers if globs.matches(one.permission, permission)]
    return next(
        (one for one in reversed(about) if one.pattern == "*" or one.action != "allow"), None
    )
