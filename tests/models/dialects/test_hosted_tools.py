"""Tools that the provider runs, on each wire: what is shown of them, requested, and sent back."""

import json
from typing import Any

import pytest
from msgspec import structs

from models.dialects.test_anthropic_sdk_agrees import understood
from support.each import each
from support.streams import ENDPOINT, STREAMS, decode, wire_of
from support.vendor_types import check_chat_typed, check_messages_typed, check_responses_typed
from tiller_daemon.models.base import HostedCall, ModelRequest, ToolSpec
from tiller_daemon.models.dialects.anthropic_messages import request as messages_request
from tiller_daemon.models.dialects.anthropic_messages.opaque_blocks import origin_of, seal_blocks
from tiller_daemon.models.dialects.openai_chat import request as chat_request
from tiller_daemon.models.dialects.openai_responses import request as responses_request
from tiller_daemon.models.dialects.openai_responses.hosted_calls import IMAGE_BASE64_CHARS_MAX
from tiller_daemon.models.dialects.openai_responses.stream import ResponsesDecoder
from tiller_protocol.ids import ItemId
from tiller_protocol.items import (
    AssistantMessage,
    Citation,
    Image,
    Item,
    Reasoning,
    UserMessage,
)

ALL: dict[str, dict[str, dict[str, Any]]] = {
    "messages": {
        "web_search": {"max_uses": 3},
        "web_fetch": {"citations": {"enabled": True}},
        "code_execution": {},
    },
    "responses": {
        "web_search": {"filters": {"allowed_domains": ["python.org"]}},
        "file_search": {"vector_store_ids": ["vs_1"]},
        "code_interpreter": {},
        "image_generation": {},
    },
    "chat": {"web_search": {"search_context_size": "low"}},
}
READ = ToolSpec("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}})
GO = UserMessage(ItemId("u"), "go", "start")
MORE = UserMessage(ItemId("v"), "more", "start")
PLACE = ENDPOINT.base_url


def asked(*items: Item, wire: str, **fields: Any) -> ModelRequest:
    request = ModelRequest("m", "be brief", items, (READ,), "s", 1, hosted_tools=ALL[wire])
    return structs.replace(request, **fields)


def messages_body(*items: Item, **fields: Any) -> dict[str, Any]:
    built = messages_request.build_body(asked(*items, wire="messages", **fields), PLACE)
    check_messages_typed(built.body)
    return json.loads(built.body)


def responses_body(*items: Item, for_openai: bool = True, **fields: Any) -> dict[str, Any]:
    request = asked(*items, wire="responses", **fields)
    body = responses_request.build_body(request, PLACE, for_openai=for_openai)
    check_responses_typed(body)
    return json.loads(body)


def chat_body(*items: Item, **fields: Any) -> dict[str, Any]:
    body = chat_request.build_body(asked(*items, wire="chat", **fields), PLACE)
    check_chat_typed(body)
    return json.loads(body)


def streamed(name: str) -> list[list[Any]]:
    answer = decode(name, [STREAMS[name]])
    assert isinstance(answer, dict)
    return answer["items"]


def items_of(name: str) -> list[Item]:
    """The items that go into the next request after this stream, as the turn makes them."""
    made: list[Item] = []
    for number, (kind, *fields) in enumerate(streamed(name)):
        id_ = ItemId(f"{name}{number}")
        if kind == "text":
            made.append(AssistantMessage(id_, fields[0], "completed"))
        elif kind == "thinking":
            made.append(Reasoning(id_, fields[0], "completed", fields[1]))
    return made


def hosted(name: str) -> list[list[Any]]:
    return [item[2:] for item in streamed(name) if item[0] == "hosted"]


def citations(name: str) -> list[Citation]:
    return [one for item in streamed(name) if item[0] == "text" for one in item[3:]]


SHOWN = {
    "messages-anthropic-web-search": [
        ["web_search", '{"query":"is it so"}', "T · https://example.org/", "completed"]
    ],
    "messages-anthropic-fetch-and-code": [
        [
            "web_fetch",
            '{"url":"https://example.org/a"}',
            "A page · https://example.org/a",
            "completed",
        ],
        ["bash_code_execution", '{"command":"echo $((6*7))"}', "42", "completed"],
        ["web_fetch", '{"url":"https://example.org/b"}', "error: url_not_accessible", "failed"],
    ],
    "messages-anthropic-pause": [["web_search", '{"query":"x"}', "", "running"]],
    "messages-anthropic-after-pause": [["web_search", "", "T · https://example.org/", "completed"]],
    "responses-openai-hosted-results": [
        [
            "web_search",
            '{"query":"cats","queries":["cats"]}',
            "https://example.com/cats\nhttps://example.org/",
            "completed",
        ],
        ["web_search", '{"url":"https://example.com/cats"}', "", "completed"],
        ["file_search", '{"query":"cats | felines"}', "cats.md · Cats exist.", "completed"],
        ["code_interpreter", '{"code":"1/0"}', "ZeroDivisionError", "failed"],
    ],
    "chat-openai-web-search": [],
}
CITED = {
    "messages-anthropic-web-search": [Citation("https://example.org/", "T", "It is so.")],
    "messages-anthropic-fetch-and-code": [Citation("", "A page", "The page says so.")] * 2,
    "responses-openai-hosted-results": [
        Citation("https://example.com/cats", "Cats"),
        Citation("", "cats.md"),
    ],
    "responses-openai-web-search": [Citation("https://example.com/?utm_source=openai", "Cats")],
    "chat-openai-web-search": [Citation("https://example.com/cats?utm_source=openai", "Cats")],
}


@each("name", SHOWN)
def test_the_calls_of_hosted_tools_are_shown_with_their_results(name: str) -> None:
    assert hosted(name) == SHOWN[name]


@each("name", CITED)
def test_the_sources_that_a_text_names_are_shown(name: str) -> None:
    assert citations(name) == CITED[name]


def test_a_text_with_citations_is_one_message() -> None:
    """Else the last message of a turn would be its last few words."""
    texts = [item[1] for item in streamed("messages-anthropic-web-search") if item[0] == "text"]
    assert texts == ["I'll search.", "By what I found, it is so."]


@pytest.mark.parametrize(
    "name", ["messages-anthropic-web-search", "messages-anthropic-fetch-and-code"]
)
async def test_blocks_go_back_exactly_as_the_package_understands_them(name: str) -> None:
    body = messages_body(GO, *items_of(name), MORE)
    theirs = await understood(STREAMS[name])
    assert theirs is not None
    told = [block.to_dict() for block in theirs.content]
    for block in told:
        cited: Any = block.get("citations") or ()
        for citation in cited:
            citation.pop("file_id", None)  # only in responses
        if not block.get("citations"):
            block.pop("citations", None)
    sent = body["messages"][1]
    assert sent["role"] == "assistant"
    assert sent["content"] == told


@pytest.mark.parametrize("name", ["responses-openai-web-search", "responses-openai-hosted-results"])
def test_output_items_go_back_exactly_as_they_came(name: str) -> None:
    frames = [line[6:] for line in STREAMS[name].decode().splitlines() if line[:6] == "data: "]
    *calls, _ = json.loads(frames[-1])["response"]["output"]
    sent = responses_body(GO, *items_of(name), MORE)["input"]
    assert sent[1:-2] == calls
    assert sent[-2] == {"type": "message", "role": "assistant", "content": "Cats exist."}


def test_each_wire_offers_its_hosted_tools_before_the_others() -> None:
    offered = messages_body(GO)["tools"]
    assert [(tool.get("type"), tool["name"]) for tool in offered] == [
        ("web_search_20250305", "web_search"),
        ("web_fetch_20250910", "web_fetch"),
        ("code_execution_20250825", "code_execution"),
        (None, "read"),
    ]
    assert offered[0]["max_uses"] == 3
    body = responses_body(GO)
    assert [tool["type"] for tool in body["tools"]] == [*ALL["responses"], "function"]
    assert body["tools"][2]["container"] == {"type": "auto"}
    assert body["include"] == [
        "reasoning.encrypted_content",
        "web_search_call.action.sources",
        "file_search_call.results",
        "code_interpreter_call.outputs",
    ]
    assert responses_body(GO, for_openai=False)["include"] == ["reasoning.encrypted_content"]
    body = chat_body(GO)
    assert body["web_search_options"] == {"search_context_size": "low"}
    assert [tool["type"] for tool in body["tools"]] == ["function"]


def test_a_type_of_ones_own_replaces_the_default() -> None:
    newer = {"web_search": {"type": "web_search_20260209"}}
    assert messages_body(GO, hosted_tools=newer)["tools"][0] == {
        "type": "web_search_20260209",
        "name": "web_search",
    }
    theirs = {"web_search": {"type": "web_search", "web_search": {"enable": True}}}
    request = asked(GO, wire="chat", hosted_tools=theirs)
    body = json.loads(chat_request.build_body(request, PLACE))
    assert body["tools"][0] == theirs["web_search"]
    assert "web_search_options" not in body


def test_titles_and_summaries_search_nothing() -> None:
    for purpose in ("title", "compaction"):
        fields: dict[str, Any] = {"purpose": purpose, "tools": ()}
        assert "tools" not in responses_body(GO, **fields)
        assert "web_search_options" not in chat_body(GO, **fields)
        # What has calls in the history must be defined.
        assert messages_body(GO, **fields)["tool_choice"] == {"type": "none"}
    assert "tool_choice" not in messages_body(GO, tools=())


PAUSED = items_of("messages-anthropic-pause")
SEARCHING = {
    "type": "server_tool_use",
    "id": "srvtoolu_01",
    "name": "web_search",
    "input": {"query": "x"},
}


def test_after_a_pause_the_response_is_sent_back_to_be_continued() -> None:
    sent = messages_body(GO, *PAUSED)["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant"]
    assert sent[1]["content"] == [{"type": "text", "text": "Searching."}, SEARCHING]


def test_the_continuation_becomes_part_of_the_same_message() -> None:
    after = items_of("messages-anthropic-after-pause")
    sent = messages_body(GO, *PAUSED, *after, MORE)["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    kinds = [block["type"] for block in sent[1]["content"]]
    assert kinds == ["text", "server_tool_use", "web_search_tool_result", "text"]


def test_a_pause_that_is_not_continued_leaves_no_call_without_a_result() -> None:
    sent = messages_body(GO, *PAUSED, MORE)["messages"]
    assert sent[1]["content"] == [{"type": "text", "text": "Searching."}]
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]


def test_thinking_of_both_sides_of_a_pause_goes_back() -> None:
    """Claude wants earlier thinking only if the same content still precedes it."""
    claude = {"model": "claude-opus-4-8"}
    origin = origin_of(PLACE, claude["model"])

    def thought(id_: str, prefix: str, *blocks: dict[str, Any]) -> Reasoning:
        thinking = {"type": "thinking", "thinking": id_, "signature": f"of {id_}"}
        opaque = seal_blocks(origin, prefix, [thinking, *blocks])
        return Reasoning(ItemId(id_), id_, "completed", opaque)

    before = messages_request.build_body(asked(GO, wire="messages", **claude), PLACE)
    paused = thought("first", before.prefix, SEARCHING, {"type": "pause"})
    between = messages_request.build_body(asked(GO, paused, wire="messages", **claude), PLACE)
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_01", "content": []}
    after = thought("second", between.prefix, found)
    said = AssistantMessage(ItemId("said"), "So.", "completed")
    sent = messages_body(GO, paused, after, said, MORE, **claude)["messages"][1]["content"]
    assert [block.get("thinking") or block["type"] for block in sent] == [
        "first",
        "server_tool_use",
        "second",
        "web_search_tool_result",
        "text",
    ]


def test_an_image_is_shown_unless_it_is_none_or_too_large() -> None:
    def images(result: str) -> tuple[Image, ...]:
        item = {"id": "ig", "type": "image_generation_call", "status": "completed"}
        done = {"type": "response.output_item.done", "item": item | {"result": result}}
        end = {"type": "response.completed", "response": {"status": "completed"}}
        stream = "".join(f"data: {json.dumps(one)}\n\n" for one in (done, end))
        decoder = ResponsesDecoder(ENDPOINT, "m", 7)
        events = decoder.feed(stream.encode()) + decoder.end()
        return next(e.images for e in events if isinstance(e, HostedCall) and e.state != "running")

    assert images("iVBORw0KGgo=") == (Image("image/png", b"\x89PNG\r\n\x1a\n"),)
    assert images("no base64!") == images("A" * (IMAGE_BASE64_CHARS_MAX + 4)) == ()


def test_a_divided_text_that_was_redacted_goes_back_whole() -> None:
    name = "messages-anthropic-web-search"
    changed = [
        structs.replace(item, text=f"{item.text} [secret]")
        if isinstance(item, AssistantMessage)
        else item
        for item in items_of(name)
    ]
    content = messages_body(GO, *changed, MORE)["messages"][1]["content"]
    assert content[-1] == {"type": "text", "text": "By what I found, it is so. [secret]"}


def test_there_is_a_stream_of_hosted_tools_on_every_wire() -> None:
    assert {wire_of(name) for name in SHOWN} == set(ALL)
