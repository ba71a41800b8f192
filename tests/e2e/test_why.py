"""Why a call was allowed: its events, its item and the command line say so."""

import subprocess
import sys
from pathlib import Path

import trio

from e2e.test_escalation import daemon
from e2e.test_sandbox import needs_sandbox
from e2e.words import bash, calls, read, text, write
from support.frontend import Frontend
from tiller_daemon.models.scripted import CallPart
from tiller_protocol.events import ToolCallUpdated
from tiller_protocol.items import Allowed, ToolCall
from tiller_protocol.ops import Answer
from tiller_protocol.settings import Rule

__all__ = ["daemon"]

pytestmark = needs_sandbox


async def calls_of(
    frontend: Frontend, workspace: Path, *parts: CallPart, **settings: object
) -> tuple[str, list[ToolCall]]:
    """Play one response with calls; return the session and the completed calls in order."""
    given = {"approve": "ask", **settings}
    session_id = await frontend.session(workspace, calls(*parts), text("done"), **given)
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    order: dict[str, ToolCall] = {call.id: call for call in frontend.completed_calls(session_id)}
    _check_events(frontend, session_id, order)
    return session_id, [order[item_id] for item_id in sorted(order)]


def _check_events(frontend: Frontend, session_id: str, ended: dict[str, ToolCall]) -> None:
    """Check that a completed call keeps the reasons it began with; later reasons are only added."""
    told: dict[str, tuple[Allowed, ...]] = {}
    for event in frontend.events(session_id):
        body = event.body
        if isinstance(body, ToolCallUpdated) and body.state == "running":
            told.setdefault(body.item_id, body.allowed)
    for item_id, call in ended.items():
        assert call.allowed[: len(told.get(item_id, ()))] == told.get(item_id, ())


