"""Sub-agents over the wire: their processes end with them, and users can answer their requests."""

from pathlib import Path

import pytest

from e2e.test_interrupt import STUBBORN
from e2e.words import bash, calls, text
from support.daemon import Daemon, gone
from support.frontend import Frontend
from support.narrowing import of_kind
from tiller_daemon.models.scripted import CallPart, ScriptStep
from tiller_protocol.answers import SessionListResult
from tiller_protocol.events import (
    Event,
    ItemDelta,
    RequestResolved,
    ToolCallUpdated,
    TurnEnded,
)
from tiller_protocol.items import SubAgent, ToolCall
from tiller_protocol.ops import Answer, Interrupt, SessionList


@pytest.fixture
def helper(daemon: Daemon, workspace: Path):
    """Return a function that makes the user's agent `helper` play these steps."""

    def make(*steps: ScriptStep, **fields: str) -> None:
        agents = daemon.places.config / "agents"
        agents.mkdir(exist_ok=True)
        head = {"description": "helps", "model": daemon.script(*steps), **fields}
        lines = "\n".join(f"{key}: {value}" for key, value in head.items())
        (agents / "helper.md").write_text(f"---\n{lines}\n---\nYou help.\n")

    return make


def task(prompt: str = "help me") -> CallPart:
    """Return a task for the agent `helper`."""
    return CallPart("task", arguments={"prompt": prompt, "agent": "helper"})


async def child_of(frontend: Frontend, session_id: str) -> str:
    """Return the session of the only sub-agent, and follow it from its first event."""
    event = await frontend.until(session_id, _names_sub_agent)
    child = linked(of_kind(ToolCallUpdated, event.body))
    frontend.follow(child)
    return child


@pytest.mark.promise("B29")
async def test_an_interrupt_ends_the_sub_agent_its_call_and_every_process_below(
    frontend: Frontend, workspace: Path, helper
) -> None:
    """Parent interrupted → its sub-agents, their calls and their processes end before it ends."""
    helper(calls(bash(STUBBORN)), text("never said"))
    parent = await frontend.session(workspace, calls(task()), text("done"))
    await frontend.say(parent)
    child = await child_of(frontend, parent)
    await frontend.until(child, lambda _: len(pids(frontend, child)) == 3)
    await frontend.must(Interrupt(parent))
    ended = await frontend.until_body(parent, TurnEnded)
    assert [pid for pid in pids(frontend, child) if not gone(pid)] == []
    assert of_kind(TurnEnded, ended.body).outcome == "interrupted"
    of_child = await frontend.until_body(child, TurnEnded)
    assert of_kind(TurnEnded, of_child.body).outcome == "interrupted"
    assert of_child.time <= ended.time
    (call,) = frontend.completed_calls(parent)
    assert call.error_kind == "aborted"
    assert child in call.output


async def test_the_request_of_a_sub_agent_is_answered_by_whoever_watches_its_owner(
    frontend: Frontend, workspace: Path, helper
) -> None:
    """The request is open in both sessions under one id; one answer closes it in both."""
    helper(calls(bash("touch made")), text("made it"))
    parent = await frontend.session(workspace, calls(task()), text("done"), approve="ask")
    await frontend.say(parent)
    request = await frontend.request_opened(parent)
    assert request.subjects == ("touch made",)
    await frontend.must(Answer(request.id, "once"))
    resolved = await frontend.until_body(parent, RequestResolved)
    assert of_kind(RequestResolved, resolved.body).resolution == "once"
    assert (await frontend.turn_ended(parent)).outcome == "completed"
    assert (workspace / "made").exists()
    (call,) = frontend.completed_calls(parent)
    assert call.output.startswith("made it")


async def test_sub_agents_are_listed_with_their_owner_and_not_among_the_users_sessions(
    frontend: Frontend, workspace: Path, helper
) -> None:
    """`session_list` lists the user's sessions, or with `owner_id` a session's sub-agents."""
    helper(text("here I am"))
    parent = await frontend.session(workspace, calls(task()), text("done"))
    await frontend.say(parent)
    await frontend.turn_ended(parent)
    (call,) = frontend.completed_calls(parent)
    mine = await frontend.must(SessionList(str(workspace)))
    below = await frontend.must(SessionList(str(workspace), owner_id=parent))
    assert isinstance(mine, SessionListResult)
    assert isinstance(below, SessionListResult)
    assert [one.session_id for one in mine.sessions] == [parent]
    assert [one.session_id for one in below.sessions] == [linked(call)]
    everything = await frontend.must(SessionList(str(workspace), sub_agents=True))
    assert isinstance(everything, SessionListResult)
    assert {one.session_id for one in everything.sessions} == {parent, linked(call)}


def linked(call: ToolCall | ToolCallUpdated) -> str:
    """Return the session of the sub-agent that this call has started."""
    return of_kind(SubAgent, call.sub_agent).session_id


def _names_sub_agent(event: Event) -> bool:
    return bool(getattr(event.body, "sub_agent", None))


def pids(frontend: Frontend, session_id: str) -> list[int]:
    """Return the pids that a running command has printed as `pid N`."""
    bodies = [event.body for event in frontend.events(session_id)]
    pieces = [b.delta for b in bodies if isinstance(b, ItemDelta) and b.channel == "output"]
    lines = "".join(pieces).split("\n")[:-1]
    return [int(line.removeprefix("pid ")) for line in lines if line.startswith("pid ")]
