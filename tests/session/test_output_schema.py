"""An answer that must fit a schema (B10) is checked and repaired once; bad schemas are refused."""

import json

import pytest

from tiller_daemon.models.scripted import CallPart, ScriptStep, TextPart
from tiller_protocol.events import TurnStarted
from tiller_protocol.items import Notice
from tiller_protocol.ops import UserInput
from tiller_protocol.settings import TurnOverrides

SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer"}},
    "required": ["answer"],
}
BY_SCHEMA = TurnOverrides(output_schema=SCHEMA)


def text(words: str) -> ScriptStep:
    return ScriptStep(parts=(TextPart(words),))


def look() -> ScriptStep:
    return ScriptStep(parts=(TextPart("first I look"), CallPart("look")))


@pytest.mark.promise("B10")
async def test_a_message_that_fits_completes_the_turn(autojump_clock, start):
    world, session_id = await start(look(), text('{"answer": 42}'), text("as you like"))
    await world.say(session_id, "go", overrides=BY_SCHEMA)
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.last_message) == ("completed", '{"answer": 42}')
    assert [request.output_schema for request in world.model.requests] == [SCHEMA, SCHEMA]
    await world.say(session_id, "and now without")
    assert (await world.ended(session_id, 2)).last_message == "as you like"


@pytest.mark.promise("B10")
async def test_a_code_fence_around_it_is_taken_off_for_the_frontend(autojump_clock, start):
    world, session_id = await start(text('```json\n{"answer": 42}\n```\n'))
    await world.say(session_id, "go", overrides=BY_SCHEMA)
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.last_message) == ("completed", '{"answer": 42}')


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("forty-two", "it is not JSON"),
        ('{"answer": "42"}', "at $.answer: '42' is not of type 'integer'"),
        ("{}", "'answer' is a required property"),
    ],
)
@pytest.mark.promise("B10")
async def test_a_mismatch_is_told_to_the_model_which_has_one_more_try(
    autojump_clock, start, said, problem
):
    world, session_id = await start(text(said), look(), text('{"answer": 42}'))
    await world.say(session_id, "go", overrides=BY_SCHEMA)
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.last_message) == ("completed", '{"answer": 42}')
    notice = world.model.requests[1].items[-1]
    assert isinstance(notice, Notice)
    assert problem in notice.text
    assert '"required":["answer"]' in notice.text


@pytest.mark.promise("B10")
async def test_of_a_schema_all_but_its_regular_expressions_is_required(autojump_clock, start):
    hangs = json.dumps({"answer": "a" * 60 + "!"})
    world, session_id = await start(text('{"answer": 1}'), text(hangs))
    slow = {"properties": {"answer": {"type": "string", "pattern": "^(a+)+$"}}}
    await world.say(session_id, "go", overrides=TurnOverrides(output_schema=slow))
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.steps, ended.last_message) == ("completed", 2, hangs)


@pytest.mark.promise("B10")
async def test_a_second_mismatch_fails_the_turn_and_says_why(autojump_clock, start):
    world, session_id = await start(text("no"), text('{"answer": null}'), text("next"))
    await world.say(session_id, "go", overrides=BY_SCHEMA)
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.steps) == ("failed", 2)
    assert ended.error.code == "output_schema"
    assert "$.answer" in ended.error.message
    await world.say(session_id, "go on")
    assert (await world.ended(session_id, 2)).outcome == "completed"


@pytest.mark.promise("B10")
async def test_the_last_permitted_step_is_not_repaired(autojump_clock, start):
    world, session_id = await start(text("no"))
    one_step = TurnOverrides(output_schema=SCHEMA, max_steps=1)
    await world.say(session_id, "go", overrides=one_step)
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.error.code, ended.steps) == ("failed", "output_schema", 1)


@pytest.mark.promise("B10")
async def test_what_waits_in_the_queue_is_taken_when_the_answer_fits(autojump_clock, start):
    slow = ScriptStep(parts=(CallPart("look", arguments={"seconds": 5}),))
    world, session_id = await start(slow, text("no"), text('{"answer": 1}'), text('{"answer": 2}'))
    await world.say(session_id, "go", overrides=BY_SCHEMA)
    await world.until_body(session_id, TurnStarted)
    await world.say(session_id, "and another", delivery="queue")
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.last_message) == ("completed", '{"answer": 2}')


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "nonsense"}, "$.type"),
        ({"properties": {"a": {"minimum": "1"}}}, "$.properties.a.minimum"),
        ({"pattern": 1}, "$.pattern"),
        ({"$ref": "#"}, "form a loop"),
        ({"$ref": "#/$defs/missing"}, "does not resolve"),
        ({"items": {"$ref": "http://127.0.0.1:9/schema.json"}}, "does not resolve"),
    ],
)
@pytest.mark.promise("B10")
async def test_a_bad_schema_is_rejected_before_anything_happens(
    autojump_clock, start, schema, problem
):
    world, session_id = await start()
    overrides = TurnOverrides(output_schema=schema)
    refused = await world.refused(UserInput(session_id, "go", overrides=overrides))
    assert refused.code == "invalid_settings"
    assert problem in refused.message
    assert len(await world.events(session_id)) == 1


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array"},
        {"$defs": {"n": {"type": "array"}}, "$ref": "#/$defs/n"},
        {"$id": "https://example.org/s", "$anchor": "here", "items": {"$ref": "#here"}},
    ],
    ids=["draft 7", "definitions", "anchor"],
)
@pytest.mark.promise("B10")
async def test_schemas_of_other_drafts_and_with_references_are_taken(autojump_clock, start, schema):
    world, session_id = await start(text("[[]]"))
    await world.say(session_id, "go", overrides=TurnOverrides(output_schema=schema))
    assert (await world.ended(session_id)).outcome == "completed"
