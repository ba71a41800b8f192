"""Chooses the level for a command line, or decides to ask the user. Pure.

Each command needs some level for its apparent purpose, and has a limit by its purpose and the
rules. The line runs without a question if no command needs more than the strictest limit. The
sandbox then enforces what this judgement only assumes.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tiller_daemon.policy import globs
from tiller_daemon.policy.shell.command_line import CommandLine, SimpleCommand, parse
from tiller_daemon.policy.shell.programs import word_set
from tiller_daemon.policy.shell.purposes import Purpose, purpose_of, subcommands
from tiller_daemon.sandbox.base import GitUse
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.sandbox.quarantine import PUT_ASIDE
from tiller_protocol.settings import Action, Rule

SANDBOXED: Final = "sandboxed"
"""The permission to run in the sandbox for builds without a question."""

UNSANDBOXED: Final = "unsandboxed"
"""The permission to run outside every sandbox, or where no sandbox is available."""


COMMAND: Final = "bash"
"""The permission to run a command in the session's sandbox."""

NETWORK: Final = "network"
"""The permission to use the network, for a line whose sandbox has none; see `network`."""


class LineVerdict(NamedTuple):
    """The decision about a command line."""

    action: Action
    """Whether the line is allowed, asked about or denied."""

    level: SandboxLevel
    """Where the line runs if it is allowed."""

    reason: str = ""
    """A sentence for the user."""

    command: str = ""
    """The command that decided, or the whole line."""

    rule: Rule | None = None
    """The rule that decided; None if no rule matched."""


class _Part(NamedTuple):
    """A simple command, the level it needs, and the loosest it may have without a question."""

    command: SimpleCommand
    needed: SandboxLevel
    limit: SandboxLevel
    rule: Rule | None = None
    """The rule that allows the command, if one does."""


_REQUIRED_LEVEL: Final[dict[Purpose, SandboxLevel]] = {
    "passes_on": SandboxLevel.READ_ONLY,
    "reads": SandboxLevel.READ_ONLY,
    "builds": SandboxLevel.BUILD,
    "unknown": SandboxLevel.SESSION,
}
_UNASKED_LIMIT: Final[dict[Purpose, SandboxLevel | None]] = {
    "passes_on": SandboxLevel.SESSION,
    "reads": SandboxLevel.BUILD,
    "builds": SandboxLevel.BUILD,
    "unknown": None,
}
"""The loosest level in which a command runs without a question if no rule matches; None means
that the user is always asked.

A command that only passes on its input can do no harm anywhere, so it never limits the line."""

_UNASKED: Final[dict[SandboxLevel, str]] = {
    SandboxLevel.READ_ONLY: "{} seems only to read, and runs where nothing can be written.",
    SandboxLevel.BUILD: "{} seems only to read and build; a build's sandbox allows nothing else.",
    SandboxLevel.SESSION: "{} only passes on what other commands print.",
}
"""Why a command that no rule allows runs without a question, by the level of its line."""

_GIT_CONFIGURES: Final = word_set(
    """submodule.absorbgitdirs submodule.add submodule.deinit submodule.init submodule.set-branch
    submodule.set-url submodule.sync submodule.update worktree.move worktree.remove"""
)
"""Subcommands that change the configuration of submodules, or files that are mounted."""

_GIT_DATA_COMMANDS: Final = word_set(
    """add annotate archive blame branch cat-file check-ignore commit commit-tree config
    count-objects describe diff diff-files diff-index diff-tree fetch for-each-ref format-patch
    fsck gc grep hash-object help log ls-files ls-remote ls-tree maintenance merge-base mktree
    notes push reflog remote repack rev-list rev-parse shortlog show show-ref status symbolic-ref
    tag update-index update-ref var verify-commit version write-tree"""
)
"""Subcommands of git that change no files of the work tree themselves."""

_NOT_ENFORCED: Final = "no sandbox here can ensure that it does only what it seems to do"


def last_match(permission: str, subject: str, rules: Sequence[Rule]) -> Rule | None:
    """Return the matching rule that decides: the last matching rule, or a granted rule.

    A rule's permission may be a glob, too. A granted rule is stronger than any rule except one that
    would deny: a user who answers a question about one call must not undo an earlier denial. A file
    that was put aside is also protected by rules for the name that it had.
    """
    granted: Rule | None = None
    original = PUT_ASIDE.sub("", subject) if permission == "read" else subject
    for rule in reversed(rules):
        matches = globs.matcher(rule.pattern)
        if not (matches(subject) or (original != subject and matches(original))):
            continue
        if not (globs.matches(rule.permission, permission) or _implies(rule, permission)):
            continue
        if not rule.granted:
            return rule if granted is None or rule.action == "deny" else granted
        granted = granted or rule
    return granted


def _implies(rule: Rule, permission: str) -> bool:
    """Whether a rule about the network also decides about the command.

    A user who allows a command to run with the network also allows it to run at all.
    """
    return rule.granted and rule.permission == NETWORK and permission == COMMAND


