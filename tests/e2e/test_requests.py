"""Requests: what is asked, who answers, and what becomes of the calls that wait."""

from pathlib import Path

from e2e.words import bash, calls, calls_in, read, text, write
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


async def test_b58_a_call_is_judged_when_the_calls_before_it_have_ended(
    frontend: Frontend, workspace: Path, tmp_path: Path
) -> None:
    """A link that the first call makes does not take the second one out of the workspace unseen."""
    (outside := tmp_path / "outside").mkdir()
    session_id = await frontend.session(
        workspace,
        calls(bash(f"ln -s {outside} way"), write("way/out.txt", "x")),
        text("done"),
        approve="ask",
        permissions=(Rule("bash", "*", "allow"), Rule("write", "*", "allow")),
    )
    await frontend.say(session_id)
    await frontend.request_opened(session_id, 1)
    (asked,) = _opened(frontend, session_id)
    assert (asked.permission, asked.subjects) == ("external_directory", (str(outside),))
    await frontend.must(Answer(asked.id, "reject"))
    await frontend.turn_ended(session_id)
    assert not list(outside.iterdir())


async def test_b58_what_changes_while_it_is_asked_about_does_not_run(
    frontend: Frontend, workspace: Path, tmp_path: Path
) -> None:
    """A path that leads elsewhere once the user has said yes is not followed there."""
    (outside := tmp_path / "outside").mkdir()
    (workspace / "way").mkdir()
    session_id = await frontend.session(
        workspace, calls(write("way/out.txt", "x")), text("done"), approve="ask"
    )
    await frontend.say(session_id)
    await frontend.request_opened(session_id, 1)
    (workspace / "way").rmdir()
    (workspace / "way").symlink_to(outside)
    await frontend.must(Answer(_opened(frontend, session_id)[0].id, "once"))
    await frontend.turn_ended(session_id)
    (call,) = calls_in(frontend.requests(session_id)[-1].items)
    assert "changed while it was being judged" in call.output
    assert not list(outside.iterdir())


async def test_the_model_reads_what_was_cut_out_of_its_output_without_asking(
    frontend: Frontend, workspace: Path
) -> None:
    """The spill file of a call is the session's own, though it lies outside the workspace."""
    steps = (calls(bash("seq 30000")), text("long"))
    model = frontend.daemon.script(*steps)
    session_id = await frontend.session(workspace, model=model, approve="ask")
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    (call,) = calls_in(frontend.requests(session_id)[-1].items)
    look = calls(read(call.spill_path))
    frontend.daemon.play(model.removeprefix("scripted/"), *steps, look, text("seen"))
    await frontend.say(session_id, "look")
    assert (await frontend.turn_ended(session_id, 2)).outcome == "completed"
    assert not _opened(frontend, session_id)
