"""Requests: their questions, who answers, and what happens to the waiting calls."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from e2e.words import always, bash, calls, calls_in, read, text, write
from support.daemon import Daemon
from support.frontend import Frontend
from tiller_protocol.answers import Accepted, AnyAnswer, Rejected, SessionListResult
from tiller_protocol.events import RequestOpened, RequestResolved
from tiller_protocol.items import Request
from tiller_protocol.ops import Answer, SessionList
from tiller_protocol.settings import Rule


@pytest.mark.promise("B40")
async def test_the_first_answer_wins_and_everybody_else_is_told_who_gave_it(
    frontend: Frontend, workspace: Path, daemon: Daemon, nursery: trio.Nursery
) -> None:
    """A second frontend attaches while a request is open → it gets the request, from a list too.

    The first answer wins, the other is told who answered, by an event and by its own answer.
    """
    session_id = await frontend.session(
        workspace, calls(bash("touch asked")), text("done"), approve="ask"
    )
    await frontend.say(session_id)
    request = await frontend.request_opened(session_id)
    others = [await Frontend.connect(daemon, nursery, name) for name in ("phone", "editor")]
    for other in others:
        other.follow(session_id)
        assert await other.request_opened(session_id) == request
        assert (await other.snapshot(session_id)).requests == [request]
        listed = await other.must(SessionList(str(workspace)))
        assert isinstance(listed, SessionListResult)
        assert listed.sessions[0].requests == (request,)
    answers: dict[str, AnyAnswer] = {}

    async def answer(one: Frontend) -> None:
        answers[one.name] = await one.ask(Answer(request.id, "once"))

    async with trio.open_nursery() as answering:
        for one in (frontend, *others):
            answering.start_soon(answer, one)
    (winner,) = [name for name, said in answers.items() if isinstance(said, Accepted)]
    told = [said for said in answers.values() if isinstance(said, Rejected)]
    assert [(said.code, said.data) for said in told] == [_resolved_by(winner)] * 2
    for one in (frontend, *others):
        assert (await one.turn_ended(session_id)).outcome == "completed"
        (resolved,) = _resolved(one, session_id)
        assert (resolved.request_id, resolved.by) == (request.id, winner)
        late = await one.refused(Answer(request.id, "reject", "no"))
        assert (late.code, late.data) == _resolved_by(winner)
    assert (workspace / "asked").exists()
    for other in others:
        await other.close()


@pytest.mark.parametrize("end", ["kill", "sigterm"])
@pytest.mark.promise("B40")
async def test_all_of_it_also_after_a_restart(
    new_daemon: Callable[[], Daemon], workspace: Path, nursery: trio.Nursery, end: str
) -> None:
    """A request that was answered, one that the end of the daemon cancelled, and a new one.

    Whoever attaches after a restart sees how each of them ended; a late answer is told so too.
    """
    daemon = new_daemon()
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery, "first")
    session_id = await frontend.session(
        workspace, *[calls(bash("touch asked"))] * 2, always("I see"), approve="ask"
    )
    await frontend.say(session_id)
    answered = await frontend.request_opened(session_id)
    await frontend.must(Answer(answered.id, "once"))
    left_open = await frontend.request_opened(session_id, 2)
    for _ in range(2):
        if end == "kill":
            daemon.kill9()
        else:
            await daemon.terminate()
        daemon.start()
        await frontend.reconnect()
        late = await frontend.refused(Answer(answered.id, "once"))
        assert (late.code, late.data) == _resolved_by("first")
        late = await frontend.refused(Answer(left_open.id, "once"))
        assert (late.code, late.data) == _resolved_by("", "cancelled")
    second = await Frontend.connect(daemon, nursery, "second")
    second.follow(session_id)
    assert await second.request_opened(session_id, 2) == left_open
    await second.turn_ended(session_id)
    assert [(r.request_id, r.resolution) for r in _resolved(second, session_id)] == [
        (answered.id, "once"), (left_open.id, "cancelled"),
    ]  # fmt: skip
    for one in (second, frontend):
        await one.close()


def _resolved_by(who: str, resolution: str = "once") -> tuple[str, dict[str, str]]:
    return "already_resolved", {"resolution": resolution, "by": who}


@pytest.mark.promise("B36")
async def test_always_resolves_other_requests_that_now_match(
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


async def test_always_does_not_undo_a_denial_of_something_narrower(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(
        workspace,
        calls(bash("touch a")),
        calls(bash("touch b")),
        calls(bash("touch kept.lock")),
        text("done"),
        approve="ask",
        permissions=(Rule("bash", "touch *", "ask"), Rule("bash", "touch *.lock", "deny")),
    )
    await frontend.say(session_id)
    opened = await frontend.request_opened(session_id)
    await frontend.must(Answer(opened.id, "always"))
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    told = [call.output for call in calls_in(frontend.requests(session_id)[-1].items)]
    assert [(workspace / name).exists() for name in ("a", "b", "kept.lock")] == [True, True, False]
    assert "touch *.lock" in told[-1]
    assert len(_opened(frontend, session_id)) == 1


@pytest.mark.promise("B37")
async def test_a_rejection_without_a_reason_ends_the_turn_blocked(
    frontend: Frontend, workspace: Path
) -> None:
    """Reject without a reason → the other open requests are rejected too; `blocked`."""
    session_id = await _asked_twice(frontend, workspace)
    await frontend.must(Answer(_about_cat(frontend, session_id), "reject", " "))
    assert (await frontend.turn_ended(session_id)).outcome == "blocked"
    assert [r.resolution for r in _resolved(frontend, session_id)] == ["reject", "reject"]
    await frontend.say(session_id, "go on")
    assert (await frontend.turn_ended(session_id, 2)).outcome == "completed"
    calls_ = calls_in(frontend.requests(session_id)[-1].items)
    assert [call.error_kind for call in calls_] == ["denied", "denied", "skipped"]
    assert [call.output for call in calls_[:2]] == ["rejected by the user"] * 2
    assert not (workspace / "never").exists()


@pytest.mark.promise("B37")
async def test_a_rejection_with_a_reason_is_the_result_of_that_call_only(
    frontend: Frontend, workspace: Path
) -> None:
    """Reject with a reason → the model gets it and goes on; the other request stays open."""
    session_id = await _asked_twice(frontend, workspace)
    await frontend.must(Answer(_about_cat(frontend, session_id), "reject", "use b.txt"))
    (other,) = (await frontend.snapshot(session_id)).requests
    assert other.title == "Read a.env"
    await frontend.must(Answer(other.id, "once"))
    await frontend.must(Answer((await frontend.request_opened(session_id, 3)).id, "once"))
    ended = await frontend.turn_ended(session_id)
    assert (ended.outcome, ended.last_message) == ("completed", "I see")
    read_it, refused, touched = calls_in(frontend.requests(session_id)[-1].items)
    assert (refused.error_kind, refused.output) == ("denied", "rejected by the user: use b.txt")
    assert [read_it.state, touched.state] == ["completed", "completed"]
    assert (workspace / "never").exists()


async def _asked_twice(frontend: Frontend, workspace: Path) -> str:
    """A session whose two calls that read ask beside each other; a third one waits for them."""
    (workspace / "a.env").write_text("secret\n")
    session_id = await frontend.session(
        workspace,
        calls(read("a.env"), bash("cat a.env"), bash("touch never")),
        text("I see"),
        approve="ask",
    )
    await frontend.say(session_id)
    await frontend.request_opened(session_id, 2)
    return session_id


def _about_cat(frontend: Frontend, session_id: str) -> str:
    return next(r.id for r in _opened(frontend, session_id) if "cat a.env" in r.title)


AROUND_LS = (
    "ls && rm -rf x",
    "ls || rm -rf x",
    "ls; rm -rf x",
    "ls & rm -rf x",
    "ls\nrm -rf x",
    "ls | xargs rm -rf",
    "ls x | rm -rf x",
    "ls > x",
    "ls >> x",
    "ls 2>x",
    "ls $(rm -rf x)",
    'ls "$(rm -rf x)"',
    "ls `rm -rf x`",
    "ls <(rm -rf x)",
    "(ls; rm -rf x)",
    "{ ls; rm -rf x; }",
    "if ls; then rm -rf x; fi",
    "env A=b rm -rf x",
    "A=b rm -rf x",
    "env -S 'rm -rf x'",
    "sh -c 'rm -rf x'",
    "bash -lc 'ls; rm -rf x'",
    "ls() { rm -rf x; }; ls",
    "ls 'unfinished",
)
"""What begins with, holds or pretends to be an allowed `ls`."""


@pytest.mark.promise("B38")
async def test_an_allowed_command_takes_nothing_else_with_it(
    frontend: Frontend, workspace: Path
) -> None:
    """`ls && rm -rf x` with `ls` allowed → still asks; so does every other way to join them.

    The rule is as loose as a user can write it; `ls` itself, alone and joined to itself, is free.
    """
    (workspace / "x").mkdir()
    free = ("ls", "ls -l x", "ls && ls -a", "ls | ls")
    session_id = await frontend.session(
        workspace,
        calls(*(bash(command) for command in free)),
        text("free"),
        *(calls(bash(command)) for command in AROUND_LS),
        approve="ask",
        permissions=(Rule("bash", "ls*", "allow"),),
    )
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).last_message == "free"
    assert _opened(frontend, session_id) == []
    for number, command in enumerate(AROUND_LS, start=1):
        await frontend.say(session_id, "and now")
        request = await frontend.request_opened(session_id, number)
        assert (request.permission, request.subjects) == ("bash", (command,))
        await frontend.must(Answer(request.id, "reject"))
        assert (await frontend.turn_ended(session_id, number + 1)).outcome == "blocked"
    assert (workspace / "x").is_dir()


@pytest.mark.promise("B39")
async def test_what_a_rule_denies_is_not_run_and_nobody_is_asked(
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


@pytest.mark.promise("B58")
async def test_a_call_is_judged_when_the_calls_before_it_have_ended(
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
    assert (asked.detail_kind, asked.detail.splitlines()[-2]) == ("diff", "+x")
    await frontend.must(Answer(asked.id, "reject"))
    await frontend.turn_ended(session_id)
    assert not list(outside.iterdir())


@pytest.mark.parametrize(
    ("command", "permission"),
    [
        ("--- a\nrm b\n+++ c\n@@ d\n", "bash"),
        ("cat {outside}\n  #  and  more\n", "external_directory"),
    ],
)
async def test_a_request_about_a_command_has_all_of_it_whatever_it_is_that_asks(
    frontend: Frontend, workspace: Path, tmp_path: Path, command: str, permission: str
) -> None:
    (outside := tmp_path / "outside").write_text("x")
    command = command.format(outside=outside)
    session_id = await frontend.session(
        workspace, calls(bash(command)), text("done"), approve="ask"
    )
    await frontend.say(session_id)
    await frontend.request_opened(session_id, 1)
    (asked,) = _opened(frontend, session_id)
    assert (asked.permission, asked.detail_kind) == (permission, "command")
    assert asked.detail == command
    assert "\n" not in asked.title
    await frontend.must(Answer(asked.id, "reject"))
    await frontend.turn_ended(session_id)


@pytest.mark.promise("B58")
async def test_what_changes_while_it_is_asked_about_does_not_run(
    frontend: Frontend, workspace: Path, tmp_path: Path
) -> None:
    """A path that changes its target after the user's approval is not followed."""
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
    assert "changed while it waited for approval" in call.output
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