def seems_to_read(line: str) -> bool:
    """Whether a line seems to need no more than the read-only sandbox."""
    return needed_level(line) == SandboxLevel.READ_ONLY


def needed_level(line: str) -> SandboxLevel:
    """Return the strictest level in which a line can do what it seems to do."""
    parsed = parse(line)
    if parsed.problem or parsed.changes:
        return SandboxLevel.SESSION
    needed = (_REQUIRED_LEVEL[purpose_of(command, parsed.functions)] for command in parsed.commands)
    return max(needed, default=SandboxLevel.READ_ONLY)


def git_use(line: str) -> GitUse:
    """Return what the git commands of a line write, as far as the line shows."""
    commands = [command for command in parse(line).commands if command.name == "git"]
    if {_git_subcommand(command) for command in commands} <= _GIT_DATA_COMMANDS | {""}:
        return "data" if commands else ""
    return "work_tree"


def needs_to_leave(line: str) -> bool:
    """Whether git would change what no sandbox lets it change, as far as the line shows."""
    commands = [command for command in parse(line).commands if command.name == "git"]
    return any(
        name in _GIT_CONFIGURES
        for command in commands
        for name, _ in subcommands(command.words[1:])
    )


def _git_subcommand(command: SimpleCommand) -> str:
    """Return the subcommand of git without what follows; empty if there is none or it varies."""
    names = (name for name, _ in subcommands(command.words[1:]))
    return next((name for name in names if "." not in name and not name.startswith("-")), "")


def judge_line(
    line: str, permission: str, rules: Sequence[Rule], loosest_unasked: SandboxLevel | None
) -> LineVerdict:
    """Decide about a command line; the weakest of `rules` come first.

    `loosest_unasked` is the loosest level for a line that the user was not asked about:
    READ_ONLY or BUILD. If it is None, only rules can allow a line.
    """
    verdict = _judge(line, permission, rules, loosest_unasked)
    if verdict.action != "ask" or verdict.rule:
        return verdict
    # A rule that allows only a part of the line must not cause a question about a line that would
    # need no question without that rule.
    strict = [rule for rule in rules if rule.action != "allow" or rule.permission == SANDBOXED]
    unasked = _judge(line, permission, strict, loosest_unasked)
    return unasked if unasked.action == "allow" else verdict


def _judge(
    line: str, permission: str, rules: Sequence[Rule], loosest_unasked: SandboxLevel | None
) -> LineVerdict:
    parsed = parse(line)
    for command in parsed.commands:
        if strict := strict_rule(command, permission, rules):
            return by_rule(strict, command.text)
    about_line = last_match(permission, line, [rule for rule in rules if _is_about_syntax(rule)])
    if about_line and about_line.action != "allow":
        return by_rule(about_line, line)
    parts: list[_Part] = []
    for command in parsed.commands:
        part = _part(command, parsed, permission, rules, loosest_unasked)
        if isinstance(part, LineVerdict):
            return part
        parts.append(part)
    needed = max((part.needed for part in parts), default=SandboxLevel.READ_ONLY)
    limit = min((part.limit for part in parts), default=SandboxLevel.SESSION)
    if problem := _problem(parsed, needed, parts, loosest_unasked):
        return _judge_whole(line, permission, rules, loosest_unasked, problem)
    if needed > limit:
        short = min(parts, key=lambda part: part.limit)
        because = (
            "the rest of the line needs a looser sandbox, in which this command needs approval"
        )
        return ask(short.command.text, because)
    return _allow(line, needed, parts)


def may_run_outside(line: str, rules: Sequence[Rule]) -> bool:
    """Whether rules for the permission `UNSANDBOXED` (not a glob) let all of a line run outside.

    Nothing limits a command outside, so the rules must cover every command of a plain line and
    spell out its options: a `*` covers no options, because they may run programs.
    """
    named = [rule for rule in rules if rule.permission == UNSANDBOXED]
    rule = rule_for_everything(UNSANDBOXED, named)
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
    loosest_unasked: SandboxLevel | None,
) -> _Part | LineVerdict:
    """Return the part for one command, or the verdict if the command needs a question."""
    purpose = purpose_of(command, parsed.functions)
    needed = _REQUIRED_LEVEL[purpose]
    rule = last_match(permission, command.text, rules)
    if rule:
        # A command that seems to read starts in the read-only sandbox. If it tries to write, the
        # rule lets it run again in a looser sandbox.
        reads = needed == SandboxLevel.READ_ONLY and loosest_unasked is not None
        return _Part(command, needed if reads else SandboxLevel.SESSION, SandboxLevel.SESSION, rule)
    limit, sandboxed = _UNASKED_LIMIT[purpose], None
    if needed > SandboxLevel.READ_ONLY and loosest_unasked == SandboxLevel.BUILD:
        sandboxed = last_match(SANDBOXED, command.text, rules)
        if sandboxed and sandboxed.action != "allow":
            return by_rule(sandboxed, command.text)
        if sandboxed:
            needed = limit = SandboxLevel.BUILD
    if limit is None:
        return ask(command.text, "it may do more than read and build")
    if purpose != "passes_on" and (loosest_unasked is None or needed > loosest_unasked):
        return ask(command.text, _NOT_ENFORCED)
    return _Part(command, needed, limit, sandboxed)