def why(frontend: Frontend, session_id: str, call: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tiller_client", "show", "--why", call, session_id]
    return subprocess.run(
        command, env=frontend.daemon.variables, capture_output=True, text=True, check=False
    )


async def shown(frontend: Frontend, session_id: str, call: str) -> list[str]:
    done = await trio.to_thread.run_sync(why, frontend, session_id, call)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


async def test_a_call_says_which_rule_sandbox_or_judgement_allowed_it(
    frontend: Frontend, workspace: Path
) -> None:
    (workspace / "Makefile").write_text("test:\n\ttrue\n")
    rule = Rule("bash", "echo *", "allow")
    session_id, found = await calls_of(
        frontend,
        workspace,
        read("greeting.txt"),
        bash("cat greeting.txt | wc -l"),
        bash("make test"),
        bash("echo x > new && ls"),
        CallPart("plan", arguments={"items": []}),
        permissions=(rule, Rule("bash", "*> new*", "allow"), Rule("bash", "*", "allow")),
    )
    reads, pipes, makes, echoes, plans = found
    assert [(one.by, one.permission, one.subject) for one in reads.allowed] == [
        ("rule", "read", "greeting.txt")
    ]
    assert reads.allowed[0].rule == Rule("read", "*", "allow")
    assert [(one.by, one.permission) for one in pipes.allowed] == [
        ("grant", "bash"),
        ("rule", "read"),
    ]
    assert makes.allowed[0].by == "grant"
    assert echoes.allowed[0].by == "grant"
    assert echoes.allowed[0].rule in (rule, Rule("bash", "*", "allow"))
    assert plans.allowed == ()
    assert (await shown(frontend, session_id, "last"))[1:] == ["  it needs no permission"]
    lines = await shown(frontend, session_id, reads.id)
    assert lines[0].startswith("● read greeting.txt ok")
    assert lines[1].startswith("  allowed by a rule: `read` of `greeting.txt` is allowed.")


async def test_what_runs_unasked_in_a_sandbox_says_so(frontend: Frontend, workspace: Path) -> None:
    (workspace / "Makefile").write_text("test:\n\ttrue\n")
    session_id, (looks, builds) = await calls_of(
        frontend, workspace, bash("cat greeting.txt | wc -l"), bash("make test")
    )
    assert [(one.by, one.permission) for one in looks.allowed] == [
        ("reading", "bash"),
        ("rule", "read"),
    ]
    assert [(one.by, one.rule) for one in builds.allowed] == [("sandbox", None)]
    line = (await shown(frontend, session_id, "wc -l"))[1]
    assert line.startswith("  bash allowed because it only reads: `cat greeting.txt | wc -l` seems")
    (line,) = (await shown(frontend, session_id, "make"))[1:]
    assert line.startswith("  allowed by the sandbox: ")


async def test_an_answer_a_grant_and_a_no_are_told_apart(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(
        workspace,
        calls(write("one", "1\n")),
        calls(write("one", "2\n", "second")),
        calls(bash("./deploy.sh")),
        approve="ask",
    )
    await frontend.say(session_id)
    request = await frontend.request_opened(session_id)
    (line,) = [one for one in await shown(frontend, session_id, "write one") if "asked" in one]
    assert line.endswith("(open)")
    await frontend.must(Answer(request.id, "always"))
    await frontend.must(
        Answer((await frontend.request_opened(session_id, 2)).id, "reject", "not now")
    )
    await frontend.turn_ended(session_id)
    first, second, third = frontend.completed_calls(session_id)
    assert [(one.by, one.subject) for one in first.allowed] == [("user", "one")]
    reason = "You allowed it for the rest of the session. The answer came from e2e."
    assert first.allowed[0].reason == reason
    assert [(one.by, one.rule) for one in second.allowed] == [
        ("grant", Rule("write", "*", "allow", granted=True))
    ]
    assert third.allowed == ()
    lines = await shown(frontend, session_id, first.id[-8:])
    assert lines[1].startswith("  allowed by you: ")
    assert lines[2].endswith("→ always by e2e")
    lines = await shown(frontend, session_id, "second")
    assert lines[1].startswith("  allowed by a rule of this session: ")
    lines = await shown(frontend, session_id, "deploy")
    assert "it did not run: rejected by the user: not now" in lines[1]
    assert lines[2].endswith("→ reject by e2e: not now")


async def test_one_answer_to_two_needs_names_each_of_them(
    frontend: Frontend, workspace: Path
) -> None:
    steps = calls(bash("git push nowhere")), text("done")
    session_id = await frontend.session(workspace, *steps, approve="ask")
    await frontend.say(session_id)
    request = await frontend.request_opened(session_id)
    assert request.permission == "network"
    await frontend.must(Answer(request.id, "once"))
    await frontend.turn_ended(session_id)
    _, first, second, asked = await shown(frontend, session_id, "last")
    assert {first, second} == {
        f"  {permission} allowed by you: You allowed it. The answer came from e2e."
        for permission in ("bash", "network")
    }
    assert "→ once by e2e" in asked


async def test_a_stopped_command_that_ran_again_has_both_reasons(
    frontend: Frontend, workspace: Path
) -> None:
    writes = "find . -name 'greeting*' -fprint found"
    session_id = await frontend.session(workspace, calls(bash(writes)), text("done"), approve="ask")
    await frontend.say(session_id)
    await frontend.must(Answer((await frontend.request_opened(session_id)).id, "once"))
    await frontend.turn_ended(session_id)
    (call,) = frontend.completed_calls(session_id)
    assert [one.by for one in call.allowed if one.permission == "bash"] == ["reading", "user"]
    snapshot = await frontend.snapshot(session_id)
    assert [i.allowed for i in snapshot.items if isinstance(i, ToolCall)] == [call.allowed]


async def test_the_setting_that_allows_all_is_named_with_what_it_overrode(
    frontend: Frontend, workspace: Path
) -> None:
    _, (call,) = await calls_of(frontend, workspace, write("one", "1\n"), approve="always")
    (allowed,) = call.allowed
    assert (allowed.by, allowed.permission, allowed.rule) == ("approve", "write", None)
    assert "needs approval" in allowed.reason
    assert "`approve` is `always`" in allowed.reason


async def test_a_call_that_could_not_begin_says_what_was_in_the_way(
    frontend: Frontend, workspace: Path
) -> None:
    unread = CallPart("edit", arguments={"path": "greeting.txt", "old": "hello", "new": "bye"})
    session_id, _ = await calls_of(frontend, workspace, unread)
    line = (await shown(frontend, session_id, "last"))[1]
    assert line.startswith("  it did not run: greeting.txt exists and has not been read yet.")


async def test_a_call_that_is_not_there_is_named_in_the_error(
    frontend: Frontend, workspace: Path
) -> None:
    session_id, _ = await calls_of(frontend, workspace, read("greeting.txt"))
    done = await trio.to_thread.run_sync(why, frontend, session_id, "nothing like it")
    assert done.returncode == 2
    assert "'nothing like it'" in done.stderr
