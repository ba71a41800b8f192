"""Requests: what is asked, who answers, and what becomes of the calls that wait."""

from pathlib import Path

from e2e.words import bash, calls, calls_in, read, text
from support.frontend import Frontend
from tiller_protocol.events import RequestOpened, RequestResolved
from tiller_protocol.items import Request
from tiller_protocol.ops import Answer
from tiller_protocol.settings import Rule


async def test_b36_always_resolves_other_requests_that_now_match(
    frontend: Frontend, workspace: Path
) -> None:
    """`always` for a pattern → other open requests that now match are resolved without asking."""
    for name in ("a.env", "b.env"):
        (workspace / name).write_text(f"of {name}\n")
    session_id = await frontend.session(
        workspace,
        calls(bash("cat a.env"), bash("cat a.env"), bash("cat b.env")),
        calls(bash("cat a.env")),
        text("done"),
        approve="ask",
    )
    await frontend.say(session_id)
    await frontend.request_opened(session_id, 3)
    first, other = _about(frontend, session_id, "a.env"), _about(frontend, session_id, "b.env")
    await frontend.must(Answer(first.id, "always"))
    await frontend.until_body(session_id, RequestResolved, 2)
    assert [r.id for r in (await frontend.snapshot(session_id)).requests] == [other.id]
    await frontend.must(Answer(other.id, "once"))
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    told = [call.output for call in calls_in(frontend.requests(session_id)[-1].items)]
    assert told == ["of a.env\n", "of a.env\n", "of b.env\n", "of a.env\n"]
    assert len(_opened(frontend, session_id)) == 3
    resolved = _resolved(frontend, session_id)
    assert [(r.resolution, r.by) for r in resolved] == [
        ("always", "e2e"), ("always", ""), ("once", "e2e"),
    ]  # fmt: skip


async def test_b37_a_rejection_tells_the_model_why_and_ends_the_turn_blocked(
    frontend: Frontend, workspace: Path
) -> None:
    """Reject with feedback → the model sees it; the other open requests are rejected; `blocked`."""
    (workspace / "a.env").write_text("secret\n")
    session_id = await frontend.session(
        workspace,
        calls(read("a.env"), bash("cat a.env"), bash("touch never")),
        text("I see"),
        approve="ask",
    )
    await frontend.say(session_id)
    await frontend.request_opened(session_id, 2)
    asked = _about(frontend, session_id, "cat a.env")
    await frontend.must(Answer(asked.id, "reject", "use b.txt"))
    assert (await frontend.turn_ended(session_id)).outcome == "blocked"
    assert [r.resolution for r in _resolved(frontend, session_id)] == ["reject", "reject"]
    await frontend.say(session_id, "go on")
    assert (await frontend.turn_ended(session_id, 2)).outcome == "completed"
    first, second, third = calls_in(frontend.requests(session_id)[-1].items)
    assert [call.error_kind for call in (first, second, third)] == ["denied", "denied", "skipped"]
    assert "use b.txt" in second.output
    assert not (workspace / "never").exists()


async def test_b39_what_a_rule_denies_is_not_run_and_nobody_is_asked(
    frontend: Frontend, workspace: Path
) -> None:
    """A rule denies → not run, the reason is in the result, nobody is asked."""
    session_id = await frontend.session(
        workspace,
        calls(bash("rm greeting.txt"), bash("echo fine")),
        text("done"),
        approve="ask",
        permissions=(Rule("bash", "rm *", "deny"),),
    )
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    denied, fine = calls_in(frontend.requests(session_id)[-1].items)
    assert (denied.error_kind, fine.state) == ("denied", "completed")
    assert "rm *" in denied.output
    assert (workspace / "greeting.txt").exists()
    assert _opened(frontend, session_id) == []


def _opened(frontend: Frontend, session_id: str) -> list[Request]:
    bodies = [event.body for event in frontend.events(session_id)]
    return [body.request for body in bodies if isinstance(body, RequestOpened)]


def _about(frontend: Frontend, session_id: str, what: str) -> Request:
    """A request about something; those of calls side by side open in any order."""
    return next(r for r in _opened(frontend, session_id) if what in r.subjects[0])


def _resolved(frontend: Frontend, session_id: str) -> list[RequestResolved]:
    bodies = [event.body for event in frontend.events(session_id)]
    return [body for body in bodies if isinstance(body, RequestResolved)]
