"""Tools that the provider runs, through the whole core: shown, kept, continued, never run here."""

from typing import TypeVar

import pytest

from support.wires import check_on_every_wire
from tiller_daemon.models.scripted import (
    CallPart,
    CitationPart,
    Failure,
    HostedCallPart,
    ScriptStep,
    TextPart,
)
from tiller_protocol.events import ItemCompleted, StepEnded, ToolCallUpdated, WarningRaised
from tiller_protocol.items import AssistantMessage, Citation, ToolCall, UserMessage
from tiller_protocol.ops import SessionGet
from tiller_protocol.settings import Rule, TurnOverrides

SEARCH = HostedCallPart("web_search", {"query": "cats"}, "Cats · https://example.com/")
SOURCE = CitationPart("https://example.com/", "Cats", "They exist.")
ANSWER = ScriptStep(parts=(TextPart("I look."), SEARCH, TextPart("Cats exist."), SOURCE))


Kind = TypeVar("Kind", AssistantMessage, ToolCall)


def completed(world, session_id, kind: type[Kind]) -> list[Kind]:
    bodies = (event.body for event in world.published[session_id])
    items = (body.item for body in bodies if isinstance(body, ItemCompleted))
    return [item for item in items if isinstance(item, kind)]


async def test_a_hosted_call_is_shown_kept_and_not_run(autojump_clock, start):
    world, session_id = await start(ANSWER, ScriptStep(parts=(TextPart("bye"),)))
    await world.say(session_id, "cats?")
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.steps, ended.last_message) == ("completed", 1, "Cats exist.")
    (call,) = completed(world, session_id, ToolCall)
    assert (call.name, call.state, call.by_provider) == ("web_search", "completed", True)
    assert (call.arguments, call.output) == ('{"query":"cats"}', "Cats · https://example.com/")
    messages = completed(world, session_id, AssistantMessage)
    assert [message.text for message in messages] == ["I look.", "Cats exist."]
    assert messages[1].citations == (Citation("https://example.com/", "Cats", "They exist."),)
    order = [type(item) for item in (await world.must(SessionGet(session_id))).snapshot.items]
    assert order == [UserMessage, AssistantMessage, ToolCall, AssistantMessage]
    await world.say(session_id, "thanks")
    await world.ended(session_id, 2)
    sent = world.model.requests[-1]
    assert not [item for item in sent.items if isinstance(item, ToolCall)]
    check_on_every_wire(sent)


async def test_people_see_the_call_before_the_text_about_it(autojump_clock, start):
    world, session_id = await start(ANSWER)
    await world.say(session_id, "cats?")
    await world.ended(session_id)
    done = [e.body.item for e in world.published[session_id] if isinstance(e.body, ItemCompleted)]
    kinds = [type(item) for item in done]
    assert kinds.index(ToolCall) < kinds.index(AssistantMessage)


async def test_a_call_that_failed_and_one_of_ours_in_one_response(autojump_clock, start):
    failed = HostedCallPart("web_fetch", {"url": "https://x/"}, "error: no", "failed")
    look = CallPart("look", arguments={"say": "found"})
    world, session_id = await start(
        ScriptStep(parts=(failed, look)), ScriptStep(parts=(TextPart("so"),))
    )
    await world.say(session_id, "go")
    assert (await world.ended(session_id)).outcome == "completed"
    theirs, ours = completed(world, session_id, ToolCall)
    assert (theirs.state, theirs.error_kind, theirs.output) == ("error", "failed", "error: no")
    assert (ours.name, ours.output, ours.by_provider) == ("look", "found", False)
    (sent,) = [item for item in world.model.requests[1].items if isinstance(item, ToolCall)]
    assert sent.name == "look"
    check_on_every_wire(world.model.requests[1])


