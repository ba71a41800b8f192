"""A session's branch, how full its context is, and from which session it was forked."""

import subprocess
from pathlib import Path

from e2e.words import always
from support.frontend import Frontend
from tiller_daemon.models.scripted import ScriptedUsage, ScriptStep, TextPart
from tiller_protocol.answers import Created, SessionListResult
from tiller_protocol.events import StepEnded, TurnStarted
from tiller_protocol.ops import SessionFork, SessionList
from tiller_protocol.snapshot import SessionSummary


def git(workspace: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=workspace, check=True, capture_output=True)


async def summary(frontend: Frontend, session_id: str) -> SessionSummary:
    listed = await frontend.must(SessionList())
    assert isinstance(listed, SessionListResult)
    return next(one for one in listed.sessions if one.session_id == session_id)


async def test_a_turn_ends_with_its_branch_and_how_much_of_the_context_it_uses(
    frontend: Frontend, workspace: Path
) -> None:
    counted = ScriptStep(
        parts=(TextPart("one"),), usage=ScriptedUsage(input_tokens=300, output_tokens=20)
    )
    session = await frontend.session(workspace, counted, counted, counted)
    await frontend.say(session)
    on_master = await frontend.turn_ended(session)
    git(workspace, "checkout", "-q", "-b", "main")
    await frontend.say(session)
    on_main = await frontend.turn_ended(session, 2)
    git(workspace, "checkout", "-q", "-b", "fix/login")
    await frontend.say(session)
    on_fix = await frontend.turn_ended(session, 3)
    branches = [ended.branch for ended in (on_master, on_main, on_fix)]
    assert branches == ["master", "main", "fix/login"]
    events = frontend.events(session)
    usage = [event.body.usage for event in events if isinstance(event.body, StepEnded)]
    contexts = [event.body.context for event in events if isinstance(event.body, TurnStarted)]
    assert on_fix.context_tokens == usage[-1].tokens == 320
    assert on_fix.context_window == contexts[-1].context_window > 0
    snapshot = await frontend.snapshot(session)
    assert (snapshot.branch, snapshot.context_window) == ("fix/login", on_fix.context_window)
    listed = await summary(frontend, session)
    assert (listed.branch, listed.context_tokens) == ("fix/login", 320)
    assert listed.context_window == on_fix.context_window


async def test_a_fork_knows_how_many_turns_it_shares(frontend: Frontend, workspace: Path) -> None:
    parent = await frontend.session(workspace, always("done"))
    for number in (1, 2):
        await frontend.say(parent)
        await frontend.turn_ended(parent, number)
    created = await frontend.must(SessionFork(parent))
    assert isinstance(created, Created)
    frontend.follow(created.session_id)
    await frontend.say(created.session_id)
    await frontend.turn_ended(created.session_id)
    fork = await frontend.snapshot(created.session_id)
    assert (fork.parent_id, fork.parent_turns, fork.turns) == (parent, 2, 1)
    assert (await frontend.snapshot(parent)).parent_turns == 0
    listed = await summary(frontend, created.session_id)
    assert (listed.parent_id, listed.parent_turns) == (parent, 2)
    assert (await summary(frontend, parent)).parent_id is None
