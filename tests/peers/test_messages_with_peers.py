"""The Messages adapter against three third-party servers: two fake providers and llama.cpp."""

import json
from contextlib import aclosing
from typing import Any

import pytest
import trio

from support.dialect_anthropic import check_messages_body, spoken
from support.peers import Aimock, Llama, Llmock
from support.providers import open_http
from tiller_daemon.models.base import (
    Finished,
    ModelError,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallDone,
    ToolCallStarted,
    ToolSpec,
    UsageReported,
)
from tiller_daemon.models.dialects.anthropic_messages.adapter import AnthropicMessages
from tiller_daemon.models.dialects.anthropic_messages.opaque_blocks import origin_of, unseal_blocks
from tiller_daemon.models.dialects.anthropic_messages.request import build_body
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import (
    AssistantMessage,
    Item,
    Notice,
    Reasoning,
    ToolCall,
    Usage,
    UserMessage,
)

pytestmark = pytest.mark.peer

MODEL = "claude-opus-4-8"
LS = ToolSpec("ls", "Lists.", {"type": "object", "properties": {"path": {"type": "string"}}})
HELLO = UserMessage(ItemId("u"), "Say hello.", "start")


def asked(text: str, *more: Item, **fields: Any) -> ModelRequest:
    items = (UserMessage(ItemId("u"), text, "start"), *more)
    known: dict[str, Any] = {"model": MODEL, "system": "be brief", "tools": (LS,), "ordinal": 0}
    return ModelRequest(items=items, session_id="s", **(known | fields))


async def answered(base_url: str, request: ModelRequest) -> list[ModelEvent]:
    async with (
        open_http(base_url, "sk-test", api_key_header="x-api-key") as http,
        aclosing(AnthropicMessages(http).stream(request)) as stream,
    ):
        return [event async for event in stream]


