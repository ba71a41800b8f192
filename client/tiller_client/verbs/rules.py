"""`rules`: lists and revokes lasting permission rules, and the rules of a session."""

from argparse import Namespace
from collections.abc import Sequence
from itertools import groupby

from tiller_client.command_line import choose
from tiller_client.command_line.prompt import read_workspace
from tiller_client.connecting.connection import DaemonConnection, connect
from tiller_client.console import print_json, say, stdout_theme
from tiller_client.errors import UsageError
from tiller_client.program_name import program
from tiller_client.rendering.text import one_line, verbatim
from tiller_protocol.answers import RulesResult
from tiller_protocol.ops import RuleRevoke, RulesList
from tiller_protocol.settings import RuleSummary


def run(arguments: Namespace) -> int:
    """List rules, or revoke some of them."""
    if arguments.action == "list" and arguments.rules:
        raise UsageError(
            f"to list rules, give no RULE; to revoke rules: {program()} rules revoke RULE …"
        )
    if arguments.action == "revoke" and not arguments.rules:
        raise UsageError(
            f"give the ids of the rules to revoke; to list the rules: {program()} rules"
        )
    with connect("tiller rules") as connection:
        listed = _listed(connection, arguments)
        if arguments.action == "revoke":
            # Look up all rules first, so that none is revoked if an id is wrong.
            for rule in [_named(listed, reference) for reference in arguments.rules]:
                connection.submit(RuleRevoke(rule.id, rule.session_id or None))
                if arguments.json:
                    print_json(rule)
                else:
                    say(f"revoked {_words(rule)} ({_place(rule)})")
        elif arguments.json:
            for rule in listed:
                print_json(rule)
        else:
            _print_rules(listed)
    return 0


def _listed(connection: DaemonConnection, arguments: Namespace) -> Sequence[RuleSummary]:
    session_id = workspace = None
    if arguments.session:
        session_id = choose.session_id(connection, arguments.session)
    elif arguments.directory:
        workspace = read_workspace(arguments.directory)
    return connection.ask(RulesList(workspace, session_id), RulesResult).rules


def _named(rules: Sequence[RuleSummary], reference: str) -> RuleSummary:
    """Return the rule with this id or unique beginning of an id; raises `UsageError`."""
    found = [rule for rule in rules if reference and rule.id.startswith(reference.lower())]
    if len(found) == 1:
        return found[0]
    problem = f"matches {len(found)} rules" if found else "is not the id of a rule"
    raise UsageError(
        f"{one_line(reference)!r} {problem}; to list the rules: {program()} rules; to include the "
        f"rules of a session: {program()} rules --session SESSION"
    )


def _print_rules(rules: Sequence[RuleSummary]) -> None:
    if not rules:
        say("there are no rules; to add one, answer a request with always_here")
    theme = stdout_theme()
    for place, group in groupby(rules, _place):
        say(place)
        for rule in group:
            by = f"  by {one_line(rule.by)}" if rule.by else ""
            say(f"  {rule.id}  {_words(rule)}{theme.dim(by)}")


def _place(rule: RuleSummary) -> str:
    return one_line(rule.workspace) if rule.workspace else f"session {rule.session_id}"


def _words(rule: RuleSummary) -> str:
    """Return a rule's permission and pattern on one line, verbatim, as in a request."""
    words = [verbatim(text).replace("\n", "␊") for text in (rule.permission, rule.pattern)]
    if rule.action != "allow":
        words.append(rule.action)
    return "  ".join(words)
