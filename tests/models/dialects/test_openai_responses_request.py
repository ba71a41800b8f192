"""Items as Responses input: valid whatever the history, and nothing opaque goes to strangers."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.dialect_responses import check_responses_body, check_responses_input
from support.each import each
from support.responses_history import (
    NEWER,
    PIXEL,
    PLACE,
    SEARCH,
    SHELL,
    SHELL_OUTPUT,
    THOUGHT,
    USER,
    call,
    items,
    reply,
    request,
    texts,
    thought,
)
from tiller_daemon.models.base import ToolSpec
from tiller_daemon.models.dialects.opaque import Origin
from tiller_daemon.models.dialects.openai_responses.request import (
    API,
    ENCRYPTED_REASONING,
    build_body,
    build_input,
)
from tiller_daemon.models.dialects.openai_responses.schema import is_strict
from tiller_protocol.ids import ItemId
from tiller_protocol.items import (
    PDF,
    Compaction,
    Image,
    Item,
    Notice,
    Reasoning,
    ToolCall,
    UserMessage,
)


def body_of(*items: Item, **fields: Any) -> dict[str, Any]:
    return check_responses_body(build_body(request(*items, **fields), PLACE))


def built(*items: Item, **fields: Any) -> list[dict[str, Any]]:
    return body_of(*items, **fields)["input"]


def kinds(items: list[dict[str, Any]]) -> str:
    """`user`, `assistant` and the types of what is no message."""
    short = {"function_call": "call", "function_call_output": "output"}
    return " ".join(short.get(i["type"]) or i.get("role") or i["type"] for i in items)


def test_text_and_calls_of_one_response_are_followed_by_their_outputs() -> None:
    """B2: the second request holds the calls and their outputs under the same ids."""
    items = built(USER, reply("Let me look."), call("c1"), call("c2", output="two"), reply("Done"))
    assert kinds(items) == "user assistant call call output output assistant"
    assert items[1] == {"type": "message", "role": "assistant", "content": "Let me look."}
    assert [i["call_id"] for i in items[2:6]] == ["c1", "c2", "c1", "c2"]
    assert [i["output"] for i in items[4:6]] == ["text", "two"]


def test_calls_of_two_responses_stay_apart() -> None:
    items = built(USER, call("c1", ordinal=0), call("c2", ordinal=1), call("c3", ordinal=1))
    assert kinds(items) == "user call output call call output output"


def test_thinking_between_the_calls_of_one_response_keeps_its_place() -> None:
    items = built(
        USER,
        thought(THOUGHT),
        call("c1", ordinal=3),
        thought(SEARCH),
        reply("and"),
        call("c2", ordinal=3),
        thought(THOUGHT),
        call("c3", ordinal=4),
    )
    assert kinds(items) == (
        "user reasoning call web_search_call assistant call output output reasoning call output"
    )


def test_what_came_from_the_provider_goes_back_byte_for_byte_and_in_order() -> None:
    body = build_body(request(USER, thought(THOUGHT, SEARCH, NEWER), reply("yes")), PLACE)
    check_responses_body(body)
    assert b",".join((THOUGHT, SEARCH, NEWER)) in body


@each(
    "origin",
    [
        Origin("openai_chat", PLACE, "m"),
        Origin("anthropic_messages", PLACE, "m"),
        Origin(API, "https://api.openai.com/v1", "m"),
        Origin(API, PLACE, "m2"),
    ],
)
def test_what_came_from_another_wire_place_or_model_does_not_go_there(origin: Origin) -> None:
    items = built(USER, thought(THOUGHT, origin=origin), call())
    assert kinds(items) == "user call output"


def test_thinking_without_anything_opaque_is_not_told() -> None:
    bare = Reasoning(ItemId("r"), "hm", "completed")
    foreign = Reasoning(ItemId("r"), "hm", "completed", "EqoBCkgIARABGAIiQ")
    assert kinds(built(USER, bare, foreign, reply("yes"))) == "user assistant"


@pytest.mark.parametrize("state", ["interrupted", "discarded", "streaming"])
def test_thinking_of_a_response_that_did_not_end_well_does_not_go_back(state: str) -> None:
    items = built(USER, thought(THOUGHT, state=state), call())
    assert kinds(items) == "user call output"


def test_thinking_that_nothing_follows_in_its_response_does_not_go_back() -> None:
    """The server refuses reasoning "without its required following item", for ever."""
    assert kinds(built(USER, thought(THOUGHT))) == "user"
    assert kinds(built(USER, thought(THOUGHT), USER, reply("yes"))) == "user assistant"
    assert kinds(built(USER, call(), thought(SEARCH), USER)) == "user call output user"
    half = (USER, thought(THOUGHT), reply(""), call(discarded=True), USER, reply("yes"))
    assert kinds(built(*half)) == "user assistant"


def test_a_hosted_call_goes_back_with_its_output_or_not_at_all() -> None:
    items = built(USER, thought(SHELL, SHELL_OUTPUT), reply("yes"))
    assert kinds(items) == "user shell_call shell_call_output assistant"
    assert kinds(built(USER, thought(SHELL, THOUGHT), reply("yes"))) == "user reasoning assistant"
    assert kinds(built(USER, thought(SHELL_OUTPUT), reply("yes"))) == "user assistant"
    assert kinds(built(USER, reply("a"), thought(SHELL), reply("b"))) == "user assistant"


def test_messages_keep_their_phase_and_stay_apart() -> None:
    first = b'{"type":"message","phase":"commentary"}'
    second = b'{"type":"message","phase":"final_answer"}'
    items = built(
        USER,
        thought(THOUGHT, first),
        reply("I look."),
        thought(second),
        reply("Done."),
        USER,
    )
    assert kinds(items) == "user reasoning assistant assistant user"
    assert [i.get("phase") for i in items] == [None, None, "commentary", "final_answer", None]
    merged = built(USER, thought(first), reply("One."), thought(second), reply("Two."), model="x")
    assert merged[1]["content"] == "One.\n\nTwo."
    assert "phase" not in merged[1]


def test_a_longer_history_begins_with_the_same_items() -> None:
    """B44: what was sent is sent again as it was, so that a provider's cache holds."""
    history = [
        USER,
        thought(THOUGHT),
        call("c1", ordinal=0),
        thought(SEARCH),
        call("", ordinal=0),
        thought(THOUGHT),
        reply("One."),
        call("c1", ordinal=2),
        reply("Two."),
    ]
    shorter = built(*history[:5], system="be brief")
    assert built(*history, system="be brief")[: len(shorter)] == shorter


