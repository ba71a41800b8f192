"""Grants, lists and revokes the rules of sessions, and the lasting rules of workspaces.

`answer_request` and `revoke_session_rule` are handlers of ops; see `handlers`.
"""

from collections.abc import Iterator

from msgspec import structs

from tiller_daemon.config import LastingRulesError, StoredRule, rule_id
from tiller_daemon.errors import RejectionError
from tiller_daemon.session.requests import Reply
from tiller_daemon.session.services import Services
from tiller_daemon.session.state import PendingSubmission, SessionState
from tiller_protocol.answers import RulesResult
from tiller_protocol.events import SessionConfigured
from tiller_protocol.ops import Answer, RuleRevoke
from tiller_protocol.settings import Rule, RuleSummary
from tiller_protocol.snapshot import Snapshot


def list_rules(
    services: Services, workspace: str | None, snapshot: Snapshot | None = None
) -> RulesResult:
    """Return the lasting rules of one or all workspaces, and the rules of a session.

    Raises `RejectionError` if the lasting rules can't be read.
    """
    of_session = _of_session(snapshot) if snapshot else ()
    return RulesResult((*_lasting(services, workspace), *of_session))


def revoke_lasting_rule(services: Services, identifier: str) -> None:
    """Revoke a lasting rule; raises `RejectionError`."""
    try:
        was_there = services.user.lasting_rules.remove(identifier)
    except LastingRulesError as error:
        raise RejectionError("unavailable", str(error)) from None
    if not was_there:
        raise _unknown_rule(identifier)


def answer_request(state: SessionState, op: Answer, pending: PendingSubmission) -> None:
    """Resolve a request and store the rules that the answer grants; raises `RejectionError`."""
    grants = state.requests.answer(
        op.request_id,
        Reply(op.decision, op.text, pending.client),
        lambda place, rules: _keep_rules(state.services, place, rules, pending.client),
    )
    if op.decision == "always_here":
        state.reconsider()
    if grants:
        state.grant(grants)


def revoke_session_rule(state: SessionState, op: RuleRevoke, pending: PendingSubmission) -> None:
    """Revoke a rule of the session, also for its running turn; raises `RejectionError`."""
    snapshot = state.outbox.fold_pending()
    rules = snapshot.settings.permissions or ()
    rule = next((one for one in rules if _id_in(snapshot, one) == op.rule_id), None)
    if rule is None:
        raise _unknown_rule(op.rule_id)
    left = tuple(one for one in rules if one != rule)
    state.put(pending, SessionConfigured(structs.replace(snapshot.settings, permissions=left)))
    if state.turn:
        state.turn.owner.revoke(rule)


def _keep_rules(services: Services, workspace: str, rules: tuple[Rule, ...], client: str) -> None:
    """Store lasting rules for a workspace; raises `RejectionError`."""
    now = services.time()
    kept = [StoredRule(rule.permission, rule.pattern, now, client) for rule in rules]
    try:
        services.user.lasting_rules.add(workspace, kept)
    except LastingRulesError as error:
        message = f"{error} The request is still open. `always` allows it for this session only."
        raise RejectionError("unavailable", message) from None


def _lasting(services: Services, workspace: str | None) -> Iterator[RuleSummary]:
    try:
        by_workspace = services.user.lasting_rules.all(workspace)
    except LastingRulesError as error:
        raise RejectionError("unavailable", str(error)) from None
    for place, rules in sorted(by_workspace.items()):
        for one in rules:
            identifier = rule_id(place, one.permission, one.pattern)
            yield RuleSummary(
                identifier,
                one.permission,
                one.pattern,
                workspace=place,
                granted_at=one.granted_at or None,
                by=one.by,
            )


def _of_session(snapshot: Snapshot) -> tuple[RuleSummary, ...]:
    return tuple(
        RuleSummary(
            _id_in(snapshot, rule),
            rule.permission,
            rule.pattern,
            rule.action,
            session_id=snapshot.session_id,
        )
        for rule in snapshot.settings.permissions or ()
    )


def _id_in(snapshot: Snapshot, rule: Rule) -> str:
    return rule_id(f"{snapshot.session_id} {rule.action}", rule.permission, rule.pattern)


def _unknown_rule(identifier: str) -> RejectionError:
    return RejectionError(
        "not_found", f"There is no rule {identifier}. `tiller rules` lists the rules."
    )