def text_of(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def test_aimock_streams_text_and_thinking_in_pieces_cut_anywhere(aimock: Aimock) -> None:
    """It cuts text in UTF-16, through the middle of an emoji."""
    said = "Grüße 😀😀😀 an alle!"
    usage = {"input_tokens": 5, "output_tokens": 7}
    for size in range(1, 6):
        aimock.reset()
        aimock.answer(
            {"userMessage": "hello"},
            {"content": said, "reasoning": "😀 hm", "usage": usage},
            chunkSize=size,
        )
        events = await answered(aimock.base_url, asked("hello"))
        assert text_of(events) == said
        assert "".join(e.text for e in events if isinstance(e, ReasoningDelta)) == "😀 hm"
        assert events[-2] == UsageReported(Usage(5, 0, 7))
        assert events[-1] == Finished("stop")


async def test_a_conversation_with_aimock_in_two_calls_their_results_and_a_thought(
    aimock: Aimock,
) -> None:
    """B2: the second request holds calls, results and the signed thought as they came."""
    calls = [
        {"name": "ls", "arguments": {"path": "."}, "id": "toolu_a"},
        {"name": "ls", "arguments": {"path": "src"}, "id": "toolu_b"},
    ]
    aimock.answer(
        {"userMessage": "look", "hasToolResult": False},
        {"content": "Let me look.", "toolCalls": calls, "reasoning": "I should look."},
    )
    aimock.answer({"toolResultContains": "b.py"}, {"content": "Two files."})

    events = await answered(aimock.base_url, asked("look"))
    assert text_of(events) == "Let me look."
    started = [(e.call_id, e.name) for e in events if isinstance(e, ToolCallStarted)]
    assert started == [("toolu_a", "ls"), ("toolu_b", "ls")]
    arguments = ["", ""]
    for event in events:
        if isinstance(event, ToolCallDelta):
            arguments[event.index] += event.arguments
    assert [json.loads(text) for text in arguments] == [{"path": "."}, {"path": "src"}]
    assert [e.index for e in events if isinstance(e, ToolCallDone)] == [0, 1]
    assert events[-1] == Finished("tool_calls")

    opaque = [e.opaque for e in events if isinstance(e, ReasoningDelta)][-1]
    thought = Reasoning(ItemId("r"), "I should look.", "completed", opaque)
    kept = unseal_blocks(thought, origin_of(aimock.base_url, MODEL))
    assert kept is not None
    results = [
        ToolCall(ItemId(id_), CallId(id_), "ls", text, "completed", output=output)
        for id_, text, output in zip(
            ["toolu_a", "toolu_b"], arguments, ["a.py", "b.py"], strict=True
        )
    ]
    message = AssistantMessage(ItemId("a"), "Let me look.", "completed")
    again = await answered(aimock.base_url, asked("look", thought, message, *results, ordinal=1))
    assert text_of(again) == "Two files."

    first, second = [
        check_messages_body(build_body(one, aimock.base_url).body)
        for one in (asked("look"), asked("look", thought, message, *results))
    ]
    assert second["messages"][1]["content"][0] == kept.blocks[0]
    assert kept.blocks[0]["signature"]
    assert spoken(second)[: len(spoken(first))] == spoken(first)
    seen = aimock.journal()[1]["body"]["messages"]
    assert [m["tool_call_id"] for m in seen if m["role"] == "tool"] == ["toolu_a", "toolu_b"]


@pytest.mark.parametrize(
    ("response", "options", "kind"),
    [
        ({"content": "x"}, {"chaos": {"malformedRate": 1.0}}, "bad_request"),
        ({"content": "x"}, {"chaos": {"disconnectRate": 1.0}}, "network"),
        ({"content": "x"}, {"chaos": {"dropRate": 1.0}}, "server"),
        ({"content": "x" * 500}, {"truncateAfterChunks": 3}, "network"),
        (
            {
                "error": {"message": "prompt is too long: 9 > 8", "type": "invalid_request_error"},
                "status": 400,
            },
            {},
            "context_overflow",
        ),
        ({"error": {"message": "invalid x-api-key"}, "status": 401}, {}, "authentication"),
        ({"error": {"message": "x", "type": "overloaded_error"}, "status": 529}, {}, "overloaded"),
    ],
)
async def test_every_fault_of_aimock_is_a_typed_error(
    aimock: Aimock, response: dict[str, Any], options: dict[str, Any], kind: str
) -> None:
    """B46, B47."""
    aimock.answer({"userMessage": "hello"}, response, **options)
    with pytest.raises(ModelError) as caught:
        await answered(aimock.base_url, asked("hello"))
    assert caught.value.kind == kind
    assert aimock.base_url in caught.value.message


async def test_llmock_calls_a_tool_and_answers_when_it_has_the_result(llmock: Llmock) -> None:
    events = await answered(llmock.anthropic_base_url, asked("look"))
    (started,) = [event for event in events if isinstance(event, ToolCallStarted)]
    arguments = "".join(e.arguments for e in events if isinstance(e, ToolCallDelta))
    assert events[-1] == Finished("tool_calls")
    call = ToolCall(
        ItemId("c"), CallId(started.call_id), "ls", arguments, "completed", output="a.py"
    )
    events = await answered(llmock.anthropic_base_url, asked("look", call, ordinal=1))
    assert text_of(events)
    assert events[-1] == Finished("stop")
    assert llmock.verdict()["passed"]


def to_llama(*items: Item, tokens: int = 12, **fields: Any) -> ModelRequest:
    known = {"model": "smollm2", "system": "Be brief.", "tools": ()} | fields
    return ModelRequest(items=items, session_id="s", ordinal=0, max_output_tokens=tokens, **known)


async def test_a_real_answer_streams_and_is_counted(llama: Llama) -> None:
    events = await answered(llama.base_url, to_llama(HELLO))
    texts = [event.text for event in events if isinstance(event, TextDelta)]
    assert len(texts) > 1
    assert "".join(texts).strip()
    assert isinstance(events[-2], UsageReported)
    assert 1 <= events[-2].usage.output_tokens <= 12
    assert events[-2].usage.input_tokens > 5
    assert isinstance(events[-1], Finished)
    assert events[-1].reason in ("stop", "length")


async def test_every_kind_of_item_passes_its_chat_template(llama: Llama) -> None:
    """G4: also a call that never got its result."""
    history = (
        HELLO,
        AssistantMessage(ItemId("a"), "Let me look.", "completed"),
        ToolCall(ItemId("c1"), CallId("c1"), "ls", '{"path":"a"}', "completed", output="hi"),
        ToolCall(ItemId("c2"), CallId("c2"), "ls", "{broken", "pending"),
        Notice(ItemId("n"), "interrupted", "The user interrupted."),
        UserMessage(ItemId("u2"), "Go on.", "start", files=("a.py",)),
    )
    for tools in ((LS,), ()):
        events = await answered(llama.base_url, to_llama(*history, tools=tools, tokens=4))
        assert isinstance(events[-1], Finished)


async def test_a_request_beyond_its_context_is_told_as_such(llama: Llama) -> None:
    """B42."""
    long = UserMessage(ItemId("u"), "word " * 12_000, "start")
    with pytest.raises(ModelError) as caught:
        await answered(llama.base_url, to_llama(long))
    assert caught.value.kind == "context_overflow"


async def test_a_cancelled_answer_frees_the_server(llama: Llama) -> None:
    """B28: it has two slots; were they still busy, later requests would wait for them."""
    count = UserMessage(ItemId("u"), "Count: 1 2 3 4 5 6", "start")
    async with open_http(llama.base_url) as http:
        for _ in range(4):
            with trio.CancelScope() as scope:
                client = AnthropicMessages(http)
                async with aclosing(client.stream(to_llama(count, tokens=100_000))) as stream:
                    async for event in stream:
                        if isinstance(event, TextDelta):
                            scope.cancel()
            assert scope.cancelled_caught
    with trio.fail_after(60):
        assert isinstance((await answered(llama.base_url, to_llama(HELLO)))[-1], Finished)