def test_a_call_without_a_result_is_given_one() -> None:
    """G4."""
    items = built(USER, call(state="running", output="so far"), call("c2", state="pending"))
    assert "no result" in items[3]["output"]
    assert "so far" in items[3]["output"]
    assert "no result" in items[4]["output"]


@each("arguments", ["", "{", "[1]", "3", "null", '"x"', "[" * 100_000])
def test_arguments_that_are_no_object_are_sent_as_an_empty_one(arguments: str) -> None:
    """B6: the error result says what was wrong."""
    bad = call(arguments=arguments, state="error", error_kind="invalid", output="no JSON: …")
    items = built(USER, bad)
    assert items[1]["arguments"] == "{}"
    assert items[2]["output"] == "no JSON: …"


def test_names_and_call_ids_are_such_as_servers_take() -> None:
    ids = ["functions.read:0", "", "a b", "functions.read:0", "call_1", "x" * 65]
    items = built(USER, *(call(id_, name="functions.read") for id_ in ids))
    calls = [i for i in items if i["type"] == "function_call"]
    assert {i["name"] for i in calls} == {"functions_read"}
    sent = [i["call_id"] for i in calls]
    assert sent == ["functions.read:0", "call_1", "call_2", "call_3", "call_4", "call_5"]


def test_discarded_items_are_not_sent() -> None:
    """B33, B47: what a failed stream left is not history."""
    gone = (reply("half", state="discarded"), call(discarded=True))
    assert kinds(built(USER, *gone, reply("all"))) == "user assistant"