async def test_a_paused_response_is_continued_before_any_steering(autojump_clock, start):
    paused = ScriptStep(
        parts=(TextPart("Wait."), HostedCallPart("web_search", {"query": "x"}, state="running")),
        finish="paused",
    )
    result = HostedCallPart("web_search", output="X · https://x/", call_id="hosted_0_web_search")
    world, session_id = await start(paused, ScriptStep(parts=(result, TextPart("X."))))
    await world.say(session_id, "x?")
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.steps, ended.last_message) == ("completed", 2, "X.")
    steps = [e.body for e in world.published[session_id] if isinstance(e.body, StepEnded)]
    assert [step.finish_reason for step in steps] == ["paused", "stop"]
    before, after = completed(world, session_id, ToolCall)
    assert before.output == "The response ended before the provider reported a result."
    assert (after.output, after.call_id) == ("X · https://x/", before.call_id)
    again = world.model.requests[1].items
    assert not [item for item in again[1:] if isinstance(item, UserMessage)]


async def test_a_pause_at_the_limit_of_steps_ends_the_turn(autojump_clock, start):
    paused = ScriptStep(parts=(TextPart("Wait."),), finish="paused", repeat=True)
    world, session_id = await start(paused)
    await world.say(session_id, "go", overrides=TurnOverrides(max_steps=3))
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.steps) == ("limit_reached", 3)


async def test_a_call_of_a_failed_attempt_is_discarded_unless_it_has_a_result(
    autojump_clock, start
):
    search = HostedCallPart("web_search", {"query": "y"}, state="running")
    broken = Failure("broken_stream", after_parts=2)
    parts = (SEARCH, search, TextPart("Cats."))
    world, session_id = await start(ScriptStep(parts=parts, failures=(broken,)))
    await world.say(session_id, "go")
    assert (await world.ended(session_id)).outcome == "completed"
    calls = completed(world, session_id, ToolCall)
    assert [(call.state, call.discarded) for call in calls] == [
        ("completed", False),
        ("error", True),
        ("completed", False),
        ("completed", False),
    ]
    updates = [e.body for e in world.published[session_id] if isinstance(e.body, ToolCallUpdated)]
    assert len([body for body in updates if body.state == "running"]) == 4


@pytest.mark.parametrize(
    ("fields", "offered"),
    [
        ({}, ["web_fetch", "web_search"]),
        ({"overrides": TurnOverrides(tools=("look", "web_search"))}, ["web_search"]),
        ({"overrides": TurnOverrides(tools=("look",))}, []),
    ],
)
async def test_what_is_configured_is_offered_unless_the_turn_names_its_tools(
    autojump_clock, start, fields, offered
):
    world, session_id = await start(ANSWER)
    world.hosted_tools = {"web_search": {"max_uses": 3}, "web_fetch": {}}
    await world.say(session_id, "go", **fields)
    await world.ended(session_id)
    sent = world.model.requests[0]
    assert sorted(sent.hosted_tools) == offered
    assert sent.hosted_tools.get("web_search", {"max_uses": 3}) == {"max_uses": 3}


async def test_a_rule_that_denies_a_hosted_tool_takes_it_away(autojump_clock, start):
    world, _ = await start(ANSWER)
    world.hosted_tools = {"web_search": {}, "web_fetch": {}}
    session_id = await world.session(permissions=(Rule("hosted_tool", "web_s*", "deny"),))
    await world.say(session_id, "go")
    await world.ended(session_id)
    assert list(world.model.requests[0].hosted_tools) == ["web_fetch"]


async def test_a_hosted_tool_replaces_ours_of_the_same_name(autojump_clock, start):
    """The APIs refuse two tools of one name."""
    world, session_id = await start(ANSWER)
    world.hosted_tools = {"look": {}}
    await world.say(session_id, "go")
    await world.ended(session_id)
    sent = world.model.requests[0]
    assert "look" not in {tool.name for tool in sent.tools}
    assert list(sent.hosted_tools) == ["look"]


async def test_a_model_gets_no_more_tools_than_it_takes_and_the_user_is_warned_once(
    autojump_clock, start
):
    world, session_id = await start(ANSWER, ANSWER)
    world.hosted_tools = {"web_search": {}}
    world.tools_max = 3
    for number in (1, 2):
        await world.say(session_id, "go")
        await world.ended(session_id, number)
    turns = [request for request in world.model.requests if request.purpose == "turn"]
    assert [len(request.tools) for request in turns] == [2, 2]
    bodies = [event.body for event in world.published[session_id]]
    (warning,) = [body for body in bodies if isinstance(body, WarningRaised)]
    assert warning.code == "mcp_tools"
    assert "takes 3 tools" in warning.message