def _problem(
    parsed: CommandLine,
    needed: SandboxLevel,
    parts: Sequence[_Part],
    loosest_unasked: SandboxLevel | None,
) -> str:
    """Return why the commands don't decide about the line, as a clause; empty if they do."""
    if parsed.problem:
        return parsed.problem
    if needed == SandboxLevel.READ_ONLY and loosest_unasked is None:
        return _NOT_ENFORCED
    if parsed.changes:
        return f"it writes to `{parsed.changes[0]}`"
    if needed == SandboxLevel.SESSION and not parsed.plain:
        return "it may do more than it shows"
    if needed == SandboxLevel.SESSION and any(part.command.assigns for part in parts):
        return "it sets variables for a command"
    return ""


def _judge_whole(
    line: str,
    permission: str,
    rules: Sequence[Rule],
    loosest_unasked: SandboxLevel | None,
    problem: str,
) -> LineVerdict:
    """Judge a line as a whole, for the reason `problem`: only a rule for everything allows it."""
    rule = last_match(permission, line, rules)
    if rule and rule.action == "deny":
        return by_rule(rule, line)
    rule = rule_for_everything(permission, rules)
    if rule and rule.action == "allow":
        return by_rule(rule, line)
    rule = rule_for_everything(SANDBOXED, rules) if loosest_unasked == SandboxLevel.BUILD else None
    if rule and rule.action == "allow" and rule_for_everything(permission, rules) is None:
        return by_rule(rule, line, SandboxLevel.BUILD)
    return ask(line, problem)


def rule_for_everything(permission: str, rules: Sequence[Rule]) -> Rule | None:
    """Return the last rule for everything, or a later rule that denies or asks about something.

    Such a later rule may apply to a command that the line hides. Granted rules are not considered,
    because they only cover commands that a line shows.
    """
    about = [
        rule for rule in rules if globs.matches(rule.permission, permission) and not rule.granted
    ]
    return next(
        (rule for rule in reversed(about) if rule.pattern == "*" or rule.action != "allow"), None
    )


def strict_rule(command: SimpleCommand, permission: str, rules: Sequence[Rule]) -> Rule | None:
    """Return a rule that denies or asks about a command, even one that is wrapped or has a path."""
    strict: list[Rule] = []
    rule = last_match(permission, command.text, rules)
    if rule and rule.action != "allow":
        strict.append(rule)
    named = [rule for rule in rules if rule.pattern != "*"]
    for spelling in _spellings(command):
        rule = last_match(permission, spelling, named)
        if rule and rule.action != "allow":
            strict.append(rule)
    return next((rule for rule in strict if rule.action == "deny"), next(iter(strict), None))


def _spellings(command: SimpleCommand) -> Iterator[str]:
    """Yield other texts by which rules may name the programs that a command runs."""
    for one in (command, *command.inner()):
        if one is not command:
            yield one.text
        if one.name and one.name != one.words[0].text:
            yield one.name + one.text[len(one.words[0].text) :]


def _is_about_syntax(rule: Rule) -> bool:
    """Whether the rule's pattern describes more than one command, as `*| sh*` does."""
    return any(sign in rule.pattern for sign in "|&;<>()$`\n")


def by_rule(rule: Rule, command: str, level: SandboxLevel = SandboxLevel.SESSION) -> LineVerdict:
    """Return the verdict by a rule about a command or the whole line."""
    return LineVerdict(rule.action, level, sentence(f"`{command}`", rule), command, rule)


def sentence(what: str, rule: Rule | None) -> str:
    """Return the sentence for the user about `what` a rule decides; without a rule, it is asked."""
    if rule is None:
        return f"{what} needs approval."
    done = {"allow": "is allowed", "ask": "needs approval", "deny": "is denied"}[rule.action]
    return f"{what} {done}. The rule is `{rule.permission}` `{rule.pattern}` {rule.action}."


def _allow(line: str, needed: SandboxLevel, parts: Sequence[_Part]) -> LineVerdict:
    """Return the verdict about a line whose parts are all allowed, by rules or a sandbox."""
    ruled = [(part.rule, part.command.text) for part in parts if part.rule]
    rules = dict(reversed(ruled))
    sentences = [sentence(f"`{rules[rule]}`", rule) for rule in reversed(rules)]
    if len(ruled) < len(parts) or not parts:
        sentences.append(_UNASKED[needed].format("The rest" if ruled else f"`{line}`"))
    reason = " ".join(sentences)
    return LineVerdict("allow", needed, reason, line, ruled[0][0] if ruled else None)


def ask(command: str, because: str) -> LineVerdict:
    """Return the verdict to ask about a command or the whole line; `because` is a clause."""
    reason = f"`{command}` needs approval: {because}."
    return LineVerdict("ask", SandboxLevel.SESSION, reason, command)
