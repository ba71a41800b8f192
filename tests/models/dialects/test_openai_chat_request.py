"""Items as Chat messages: valid whatever the history, and the same bytes for the same prefix."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.dialect import check_chat_body, check_chat_messages
from support.each import each
from tiller_daemon.models.base import ModelRequest, ToolSpec
from tiller_daemon.models.dialects.openai_chat.opaque_fields import (
    OpaqueFields,
    origin_of,
    seal_fields,
)
from tiller_daemon.models.dialects.openai_chat.request import build_body, build_messages
from tiller_daemon.models.history_cache import HistoryCache
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import (
    PDF,
    AssistantMessage,
    Compaction,
    Image,
    Item,
    Notice,
    Patch,
    Reasoning,
    ToolCall,
    UserMessage,
)

PLACE = "http://127.0.0.1:1/v1"
USER = UserMessage(ItemId("u"), "hello", "start")
TAG = seal_fields(origin_of(PLACE, "m"), OpaqueFields("reasoning"))
PIXEL = Image("image/png", b"\x89PNG")


def call(call_id: str = "c1", **fields: Any) -> ToolCall:
    known: dict[str, Any] = {
        "name": "read",
        "arguments": '{"path":"a"}',
        "state": "completed",
        "output": "text",
    }
    return ToolCall(ItemId("i" + call_id), CallId(call_id), **(known | fields))


def reply(text: str, **fields: Any) -> AssistantMessage:
    return AssistantMessage(ItemId("a"), text, fields.pop("state", "completed"), **fields)


def request(*items: Item, **fields: Any) -> ModelRequest:
    known: dict[str, Any] = {"model": "m", "system": "", "tools": (), "session_id": "s"}
    return ModelRequest(items=items, ordinal=0, **(known | fields))


def messages(*items: Item, **fields: Any) -> list[dict[str, Any]]:
    built = build_messages(request(*items, **fields), PLACE)
    check_chat_messages(built)
    return built


def roles(built: list[dict[str, Any]]) -> str:
    return " ".join(message["role"] for message in built)


def test_text_and_calls_of_one_response_are_one_message_followed_by_their_results() -> None:
    """B2: the second request holds the calls and their results under the same ids."""
    built = messages(
        USER, reply("Let me look."), call("c1"), call("c2", output="two"), reply("Done")
    )
    assert roles(built) == "user assistant tool tool assistant"
    assert built[1]["content"] == "Let me look."
    assert [c["id"] for c in built[1]["tool_calls"]] == ["c1", "c2"]
    results = [(m["tool_call_id"], m["content"]) for m in built[2:4]]
    assert results == [("c1", "text"), ("c2", "two")]


def test_calls_of_two_responses_stay_two_messages() -> None:
    built = messages(USER, call("c1", ordinal=0), call("c2", ordinal=1), call("c3", ordinal=1))
    assert roles(built) == "user assistant tool assistant tool tool"


def test_a_longer_history_begins_with_the_same_messages() -> None:
    """B44: what was sent is sent again as it was, so that a provider's cache holds."""
    history = [
        USER,
        call("c1", ordinal=0),
        call("", ordinal=1),
        reply("One."),
        call("c1", ordinal=2),
        reply("Two."),
    ]
    shorter = messages(*history[:3], system="be brief")
    assert messages(*history, system="be brief")[: len(shorter)] == shorter


def test_a_call_without_a_result_is_given_one() -> None:
    """G4."""
    built = messages(USER, call(state="running", output="so far"), call("c2", state="pending"))
    assert "no result" in built[2]["content"]
    assert "so far" in built[2]["content"]
    assert "no result" in built[3]["content"]


@each("arguments", ["", "{", "[1]", "3", "null", '"x"', "[" * 100_000])
def test_arguments_that_are_no_object_are_sent_as_an_empty_one(arguments: str) -> None:
    """B6: the error result says what was wrong."""
    bad = call(arguments=arguments, state="error", error_kind="invalid", output="no JSON: …")
    built = messages(USER, bad)
    assert built[1]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert built[2]["content"] == "no JSON: …"


@pytest.mark.parametrize(
    ("name", "sent"), [("read", "read"), ("functions.read", "functions_read"), ("", "unknown")]
)
def test_a_name_that_no_server_takes_is_mended(name: str, sent: str) -> None:
    assert messages(USER, call(name=name))[1]["tool_calls"][0]["function"]["name"] == sent


def test_call_ids_are_kept_where_they_can_be_and_unique_in_any_case() -> None:
    ids = ["functions.read:0", "", "a b", "functions.read:0", "call_1"]
    built = messages(USER, *(call(id_) for id_ in ids))
    sent = [c["id"] for c in built[1]["tool_calls"]]
    assert sent == ["functions.read:0", "call_1", "call_2", "call_3", "call_4"]


