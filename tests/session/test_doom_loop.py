"""The answer to a repeated call, and how the turn ends where nobody is asked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiller_daemon.models.scripted import CallPart, ScriptStep, TextPart
from tiller_daemon.policy import globs
from tiller_daemon.turn.decisions import SUBJECT_CHARS_MAX, repetition_subject
from tiller_protocol.events import RequestOpened
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import Request, ToolCall
from tiller_protocol.ops import Answer
from tiller_protocol.settings import Rule


def look(say: str) -> ScriptStep:
    return ScriptStep(parts=(CallPart("look", arguments={"say": say}),))


DONE = ScriptStep(parts=(TextPart("done"),))


def asked(world, session_id: str) -> list[Request]:
    bodies = [event.body for event in world.published[session_id]]
    return [body.request for body in bodies if isinstance(body, RequestOpened)]


@pytest.mark.promise("B9")
async def test_always_is_about_that_tool_with_these_arguments(autojump_clock, start):
    world, session_id = await start(*[look("a*")] * 5, *[look("ab")] * 3, DONE)
    await world.say(session_id, "go")
    opened = await world.until_body(session_id, RequestOpened)
    assert opened.body.request.subjects == ('look {"say":"a*"}',)
    assert opened.body.request.always == (r'look {"say":"a\*"}',)
    await world.must(Answer(opened.body.request.id, "always"))
    other = await world.until_body(session_id, RequestOpened, 2)
    assert other.body.request.subjects == ('look {"say":"ab"}',)
    await world.must(Answer(other.body.request.id, "once"))
    assert (await world.ended(session_id)).outcome == "completed"
    assert len(asked(world, session_id)) == 2


@pytest.mark.promise("B9")
async def test_where_nobody_is_asked_the_ending_says_what_happened(autojump_clock, start):
    world, _ = await start(*[look("a")] * 3, DONE)
    session_id = await world.session(approve="never")
    await world.say(session_id, "go")
    ended = await world.ended(session_id)
    assert ended.error is not None
    assert (ended.outcome, ended.error.code, ended.steps) == ("blocked", "doom_loop", 3)
    assert "`look` was called repeatedly with the same arguments" in ended.error.message
    assert "`approve` is `never`" in ended.error.message
    assert "user" not in ended.error.message
    assert asked(world, session_id) == []


@pytest.mark.promise("B9")
async def test_a_no_of_the_user_is_told_from_a_loop_about_which_nobody_is_asked(
    autojump_clock, start
):
    world, session_id = await start(*[look("a")] * 3, DONE)
    await world.say(session_id, "go")
    opened = await world.until_body(session_id, RequestOpened)
    await world.must(Answer(opened.body.request.id, "reject"))
    ended = await world.ended(session_id)
    assert ended.error is not None
    assert (ended.outcome, ended.error.code) == ("blocked", "rejected")


@pytest.mark.parametrize(("action", "outcome"), [("allow", "completed"), ("deny", "blocked")])
@pytest.mark.promise("B9")
async def test_a_rule_decides_by_the_name_of_the_tool(autojump_clock, start, action, outcome):
    world, _ = await start(*[look("a")] * 4, DONE)
    session_id = await world.session(permissions=(Rule("doom_loop", "look *", action),))
    await world.say(session_id, "go")
    ended = await world.ended(session_id)
    assert ended.outcome == outcome
    assert asked(world, session_id) == []
    if ended.error:
        assert "The rule is `doom_loop` `look *` deny." in ended.error.message


def made(arguments: str) -> ToolCall:
    return ToolCall(ItemId("i"), CallId("c"), "look", arguments, "pending")


texts = st.text(st.characters(exclude_characters='"\\', exclude_categories=("Cs",)))


@given(texts, texts)
@pytest.mark.promise("B9")
def test_two_calls_share_a_subject_only_if_they_are_the_same(one: str, other: str) -> None:
    """Also long ones, and ones with wildcards: a grant for one never covers another."""
    for before in ("", "x" * SUBJECT_CHARS_MAX):
        first = repetition_subject(made(f'"{before}{one}"'))
        second = repetition_subject(made(f'"{before}{other}"'))
        assert len(first) < 2 * SUBJECT_CHARS_MAX
        if one != other:
            assert not globs.matches(globs.escape(first), second)
        assert globs.matches(globs.escape(first), first)


@pytest.mark.promise("B9")
def test_the_order_of_arguments_does_not_matter() -> None:
    assert repetition_subject(made('{"a": 1, "b": 2}')) == repetition_subject(made('{"b":2,"a":1}'))