def test_an_interrupted_answer_and_the_notice_are_sent() -> None:
    """B24."""
    notice = Notice(ItemId("n"), "interrupted", "The user interrupted.")
    items = built(USER, reply("I was", state="interrupted"), notice, USER)
    assert kinds(items) == "user assistant user"
    assert [part["text"] for part in items[2]["content"]] == [
        '<notice code="interrupted">\nThe user interrupted.\n</notice>',
        "hello",
    ]


def test_a_summary_stands_behind_the_words_that_the_user_keeps() -> None:
    summary = Compaction(ItemId("k"), "They said hello.", ItemId("a"), (USER.id,))
    items = built(USER, summary, reply("Go on"))
    assert kinds(items) == "user assistant"
    assert items[0]["content"][1]["text"] == "<summary>\nThey said hello.\n</summary>"


def test_a_document_is_a_file() -> None:
    document = Image(PDF, b"%PDF-", "its text", 1)
    items = built(UserMessage(ItemId("u"), "look", "start", images=(document,)))
    data = "data:application/pdf;base64,JVBERi0="
    file = {"type": "input_file", "filename": "document.pdf", "file_data": data}
    assert items[0]["content"][1] == file


def test_images_are_data_urls_also_in_outputs_and_files_are_named() -> None:
    asked = UserMessage(ItemId("u"), "look", "start", images=(PIXEL,), files=("a.py", "b.py"))
    items = built(asked, call(images=(PIXEL,)))
    text, image = items[0]["content"]
    assert text["text"] == "look\n\nFiles to look at:\n- a.py\n- b.py"
    assert image["image_url"] == "data:image/png;base64,iVBORw=="
    assert items[2]["output"] == [{"type": "input_text", "text": "text"}, image]


def test_every_setting_has_its_place_in_the_body() -> None:
    tool = ToolSpec("read", "Reads.", {"type": "object", "properties": {}})
    schema = {"type": "object", "properties": {}, "additionalProperties": False, "required": []}
    asked = request(
        USER,
        system="be brief",
        tools=(tool,),
        max_output_tokens=9,
        variant="high",
        output_schema=schema,
    )
    body = check_responses_body(build_body(asked, PLACE))
    assert body == {
        "model": "m",
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "hello"}],
            }
        ],
        "instructions": "be brief",
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "tools": [
            {
                "type": "function",
                "name": "read",
                "description": "Reads.",
                "parameters": {"type": "object", "properties": {}},
                "strict": False,
            }
        ],
        "max_output_tokens": 9,
        "reasoning": {"effort": "high"},
        "text": {
            "format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}
        },
    }
    plain = body_of(USER, variant="my-own")
    assert set(plain) == {"model", "input", "stream", "store", "include"}


def test_openai_is_told_what_belongs_together_and_spared_limits_that_it_refuses() -> None:
    body = json.loads(build_body(request(USER, max_output_tokens=9), PLACE, for_openai=True))
    assert (body["prompt_cache_key"], body["max_output_tokens"]) == ("s", 16)


def test_without_opaque_things_none_are_sent_and_none_are_asked_for() -> None:
    asked = request(USER, thought(THOUGHT), reply("yes"), options={"include": ["a"]})
    assert kinds(build_input(asked, None)) == "user assistant"  # pyright: ignore
    assert json.loads(build_body(asked, PLACE, opaque=False))["include"] == ["a"]
    asked = request(USER, options={"include": ["a", ENCRYPTED_REASONING]})
    assert json.loads(build_body(asked, PLACE, opaque=False))["include"] == ["a"]


def test_options_go_into_the_body_but_never_in_place_of_the_conversation() -> None:
    free = {"temperature": 0.5, "max_output_tokens": 7, "include": [], "store": True}
    reserved = {
        "background": True,
        "conversation": "c",
        "input": [],
        "instructions": "x",
        "model": "other",
        "previous_response_id": "r",
        "stream": False,
        "tools": [],
    }
    asked = request(USER, options=free | reserved, max_output_tokens=9)
    plain = json.loads(build_body(request(USER), PLACE))
    assert json.loads(build_body(asked, PLACE)) == plain | free