def test_openai_is_spared_ids_that_it_refuses() -> None:
    long = "call_" + "x" * 60
    built = build_messages(request(USER, call(long)), PLACE, for_openai=True)
    assert built[1]["tool_calls"][0]["id"] == "call_0"
    assert messages(USER, call(long))[1]["tool_calls"][0]["id"] == long


@pytest.mark.parametrize("model", ["devstral-medium", "mistralai/Mistral-Small-4", "pixtral-12b"])
def test_mistral_gets_ids_of_its_own_kind_and_no_user_right_behind_results(model: str) -> None:
    """It refuses such a history with every request, however long the session goes on."""
    history = (USER, call("call_1"), call("D681PevKs"), call("call_1"), USER)
    built = messages(*history, model=model)
    assert [c["id"] for c in built[1]["tool_calls"]] == ["000000000", "D681PevKs", "000000002"]
    assert roles(built) == "user assistant tool tool tool assistant user"
    shown = messages(USER, call(images=(PIXEL,)), USER, model=model)
    assert roles(shown) == "user assistant tool assistant user"
    assert roles(messages(*history, model="qwen3")) == "user assistant tool tool tool user"


@each("blank", ["\n\n", " ", "\t\r\n", "\u00a0"])
def test_blank_texts_are_not_sent(blank: str) -> None:
    """Some servers refuse them, and would refuse every later request of the session."""
    built = messages(USER, reply(blank), call(output=blank), reply(blank))
    assert [message["content"] for message in built] == ["hello", None, "(no output)"]
    assert messages(USER, reply("a"), reply(blank), call("c2"))[1]["content"] == "a"
    pictured = UserMessage(ItemId("p"), blank, "start", (PIXEL,))
    assert [part["type"] for part in messages(pictured)[0]["content"]] == ["image_url"]


def test_discarded_items_are_not_sent() -> None:
    """B33, B47: what a failed stream left is not history."""
    gone = Reasoning(ItemId("r"), "hm", "discarded", TAG)
    built = messages(
        USER, gone, reply("half", state="discarded"), call(discarded=True), reply("all")
    )
    assert [m["content"] for m in built] == ["hello", "all"]


def test_an_interrupted_answer_and_the_notice_are_sent() -> None:
    """B24."""
    notice = Notice(ItemId("n"), "interrupted", "The user interrupted.")
    built = messages(USER, reply("I was", state="interrupted"), notice, USER)
    assert roles(built) == "user assistant user"
    assert built[2]["content"] == (
        '<notice code="interrupted">\nThe user interrupted.\n</notice>\n\nhello'
    )


def test_a_compaction_is_a_summary_behind_the_words_that_the_user_keeps() -> None:
    summary = Compaction(ItemId("k"), "They said hello.", ItemId("a"), (USER.id,))
    built = messages(USER, summary, reply("Go on"))
    assert roles(built) == "user assistant"
    assert built[0]["content"] == "hello\n\n<summary>\nThey said hello.\n</summary>"


def test_images_are_data_urls_and_files_are_named() -> None:
    asked = UserMessage(ItemId("u"), "look", "start", images=(PIXEL,), files=("a.py", "b.py"))
    content = messages(asked)[0]["content"]
    assert content[0] == {"type": "text", "text": "look\n\nFiles to look at:\n- a.py\n- b.py"}
    assert content[1]["image_url"]["url"] == "data:image/png;base64,iVBORw=="


def test_a_document_is_a_file() -> None:
    document = Image(PDF, b"%PDF-", "its text", 1)
    content = messages(UserMessage(ItemId("u"), "look", "start", images=(document,)))[0]["content"]
    data = "data:application/pdf;base64,JVBERi0="
    file = {"filename": "document.pdf", "file_data": data}
    assert content[1] == {"type": "file", "file": file}


def test_images_of_results_follow_the_results() -> None:
    built = messages(USER, call("c1", images=(PIXEL,)), call("c2"), USER)
    assert roles(built) == "user assistant tool tool user"
    assert [part["type"] for part in built[4]["content"]] == ["text", "image_url", "text"]


def test_thinking_goes_back_with_its_calls_to_the_model_that_thought_it() -> None:
    thought = Reasoning(
        ItemId("r"),
        "hm",
        "completed",
        seal_fields(origin_of(PLACE, "m"), OpaqueFields("reasoning_content")),
    )
    assert messages(USER, thought, call())[1]["reasoning_content"] == "hm"
    assert "reasoning_content" not in messages(USER, thought, call(), model="other")[1]
    assert "reasoning_content" not in messages(USER, thought, reply("no call"))[1]
    assert "hm" not in str(messages(USER, thought, reply("no call"), USER, call()))
    opaque = Reasoning(ItemId("r"), "hm", "completed", "encrypted")
    assert "hm" not in str(messages(USER, opaque, call()))


