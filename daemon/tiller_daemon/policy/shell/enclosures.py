"""How a command line is given an enclosure, or a question. Pure.

A verdict chooses the enclosure, and the enclosure keeps the promise. What a line seems to do says
where it has to run; rules and people say how far it may go. The line runs unasked where both meet,
else somebody is asked.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tiller_daemon.policy import globs
from tiller_daemon.policy.shell.command_line import CommandLine, SimpleCommand, parse
from tiller_daemon.policy.shell.purposes import Purpose, purpose_of
from tiller_daemon.sandbox.enclosure import Enclosure
from tiller_protocol.settings import Action, Rule

SANDBOXED: Final = "sandboxed"
"""The permission to run in the build enclosure without a question."""

UNSANDBOXED: Final = "unsandboxed"
"""The permission to run outside every enclosure, or where none can hold the command."""


class LineVerdict(NamedTuple):
    """What becomes of a command line, and where it runs if that is `allow`.

    `reason` is a sentence; `command` is the part that decided, `rule` the rule if it was one.
    """

    action: Action
    enclosure: Enclosure
    reason: str = ""
    command: str = ""
    rule: Rule | None = None


class _Part(NamedTuple):
    """One simple command: where it has to run, and the most that it may have unasked."""

    command: SimpleCommand
    needed: Enclosure
    limit: Enclosure


_REQUIRED_ENCLOSURE: Final[dict[Purpose, Enclosure]] = {
    "passes_on": Enclosure.READ_ONLY,
    "reads": Enclosure.READ_ONLY,
    "builds": Enclosure.BUILD,
    "unknown": Enclosure.SESSION,
}
_UNASKED_LIMIT: Final[dict[Purpose, Enclosure | None]] = {
    "passes_on": Enclosure.SESSION,
    "reads": Enclosure.BUILD,
    "builds": Enclosure.BUILD,
    "unknown": None,
}
"""How far a command of a purpose may go unasked when no rule speaks of it."""

_NOT_ENFORCED: Final = "no sandbox here holds it to what it seems to do"


def last_match(permission: str, subject: str, rules: Sequence[Rule]) -> Rule | None:
    """The rule that decides: the last one that matches. Its permission may be a glob as well."""
    for rule in reversed(rules):
        if globs.matches(rule.permission, permission) and globs.matches(rule.pattern, subject):
            return rule
    return None


def seems_to_read(line: str) -> bool:
    """Whether a line can be tried where nothing can be written."""
    return needed_enclosure(line) == Enclosure.READ_ONLY


def needed_enclosure(line: str) -> Enclosure:
    """The strictest enclosure in which a line can do what it seems to be for."""
    parsed = parse(line)
    if parsed.problem or parsed.changes:
        return Enclosure.SESSION
    needed = (
        _REQUIRED_ENCLOSURE[purpose_of(command, parsed.functions)] for command in parsed.commands
    )
    return max(needed, default=Enclosure.READ_ONLY)


def judge_line(
    line: str, permission: str, rules: Sequence[Rule], most_unasked: Enclosure | None
) -> LineVerdict:
    """What becomes of a command line under `rules`, the weakest first.

    `most_unasked` is the loosest enclosure that this machine and the session have for what nobody
    was asked about, READ_ONLY or BUILD; None when there is none, and then only rules allow.
    """
    verdict = _judge(line, permission, rules, most_unasked)
    if verdict.action != "ask" or verdict.rule:
        return verdict
    # Rules that don't cover all of a line must not cause questions: what they allow may run alone.
    strict = [rule for rule in rules if rule.action != "allow" or rule.permission == SANDBOXED]
    unasked = _judge(line, permission, strict, most_unasked)
    return unasked if unasked.action == "allow" else verdict


def _judge(
    line: str, permission: str, rules: Sequence[Rule], most_unasked: Enclosure | None
) -> LineVerdict:
    parsed = parse(line)
    for command in parsed.commands:
        if strict := _strict_rule(command, permission, rules):
            return _by_rule(strict.action, strict, command.text)
    about_line = last_match(permission, line, [rule for rule in rules if _is_about_syntax(rule)])
    if about_line and about_line.action != "allow":
        return _by_rule(about_line.action, about_line, line)
    parts: list[_Part] = []
    for command in parsed.commands:
        part = _part(command, parsed, permission, rules, most_unasked)
        if isinstance(part, LineVerdict):
            return part
        parts.append(part)
    needed = max((part.needed for part in parts), default=Enclosure.READ_ONLY)
    limit = min((part.limit for part in parts), default=Enclosure.SESSION)
    if problem := _problem(parsed, needed, parts, most_unasked):
        return _judge_whole(line, permission, rules, most_unasked, problem)
    if needed > limit:
        short = min(parts, key=lambda part: part.limit)
        because = "it runs unasked only by itself, and the rest of the line may do more"
        return _ask(short.command.text, because)
    return LineVerdict("allow", needed, "Nothing in it needs a question.", line)


def may_run_outside(line: str, rules: Sequence[Rule]) -> bool:
    """Whether rules for `UNSANDBOXED`, by that very name, let all of a line run outside.

    Outside nothing holds a command, so a rule covers only a plain line that is wholly spelled out
    by it: a `*` stands for no option, as options may run programs.
    """
    named = [rule for rule in rules if rule.permission == UNSANDBOXED]
    rule = _rule_for_everything(UNSANDBOXED, named)
    if rule and rule.action == "allow":
        return True
    parsed = parse(line)
    if not (parsed.plain and parsed.commands) or parsed.writes:
        return False
    return all(_covers_outside(command, named) for command in parsed.commands)


def _covers_outside(command: SimpleCommand, rules: Sequence[Rule]) -> bool:
    rule = last_match(UNSANDBOXED, command.text, rules)
    if rule is None or rule.action != "allow" or command.assigns:
        return False
    spelled_out = rule.pattern.split()
    return all(
        word.fixed and (not word.text.startswith("-") or word.text in spelled_out)
        for word in command.words
    )


def _part(
    command: SimpleCommand,
    parsed: CommandLine,
    permission: str,
    rules: Sequence[Rule],
    most_unasked: Enclosure | None,
) -> _Part | LineVerdict:
    """How far one command may go, or the question about it."""
    purpose = purpose_of(command, parsed.functions)
    needed = _REQUIRED_ENCLOSURE[purpose]
    rule = last_match(permission, command.text, rules)
    if rule:
        # One that seems to read is tried as such; the rule lets it write once it wants to.
        reads = needed == Enclosure.READ_ONLY and most_unasked is not None
        return _Part(command, needed if reads else Enclosure.SESSION, Enclosure.SESSION)
    limit = _UNASKED_LIMIT[purpose]
    if needed > Enclosure.READ_ONLY and most_unasked == Enclosure.BUILD:
        tuned = last_match(SANDBOXED, command.text, rules)
        if tuned and tuned.action != "allow":
            return _by_rule(tuned.action, tuned, command.text)
        if tuned:
            needed = limit = Enclosure.BUILD
    if limit is None:
        return _ask(command.text, "")
    if purpose != "passes_on" and (most_unasked is None or needed > most_unasked):
        return _ask(command.text, _NOT_ENFORCED)
    return _Part(command, needed, limit)


def _problem(
    parsed: CommandLine,
    needed: Enclosure,
    parts: Sequence[_Part],
    most_unasked: Enclosure | None,
) -> str:
    """Why the commands found don't decide about the line; empty if they do."""
    if parsed.problem:
        return parsed.problem
    if needed == Enclosure.READ_ONLY and most_unasked is None:
        return _NOT_ENFORCED
    if parsed.changes:
        return f"it writes to `{parsed.changes[0]}`"
    if needed == Enclosure.SESSION and not parsed.plain:
        return "it is not certain what else runs in it"
    if needed == Enclosure.SESSION and any(part.command.assigns for part in parts):
        return "it sets variables for a command"
    return ""


