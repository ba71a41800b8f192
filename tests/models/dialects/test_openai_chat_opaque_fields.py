"""What Chat servers want back goes back as it came: answers are decoded and asked with again."""

import json
from typing import Any

import pytest

from support.dialect import check_chat_messages
from support.streams import ENDPOINT, ORDINAL, fold
from tiller_daemon.models.base import ModelRequest
from tiller_daemon.models.dialects.openai_chat.request import build_messages
from tiller_daemon.models.dialects.openai_chat.stream import ChatDecoder
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import AssistantMessage, Item, Reasoning, ToolCall, UserMessage

Message = dict[str, Any]

USER = UserMessage(ItemId("u"), "hello", "start")


def frame(delta: Message, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def call(id_: str, index: int = 0, **more: Any) -> Message:
    function = {"name": "read", "arguments": "{}"}
    return {"index": index, "id": id_, "type": "function", "function": function, **more}


def sent(id_: str, **more: Any) -> Message:
    """A call as it goes back: without the index."""
    return {k: v for k, v in call(id_, **more).items() if k != "index"}


def answer(*frames: bytes, ordinal: int = ORDINAL) -> list[Item]:
    """The items that the turn makes of an answer."""
    decoder = ChatDecoder(ENDPOINT, "m", ordinal)
    events = [event for one in frames for event in decoder.feed(one)]
    items: list[Item] = []
    for number, (kind, *item) in enumerate(fold([*events, *decoder.end()])["items"]):
        item_id = ItemId(f"{ordinal}-{number}")
        match kind:
            case "text":
                items.append(AssistantMessage(item_id, item[0], "completed"))
            case "thinking":
                items.append(Reasoning(item_id, item[0], "completed", item[1]))
            case _:
                made = ToolCall(item_id, CallId(item[0]), item[1], item[2], "completed")
                items.append(ToolCall(item_id, made.call_id, made.name, made.arguments,
                                      "completed", ordinal=ordinal))  # fmt: skip
    return items


def asked_again(*items: Item, model: str = "m", base_url: str = ENDPOINT.base_url) -> list[Message]:
    request = ModelRequest(model, "", (USER, *items), (), "s", 0)
    built = build_messages(request, base_url)
    check_chat_messages(built)
    return [message for message in built if message["role"] == "assistant"]


def signature(text: str) -> Message:
    return {"google": {"thought_signature": text}}


def test_gemini_gets_the_signature_of_each_call_back() -> None:
    """It refuses a call of the turn without the signature that it came with."""
    items = answer(
        frame({"tool_calls": [call("a", extra_content=signature("A")), call("b", 1)]}),
        frame({"tool_calls": [call("c", 2, extra_content=signature("C"))]}, "tool_calls"),
    )
    (message,) = asked_again(*items)
    assert message["tool_calls"] == [
        sent("a", extra_content=signature("A")),
        sent("b"),
        sent("c", extra_content=signature("C")),
    ]


def test_gemini_gets_the_signature_of_a_message_back_that_stays_one_text() -> None:
    items = answer(
        frame({"content": "Let me ", "extra_content": signature("T")}),
        frame({"content": "see."}),
        frame({"tool_calls": [call("a", extra_content=signature("A"))]}, "tool_calls"),
    )
    (message,) = asked_again(*items)
    assert message["content"] == "Let me see."
    assert message["extra_content"] == signature("T")
    assert message["tool_calls"] == [sent("a", extra_content=signature("A"))]


def detail(kind: str, **more: Any) -> Message:
    return {"type": f"reasoning.{kind}", "format": "anthropic-claude-v1", "index": 0, **more}


def test_openrouter_gets_the_details_back_joined_and_in_their_order() -> None:
    items = answer(
        frame({"reasoning": "One", "reasoning_details": [detail("text", text="One")]}),
        frame({"reasoning": " two", "reasoning_details": [detail("text", text=" two")]}),
        frame({"reasoning_details": [detail("text", signature="sig")]}),
        frame({"reasoning_details": [detail("encrypted", data="E", index=1, id="rs_1")]}),
        frame({"reasoning_details": [detail("encrypted", data="F", index=1, id="rs_2")]}),
        frame({"content": "So."}),
        frame({"tool_calls": [call("a")]}, "tool_calls"),
    )
    (message,) = asked_again(*items)
    assert message["reasoning_details"] == [
        detail("text", text="One two", signature="sig"),
        detail("encrypted", data="E", index=1, id="rs_1"),
        detail("encrypted", data="F", index=1, id="rs_2"),
    ]
    assert "reasoning" not in message


def test_details_that_come_behind_a_call_are_of_its_message() -> None:
    """So OpenAI's sealed thinking comes through OpenRouter; the next answer has none of it."""
    late = detail("encrypted", data="E", id="rs_1")
    first = answer(
        frame({"tool_calls": [call("a")]}),
        frame({"reasoning_details": [late]}, "tool_calls"),
        ordinal=1,
    )
    second = answer(frame({"tool_calls": [call("b")]}, "tool_calls"), ordinal=2)
    one, two = asked_again(*first, *second)
    assert one["reasoning_details"] == [late]
    assert "reasoning_details" not in two


def test_thinking_goes_back_under_its_name_also_between_calls() -> None:
    items = answer(
        frame({"reasoning_content": "One."}),
        frame({"tool_calls": [call("a")]}),
        frame({"reasoning_content": "Two."}),
        frame({"tool_calls": [call("b", 1)]}, "tool_calls"),
    )
    (message,) = asked_again(*items)
    assert message["reasoning_content"] == "One.Two."
    assert [one["id"] for one in message["tool_calls"]] == ["a", "b"]


@pytest.mark.parametrize("elsewhere", [{"model": "other"}, {"base_url": "http://127.0.0.1:2/v1"}])
def test_nobody_else_gets_it(elsewhere: dict[str, str]) -> None:
    items = answer(
        frame({"reasoning": "hm", "reasoning_details": [detail("text", text="hm")]}),
        frame({"tool_calls": [call("a", extra_content=signature("A"))]}, "tool_calls"),
    )
    assert asked_again(*items, **elsewhere) == [
        {"role": "assistant", "content": None, "tool_calls": [sent("a")]}
    ]


def test_an_answer_that_made_no_call_goes_back_as_text_alone() -> None:
    items = answer(
        frame({"reasoning": "hm", "reasoning_details": [detail("text", text="hm")]}),
        frame({"content": "So."}, "stop"),
    )
    assert asked_again(*items) == [{"role": "assistant", "content": "So."}]
