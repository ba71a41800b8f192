"""The Chat adapter against a fake provider of another hand: conversation, limits, faults."""

import json
from contextlib import aclosing
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from support.dialect import check_chat_messages
from support.peers import Aimock
from support.providers import open_http
from tiller_daemon.config import Retry
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
from tiller_daemon.models.dialects.openai_chat.adapter import OpenAIChat
from tiller_daemon.turn.retry import RetriedModel, RetryWait
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import Item, ToolCall, UserMessage

pytestmark = pytest.mark.peer

OUT_OF_MONEY = {
    "error": {"message": "x", "code": "insufficient_quota"},
    "status": 429,
    "retryAfter": 86_400,
}
"""With a shorter wait, which it names by itself, this would be a limit of the rate."""

LS = ToolSpec("ls", "Lists.", {"type": "object", "properties": {"path": {"type": "string"}}})


def asked(text: str, *more: Item, ordinal: int = 0) -> ModelRequest:
    items = (UserMessage(ItemId("u"), text, "start"), *more)
    return ModelRequest("o3", "be brief", items, (LS,), "s", ordinal)


async def answered(aimock: Aimock, request: ModelRequest) -> list[ModelEvent]:
    async with (
        open_http(aimock.base_url, "sk-test") as http,
        aclosing(OpenAIChat(http).stream(request)) as stream,
    ):
        return [event async for event in stream]


def text_of(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def test_text_and_thinking_stream_in_pieces_cut_anywhere(aimock: Aimock) -> None:
    """It cuts text in UTF-16, through the middle of an emoji."""
    said = "Grüße 😀😀😀 an alle!"
    for size in range(1, 6):
        aimock.reset()
        aimock.answer(
            {"userMessage": "hello"}, {"content": said, "reasoning": "😀 hm"}, chunkSize=size
        )
        events = await answered(aimock, asked("hello"))
        assert text_of(events) == said
        assert "".join(e.text for e in events if isinstance(e, ReasoningDelta)) == "😀 hm"
        assert isinstance(events[-2], UsageReported)
        assert events[-2].usage.output_tokens > 0
        assert events[-1] == Finished("stop")


async def test_a_conversation_with_two_calls_and_their_results(aimock: Aimock) -> None:
    """B2: the second request holds the calls and their results under the ids it was given."""
    calls = [
        {"name": "ls", "arguments": {"path": "."}, "id": "call_a"},
        {"name": "ls", "arguments": {"path": "src"}, "id": "call_b"},
    ]
    aimock.answer(
        {"userMessage": "look", "hasToolResult": False},
        {"content": "Let me look.", "toolCalls": calls},
    )
    aimock.answer({"toolResultContains": "b.py"}, {"content": "Two files."})

    events = await answered(aimock, asked("look"))
    assert text_of(events) == "Let me look."
    assert [(e.call_id, e.name) for e in events if isinstance(e, ToolCallStarted)] == [
        ("call_a", "ls"),
        ("call_b", "ls"),
    ]
    arguments = ["", ""]
    for event in events:
        if isinstance(event, ToolCallDelta):
            arguments[event.index] += event.arguments
    assert [json.loads(text) for text in arguments] == [{"path": "."}, {"path": "src"}]
    assert [e.index for e in events if isinstance(e, ToolCallDone)] == [0, 1]
    assert events[-1] == Finished("tool_calls")

    results = [
        ToolCall(ItemId(id_), CallId(id_), "ls", text, "completed", output=output)
        for id_, text, output in zip(["call_a", "call_b"], arguments, ["a.py", "b.py"], strict=True)
    ]
    assert text_of(await answered(aimock, asked("look", *results, ordinal=1))) == "Two files."

    first, second = (entry["body"]["messages"] for entry in aimock.journal())
    check_chat_messages(first)
    check_chat_messages(second)
    assert [m["tool_call_id"] for m in second if m["role"] == "tool"] == ["call_a", "call_b"]
    assert second[: len(first)] == first


async def test_a_limit_with_retry_after_is_waited_for_and_passed(
    aimock: Aimock, mock_clock: MockClock
) -> None:
    """B46."""
    mock_clock.rate = 100  # Faster ones reach the limits of a busy machine.
    limit = {"error": {"message": "slow down", "type": "rate_limit_error"}, "status": 429}
    aimock.answer({"userMessage": "hello", "sequenceIndex": 0}, limit | {"retryAfter": 3})
    aimock.answer({"userMessage": "hello", "sequenceIndex": 1}, {"content": "Here."})
    seen: list[ModelEvent | RetryWait] = []
    async with (
        open_http(aimock.base_url) as http,
        aclosing(
            RetriedModel(OpenAIChat(http), Retry(), trio.current_time, lambda: 0.0).stream(
                asked("hello")
            )
        ) as stream,
    ):
        async for event in stream:
            seen.append(event)  # noqa: PERF401
    assert isinstance(seen[0], RetryWait)
    assert (seen[0].delay_s, seen[0].kind) == (3.0, "rate_limit")
    assert "slow down" in seen[0].cause
    assert [e for e in seen if isinstance(e, TextDelta)] == [TextDelta("Here.")]


@pytest.mark.parametrize(
    ("response", "options", "kind"),
    [
        ({"content": "x"}, {"chaos": {"malformedRate": 1.0}}, "bad_request"),
        ({"content": "x"}, {"chaos": {"disconnectRate": 1.0}}, "network"),
        ({"content": "x"}, {"chaos": {"dropRate": 1.0}}, "server"),
        ({"content": "x" * 500}, {"truncateAfterChunks": 3}, "network"),
        (
            {"error": {"message": "x", "code": "context_length_exceeded"}, "status": 400},
            {},
            "context_overflow",
        ),
        ({"error": {"message": "Incorrect API key"}, "status": 401}, {}, "authentication"),
        (OUT_OF_MONEY, {}, "quota"),
    ],
)
async def test_every_fault_it_can_show_is_a_typed_error(
    aimock: Aimock, response: dict[str, Any], options: dict[str, Any], kind: str
) -> None:
    """B46, B47."""
    aimock.answer({"userMessage": "hello"}, response, **options)
    with pytest.raises(ModelError) as caught:
        await answered(aimock, asked("hello"))
    assert caught.value.kind == kind
    assert aimock.base_url in caught.value.message


async def test_an_answer_cut_off_at_any_chunk_never_passes_for_a_short_one(aimock: Aimock) -> None:
    """B47."""
    failed = 0
    for chunks in range(1, 12):
        aimock.reset()
        aimock.answer(
            {"userMessage": "hello"},
            {"content": "one two three four five six"},
            chunkSize=5,
            truncateAfterChunks=chunks,
        )
        try:
            events = await answered(aimock, asked("hello"))
        except ModelError as error:
            failed += error.retryable
        else:
            assert text_of(events) == "one two three four five six"
            assert isinstance(events[-1], Finished)
    assert failed > 5