@pytest.mark.nightly
async def test_what_is_allowed_for_good_is_kept_listed_and_revoked_from_the_command_line(
    new_daemon: Callable[..., Daemon], nursery: trio.Nursery, workspace: Path
) -> None:
    """In the user's own directory, not in the project; a restart changes nothing."""
    daemon = new_daemon()
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    steps = (calls(write("made.txt", "1\n")), text("done"))
    session_id = await frontend.session(workspace, *steps, approve="ask")
    await frontend.say(session_id)
    request = await frontend.request_opened(session_id)
    assert request.always_here == str(workspace)
    answered = await _tiller(daemon, "answer", request.id, "always_here")
    assert answered.returncode == 0, answered.stderr
    await frontend.turn_ended(session_id)
    assert (daemon.places.config / "rules.json").stat().st_mode & 0o777 == 0o600
    assert not (workspace / ".tiller").exists()
    (workspace / "made.txt").unlink()
    await frontend.close()

    await daemon.terminate()
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    again = await frontend.session(workspace, *steps, approve="ask")
    await frontend.say(again)
    assert (await frontend.turn_ended(again)).outcome == "completed"
    listed = await _tiller(daemon, "rules", "-C", str(workspace))
    place, rule = listed.stdout.decode().splitlines()
    assert (place, rule.split()[1:3]) == (str(workspace), ["write", "*"])
    revoked = await _tiller(daemon, "rules", "revoke", rule.split()[0])
    assert revoked.returncode == 0, revoked.stderr
    (workspace / "made.txt").unlink()
    third = await frontend.session(workspace, *steps, approve="ask")
    await frontend.say(third)
    await frontend.must(Answer((await frontend.request_opened(third)).id, "reject"))
    await frontend.turn_ended(third)
    await frontend.close()


async def _tiller(daemon: Daemon, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "tiller_client", *arguments]
    return await trio.run_process(
        command, check=False, capture_stdout=True, capture_stderr=True, env=daemon.variables
    )