def test_options_are_joined_with_what_the_turn_asks_which_wins() -> None:
    options = {
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"verbosity": "low", "format": {"type": "text"}},
    }
    asked = request(USER, options=options, variant="high", output_schema={"type": "object"})
    body = json.loads(build_body(asked, PLACE))
    assert body["reasoning"] == {"effort": "high", "summary": "auto"}
    assert body["text"]["verbosity"] == "low"
    assert body["text"]["format"] == {
        "type": "json_schema",
        "name": "answer",
        "schema": {"type": "object"},
        "strict": False,
    }


STRICT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": ["string", "null"], "pattern": "^a"},
        "when": {"type": "string", "format": "date-time"},
        "list": {"type": "array", "items": {"$ref": "#/$defs/one"}, "maxItems": 3},
        "kind": {"enum": ["a", "b"]},
        "either": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]},
    },
    "required": ["name", "when", "list", "kind", "either"],
    "additionalProperties": False,
    "$defs": {"one": {"type": "object", "properties": {}, "additionalProperties": False}},
}


def nested(depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"type": "string"}
    for _ in range(depth - 1):
        inner = {
            "type": "object",
            "properties": {"a": inner},
            "required": ["a"],
            "additionalProperties": False,
        }
    return inner


def wide(properties: int) -> dict[str, Any]:
    names = [f"p{number}" for number in range(properties)]
    fields = {name: {"type": "string"} for name in names}
    return {
        "type": "object",
        "properties": fields,
        "required": names,
        "additionalProperties": False,
    }


@pytest.mark.parametrize("schema", [STRICT, nested(10), wide(5_000)])
def test_a_schema_that_can_be_strict_is(schema: dict[str, Any]) -> None:
    assert is_strict(schema)


@each(
    "schema",
    [
        {},
        {"type": "string"},
        {"type": "array", "items": STRICT},
        {"anyOf": [STRICT]},
        STRICT | {"required": ["name"]},
        {key: value for key, value in STRICT.items() if key != "additionalProperties"},
        STRICT | {"allOf": []},
        STRICT | {"$defs": {"one": {"type": "object"}}},
        STRICT | {"properties": {**STRICT["properties"], "kind": {"type": "string", "not": {}}}},
        STRICT
        | {"properties": {**STRICT["properties"], "kind": {"type": "string", "format": "uri"}}},
        STRICT | {"properties": {**STRICT["properties"], "kind": True}},
        nested(11),
        wide(5_001),
        STRICT
        | {"properties": {**STRICT["properties"], "kind": {"enum": [str(n) for n in range(1001)]}}},
    ],
)
def test_a_schema_that_a_strict_server_refuses_is_not_strict(schema: dict[str, Any]) -> None:
    assert not is_strict(schema)


@given(history=st.lists(items, max_size=12), system=texts)
def test_any_history_cut_anywhere_makes_a_valid_request(history: list[Item], system: str) -> None:
    """G4."""
    for end in range(len(history) + 1):
        asked = request(*history[:end], system=system)
        check_responses_body(build_body(asked, PLACE))
        check_responses_body(build_body(asked, PLACE, for_openai=True, opaque=False))


@given(history=st.lists(items, max_size=12))
def test_every_call_that_counts_is_sent_once_with_its_output(history: list[Item]) -> None:
    calls = [c for c in history if isinstance(c, ToolCall) and not c.discarded]
    items = built(*history)
    check_responses_input(items)
    sent = [i for i in items if i["type"] == "function_call"]
    outputs = [i["output"] for i in items if i["type"] == "function_call_output"]
    assert len(sent) == len(outputs) == len(calls)
    for output, made in zip(outputs, calls, strict=True):
        assert made.output.strip() in (output if isinstance(output, str) else output[0]["text"])