def test_every_option_has_its_place_in_the_body() -> None:
    tool = ToolSpec("read", "Reads.", {"type": "object", "properties": {}})
    asked = request(
        USER,
        system="be brief",
        tools=(tool,),
        max_output_tokens=9,
        variant="high",
        output_schema={"type": "object"},
    )
    body = check_chat_body(build_body(asked, PLACE))
    assert body == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hello"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "read",
                    "description": "Reads.",
                    "parameters": {"type": "object", "properties": {}},
                },
            }
        ],
        "max_tokens": 9,
        "reasoning_effort": "high",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": {"type": "object"}},
        },
    }
    openai = json.loads(build_body(asked, PLACE, for_openai=True))
    assert openai["max_completion_tokens"] == 9
    assert "max_tokens" not in openai
    plain = json.loads(build_body(request(USER, variant="my-own"), PLACE))
    assert set(plain) == {"model", "messages", "stream", "stream_options"}


texts = st.text(max_size=20)
ids = st.sampled_from(["", "c1", "c2", "call_0", "call_1", "a b", "x" * 50, "ünï"])
states = st.sampled_from(["streaming", "completed", "interrupted", "discarded"])
images = st.lists(st.just(PIXEL), max_size=2).map(tuple)
items: st.SearchStrategy[Item] = st.one_of(
    st.builds(UserMessage, ids, texts, st.just("start"), images, st.just(("f",)) | st.just(())),
    st.builds(AssistantMessage, ids, texts, states),
    st.builds(Reasoning, ids, texts, states, st.sampled_from(["", TAG, "sealed"])),
    st.builds(
        ToolCall,
        ids,
        ids,
        texts | st.just("read"),
        texts | st.just("{}") | st.just("[]"),
        st.sampled_from(["pending", "running", "completed", "error"]),
        output=texts,
        error_kind=st.sampled_from([None, "failed", "lost"]),
        images=images,
        discarded=st.booleans(),
        ordinal=st.integers(0, 3),
    ),
    st.builds(Compaction, ids, texts, ids),
    st.builds(Notice, ids, st.just("code"), texts),
    st.builds(Patch, ids, st.just(("f",))),
)


@given(history=st.lists(items, max_size=12), system=texts)
def test_any_history_cut_anywhere_makes_a_valid_request(history: list[Item], system: str) -> None:
    """G4."""
    for end in range(len(history) + 1):
        asked = request(*history[:end], system=system)
        check_chat_body(build_body(asked, PLACE))
        check_chat_body(build_body(asked, PLACE, for_openai=True))


@example([[Reasoning(ItemId("r"), "hm", "completed", TAG), call("a"), call("b")]], [(0, 2), (0, 3)])
@settings(max_examples=300)
@given(
    histories=st.lists(st.lists(items, max_size=12), min_size=1, max_size=2),
    cuts=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12)), max_size=4),
)
def test_a_history_that_grows_makes_the_same_requests_as_one_that_is_whole(
    histories: list[list[Item]], cuts: list[tuple[int, int]]
) -> None:
    """What is kept for the next request does no harm when that one is of something else."""
    cache = HistoryCache()
    for which, cut in cuts:
        sent = histories[which % len(histories)][:cut]
        assert build_body(request(*sent, history_cache=cache), PLACE) == build_body(
            request(*sent), PLACE
        )


@given(history=st.lists(items, max_size=12))
def test_every_call_that_counts_is_sent_once_with_its_output(history: list[Item]) -> None:
    calls = [c for c in history if isinstance(c, ToolCall) and not c.discarded]
    built = messages(*history)
    results = [m["content"] for m in built if m["role"] == "tool"]
    assert len(results) == len(calls)
    for result, made in zip(results, calls, strict=True):
        assert made.output.strip() in result


def test_options_go_into_the_body_but_never_in_place_of_the_conversation() -> None:
    options = {
        "temperature": 0.5,
        "max_tokens": 7,
        "reasoning_effort": "low",
        "messages": [],
        "model": "other",
        "stream": False,
        "stream_options": {},
        "tools": [],
    }
    sent = json.loads(build_body(request(USER, options=options, max_output_tokens=9), PLACE))
    plain = json.loads(build_body(request(USER), PLACE))
    chosen = {name: options[name] for name in ("temperature", "max_tokens", "reasoning_effort")}
    assert sent == plain | chosen
    sent = json.loads(build_body(request(USER, options=options, variant="high"), PLACE))
    assert sent["reasoning_effort"] == "high"
