"""The user's own command (`shell`), and input without a reply, through the whole core."""

import trio
from msgspec import structs

from support.narrowing import of_kind
from support.wires import check_on_every_wire
from tiller_daemon.config import Agent
from tiller_daemon.models.scripted import CallPart, ScriptStep, TextPart
from tiller_protocol.answers import Started, Steered
from tiller_protocol.events import (
    ItemCompleted,
    ItemDelta,
    RequestOpened,
    StepStarted,
    ToolCallUpdated,
    TurnStarted,
)
from tiller_protocol.items import Notice, ToolCall, UserMessage
from tiller_protocol.ops import Interrupt, SessionGet, Shell, UserInput
from tiller_protocol.settings import Rule


def text(words: str) -> ScriptStep:
    return ScriptStep(parts=(TextPart(words),))


async def until_running(world, session_id):
    await world.until(
        session_id, lambda e: isinstance(e.body, ToolCallUpdated) and e.body.state == "running"
    )


async def test_a_command_of_the_user_is_a_turn_without_a_step(autojump_clock, start):
    world, _ = await start()
    session_id = await world.session(approve="never", permissions=(Rule("*", "*", "deny"),))
    started = await world.must(Shell(session_id, "2 hello"))
    ended = await world.ended(session_id)
    assert isinstance(started, Started)
    assert (ended.outcome, ended.steps, ended.duration_s) == ("completed", 0, 2.0)
    bodies = [e.body for e in world.published[session_id] if e.turn_id == started.turn_id]
    assert not [b for b in bodies if isinstance(b, StepStarted | RequestOpened)]
    assert [b.delta for b in bodies if isinstance(b, ItemDelta)] == ["hello"]
    (item,) = [b.item for b in bodies if isinstance(b, ItemCompleted)]
    call = of_kind(ToolCall, item)
    assert (call.name, call.state, call.output, call.by_user) == (
        "bash",
        "completed",
        "hello",
        True,
    )
    assert (call.exit_status, ended.last_message) == (0, "hello")
    assert world.model.requests == []


async def test_the_model_is_told_of_it_in_a_history_that_is_valid(autojump_clock, start):
    call = ScriptStep(parts=(CallPart("look", arguments={"say": "found"}),))
    world, session_id = await start(call, text("one"), text("two"))
    await world.must(Shell(session_id, "0 first"))
    await world.ended(session_id)
    await world.say(session_id, "go")
    await world.ended(session_id, 2)
    await world.must(Shell(session_id, "0 fail"))
    assert (await world.ended(session_id, 3)).outcome == "completed"
    await world.say(session_id, "why?")
    await world.ended(session_id, 4)
    for request in world.model.requests:
        check_on_every_wire(request)
    *_, failed, asked = world.model.requests[-1].items
    assert isinstance(failed, Notice)
    assert "The user ran this command:\n0 fail\n" in failed.text
    assert isinstance(asked, UserMessage)
    calls = [i for i in world.model.requests[-1].items if isinstance(i, ToolCall)]
    assert [one.name for one in calls] == ["look"]


async def test_a_command_is_interrupted_and_what_it_said_stays(autojump_clock, start):
    world, session_id = await start(text("ok"))
    await world.must(Shell(session_id, "50 half"))
    await until_running(world, session_id)
    await trio.sleep(3)
    await world.must(Interrupt(session_id))
    assert (await world.ended(session_id)).outcome == "interrupted"
    assert not world.usage.running
    await world.say(session_id, "go")
    await world.ended(session_id, 2)
    notice = world.model.requests[0].items[0]
    assert "aborted after 3.0 s" in notice.text
    assert "half" in notice.text


async def test_a_command_is_not_steered_and_input_waits_for_its_end(autojump_clock, start):
    world, session_id = await start(text("ok"))
    await world.must(Shell(session_id, "5 x"))
    steered = await world.refused(UserInput(session_id, "left", delivery="steer"))
    assert (steered.code, steered.data["input"]["text"]) == ("turn_not_steerable", "left")
    assert (await world.refused(Shell(session_id, "0 y"))).code == "busy"
    assert isinstance(await world.say(session_id, "next"), Started)
    await world.ended(session_id, 2)
    starts = [e.time for e in world.published[session_id] if isinstance(e.body, TurnStarted)]
    assert starts[1] - starts[0] == 5


async def test_a_command_needs_words_and_a_session_at_rest(autojump_clock, start):
    slow = ScriptStep(parts=(CallPart("look", arguments={"seconds": 5}),))
    world, session_id = await start(slow, text("ok"))
    assert (await world.refused(Shell(session_id, " \n"))).code == "empty_input"
    await world.say(session_id, "go")
    assert (await world.refused(Shell(session_id, "0 x"))).code == "busy"
    await world.ended(session_id)


async def test_a_command_runs_whatever_tools_the_agent_has(autojump_clock, start):
    world, session_id = await start(text("ok"))
    agents = {"build": Agent(tools=("look",))}
    world.configuration = structs.replace(world.configuration, agents=agents)
    await world.must(Shell(session_id, "0 hello"))
    assert (await world.ended(session_id)).outcome == "completed"
    assert len(world.usage.begun) == 1


async def test_a_command_that_ran_when_the_daemon_was_killed_is_lost_and_not_repeated(
    autojump_clock, start, nursery
):
    world, session_id = await start(text("ok"))
    await world.must(Shell(session_id, "50 half"))
    await until_running(world, session_id)
    await world.kill()
    await world.boot(nursery)
    snapshot = (await world.must(SessionGet(session_id))).snapshot
    (call,) = [i for i in snapshot.items if isinstance(i, ToolCall)]
    assert (call.state, call.error_kind, len(world.usage.begun)) == ("error", "lost", 1)


async def test_input_without_a_reply_enters_history_and_starts_no_turn(autojump_clock, start):
    world, session_id = await start(text("ok"))
    assert await world.say(session_id, "for later", no_reply=True) is None
    await trio.sleep(100)
    assert (await world.must(SessionGet(session_id))).snapshot.status == "idle"
    assert not [e for e in world.published[session_id] if isinstance(e.body, TurnStarted)]
    await world.say(session_id, "now")
    await world.ended(session_id)
    assert [i.text for i in world.model.requests[0].items] == ["for later", "now"]
    check_on_every_wire(world.model.requests[0])


async def test_input_without_a_reply_steers_a_turn_and_waits_for_no_queue(autojump_clock, start):
    slow = ScriptStep(parts=(CallPart("look", arguments={"seconds": 5}),))
    world, session_id = await start(slow, text("ok"))
    steer = UserInput(session_id, "x", delivery="steer", no_reply=True)
    assert (await world.refused(steer)).code == "no_active_turn"
    await world.say(session_id, "go")
    assert isinstance(await world.say(session_id, "by the way", no_reply=True), Steered)
    queue = UserInput(session_id, "x", delivery="queue", no_reply=True)
    assert (await world.refused(queue)).code == "bad_message"
    await world.ended(session_id)
    assert [i.text for i in world.model.requests[1].items if isinstance(i, UserMessage)] == [
        "go",
        "by the way",
    ]