def _judge_whole(
    line: str,
    permission: str,
    rules: Sequence[Rule],
    most_unasked: Enclosure | None,
    problem: str,
) -> LineVerdict:
    """A line that can't be judged by its commands: only a rule for everything allows it."""
    rule = last_match(permission, line, rules)
    if rule and rule.action == "deny":
        return _by_rule("deny", rule, line)
    rule = _rule_for_everything(permission, rules)
    if rule and rule.action == "allow":
        return LineVerdict("allow", Enclosure.SESSION, _sentence("allow", rule, line), line, rule)
    rule = _rule_for_everything(SANDBOXED, rules) if most_unasked == Enclosure.BUILD else None
    if rule and rule.action == "allow" and _rule_for_everything(permission, rules) is None:
        return LineVerdict("allow", Enclosure.BUILD, _sentence("allow", rule, line), line, rule)
    return _ask(line, problem)


def _rule_for_everything(permission: str, rules: Sequence[Rule]) -> Rule | None:
    """The last rule for everything, or a later one that is stricter about something.

    What the stricter one is about may be in the line unseen.
    """
    about = [rule for rule in rules if globs.matches(rule.permission, permission)]
    return next(
        (rule for rule in reversed(about) if rule.pattern == "*" or rule.action != "allow"), None
    )


def _strict_rule(command: SimpleCommand, permission: str, rules: Sequence[Rule]) -> Rule | None:
    """A rule that denies or asks about a command, in whatever dress: by a path, in a wrapper."""
    found: list[Rule] = []
    rule = last_match(permission, command.text, rules)
    if rule and rule.action != "allow":
        found.append(rule)
    named = [rule for rule in rules if rule.pattern != "*"]
    for spelling in _spellings(command):
        rule = last_match(permission, spelling, named)
        if rule and rule.action != "allow":
            found.append(rule)
    return next((rule for rule in found if rule.action == "deny"), next(iter(found), None))


def _spellings(command: SimpleCommand) -> Iterator[str]:
    """Other ways in which rules may name what a command runs."""
    for one in (command, *command.inner()):
        if one is not command:
            yield one.text
        if one.name and one.name != one.words[0].text:
            yield one.name + one.text[len(one.words[0].text) :]


def _is_about_syntax(rule: Rule) -> bool:
    """Whether a pattern speaks of more than one command, such as `*| sh*`."""
    return any(sign in rule.pattern for sign in "|&;<>()$`\n")


def _by_rule(action: Action, rule: Rule, command: str) -> LineVerdict:
    return LineVerdict(action, Enclosure.SESSION, _sentence(action, rule, command), command, rule)


def _sentence(action: Action, rule: Rule, command: str) -> str:
    what = {"allow": "is allowed", "ask": "needs an approval", "deny": "is denied"}[action]
    return f"`{command}` {what}. The rule is `{rule.permission}` `{rule.pattern}` {rule.action}."


def _ask(command: str, because: str) -> LineVerdict:
    reason = f"`{command}` needs an approval."
    if because:
        reason = f"{reason[:-1]}: {because}."
    return LineVerdict("ask", Enclosure.SESSION, reason, command)
