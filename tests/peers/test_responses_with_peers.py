"""The Responses adapter against three third-party servers: two fake providers and llama.cpp."""

import json
from contextlib import aclosing
from typing import Any

import pytest
import trio
from msgspec.structs import replace

from support.dialect_responses import check_responses_body
from support.peers import Aimock, Llama, Llmock
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
from tiller_daemon.models.dialects.openai_responses.adapter import OpenAIResponses
from tiller_daemon.models.dialects.openai_responses.request import build_body
from tiller_daemon.turn.retry import RetriedModel, RetryWait
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import (
    AssistantMessage,
    Image,
    Item,
    Notice,
    Reasoning,
    ToolCall,
    Usage,
    UserMessage,
)

pytestmark = pytest.mark.peer

LS = ToolSpec("ls", "Lists.", {"type": "object", "properties": {"path": {"type": "string"}}})
LLMOCK_FRAMES = 8
"""How many frames its call of `ls` has."""

OUT_OF_MONEY = {
    "error": {"message": "x", "code": "insufficient_quota"},
    "status": 429,
    "retryAfter": 86_400,
}
"""With a shorter wait, which it names by itself, this would be a limit of the rate."""

HELLO = UserMessage(ItemId("u"), "Say hello.", "start")


def asked(text: str, *more: Item, **fields: Any) -> ModelRequest:
    items = (UserMessage(ItemId("u"), text, "start"), *more)
    known: dict[str, Any] = {"model": "gpt-5", "system": "be brief", "tools": (LS,), "ordinal": 0}
    return ModelRequest(items=items, session_id="s", **(known | fields))


async def answered(base_url: str, request: ModelRequest) -> list[ModelEvent]:
    check_responses_body(build_body(request, base_url))
    async with (
        open_http(base_url, "sk-test", api="openai_responses") as http,
        aclosing(OpenAIResponses(http).stream(request)) as stream,
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


async def test_a_conversation_with_aimock_in_two_calls_their_outputs_a_thought_and_a_search(
    aimock: Aimock,
) -> None:
    """B2: the second request holds calls, outputs, and what only the provider reads, as it came."""
    calls = [
        {"name": "ls", "arguments": {"path": "."}, "id": "call_a"},
        {"name": "ls", "arguments": {"path": "src"}, "id": "call_b"},
    ]
    aimock.answer(
        {"userMessage": "look", "hasToolResult": False},
        {
            "content": "Let me look.",
            "toolCalls": calls,
            "reasoning": "I should look.",
            "webSearches": ["how to look"],
        },
    )
    aimock.answer({"toolResultContains": "b.py"}, {"content": "Two files."})

    events = await answered(aimock.base_url, asked("look"))
    assert text_of(events) == "Let me look."
    started = [(e.call_id, e.name) for e in events if isinstance(e, ToolCallStarted)]
    assert started == [("call_a", "ls"), ("call_b", "ls")]
    arguments = ["", ""]
    for event in events:
        if isinstance(event, ToolCallDelta):
            arguments[event.index] += event.arguments
    assert [json.loads(text) for text in arguments] == [{"path": "."}, {"path": "src"}]
    assert [e.index for e in events if isinstance(e, ToolCallDone)] == [0, 1]
    assert events[-1] == Finished("tool_calls")

    # The search begins an item of its own.
    kept = [e.opaque for e in events if isinstance(e, ReasoningDelta) if e.opaque]
    thoughts = [
        Reasoning(ItemId(f"r{number}"), text, "completed", opaque)
        for number, (text, opaque) in enumerate(zip(["I should look.", ""], kept, strict=True))
    ]
    message = AssistantMessage(ItemId("a"), "Let me look.", "completed")
    results = [
        ToolCall(ItemId(id_), CallId(id_), "ls", text, "completed", output=output)
        for id_, text, output in zip(["call_a", "call_b"], arguments, ["a.py", "b.py"], strict=True)
    ]
    history = asked("look", *thoughts, message, *results, ordinal=1)
    assert text_of(await answered(aimock.base_url, history)) == "Two files."

    first, second = (
        check_responses_body(build_body(one, aimock.base_url))["input"]
        for one in (asked("look"), history)
    )
    assert second[: len(first)] == first
    assert [item["type"] for item in second[1:3]] == ["reasoning", "web_search_call"]
    assert second[1]["encrypted_content"]
    seen = aimock.journal()[1]["body"]["messages"]
    assert [m["tool_call_id"] for m in seen if m["role"] == "tool"] == ["call_a", "call_b"]
    elsewhere = build_body(replace(history, model="gpt-6"), aimock.base_url)
    assert b"encrypted_content" not in elsewhere.replace(b"reasoning.encrypted_content", b"")


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
async def test_every_fault_of_aimock_is_a_typed_error(
    aimock: Aimock, response: dict[str, Any], options: dict[str, Any], kind: str
) -> None:
    """B46, B47."""
    aimock.answer({"userMessage": "hello"}, response, **options)
    with pytest.raises(ModelError) as caught:
        await answered(aimock.base_url, asked("hello"))
    assert caught.value.kind == kind
    assert aimock.base_url in caught.value.message


async def test_an_answer_of_aimock_cut_off_at_any_chunk_never_passes_for_a_short_one(
    aimock: Aimock,
) -> None:
    """B47."""
    said = "one two three four five six"
    failed = 0
    for chunks in range(1, 24):
        aimock.reset()
        aimock.answer(
            {"userMessage": "hello"}, {"content": said}, chunkSize=5, truncateAfterChunks=chunks
        )
        try:
            events = await answered(aimock.base_url, asked("hello"))
        except ModelError as error:
            failed += error.retryable
        else:
            assert text_of(events) == said
            assert isinstance(events[-1], Finished)
    assert failed > 10


async def test_a_length_that_aimock_reports_is_one(aimock: Aimock) -> None:
    aimock.answer({"userMessage": "hello"}, {"content": "cut", "finishReason": "length"})
    assert (await answered(aimock.base_url, asked("hello")))[-1] == Finished("length")


async def test_llmock_calls_a_tool_and_answers_when_it_has_the_output(llmock: Llmock) -> None:
    events = await answered(llmock.base_url, asked("look"))
    (started,) = [event for event in events if isinstance(event, ToolCallStarted)]
    arguments = "".join(e.arguments for e in events if isinstance(e, ToolCallDelta))
    assert events[-1] == Finished("tool_calls")
    call = ToolCall(
        ItemId("c"), CallId(started.call_id), "ls", arguments, "completed", output="a.py"
    )
    events = await answered(llmock.base_url, asked("look", call, ordinal=1))
    assert text_of(events)
    assert events[-1] == Finished("stop")
    assert llmock.verdict()["passed"]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [("disconnect", "network"), ("truncate", "broken_stream"), ("malformed", "broken_stream")],
)
async def test_every_stream_fault_of_llmock_after_any_number_of_frames_is_an_error(
    llmock: Llmock, fault: str, kind: str
) -> None:
    """B47: wherever it strikes before the end; a stream that ends early never passes for whole."""
    for frames in range(LLMOCK_FRAMES):
        llmock.behave("stream_fault", kind=fault, after_chunks=frames)
        with pytest.raises(ModelError) as caught:
            await answered(llmock.base_url, asked("look"))
        assert caught.value.kind == kind
        assert caught.value.retryable
    llmock.behave("stream_fault", kind=fault, after_chunks=LLMOCK_FRAMES)
    events = await answered(llmock.base_url, asked("look"))
    assert events[-1] == Finished("tool_calls")


async def test_llmock_judges_that_its_limits_and_broken_streams_are_coped_with(
    llmock: Llmock,
) -> None:
    """B46, B47: waits as long as it is told to, tries again what can be, nothing else."""
    llmock.behave("fail", status=429, retry_after=1)
    llmock.behave("stream_fault", kind="truncate", after_chunks=5)
    llmock.behave("fail", status=503)
    seen: list[ModelEvent | RetryWait] = []
    async with (
        open_http(llmock.base_url, "sk-test", api="openai_responses") as http,
        aclosing(
            RetriedModel(OpenAIResponses(http), Retry(), trio.current_time, lambda: 0.9).stream(
                asked("look")
            )
        ) as stream,
    ):
        async for event in stream:
            seen.append(event)  # noqa: PERF401
    assert seen[-1] == Finished("tool_calls")
    kinds = [event.kind for event in seen if isinstance(event, RetryWait)]
    assert sorted(kinds) == ["broken_stream", "overloaded", "rate_limit"]
    verdict = llmock.verdict()
    assert verdict["passed"], verdict
    assert verdict["findings"] == []


async def test_llmock_s_refusals_are_not_tried_again(llmock: Llmock) -> None:
    llmock.behave("fail", status=400)
    with pytest.raises(ModelError) as caught:
        await answered(llmock.base_url, asked("look"))
    assert caught.value.kind == "bad_request"
    verdict = llmock.verdict()
    assert verdict["findings"] == []
    assert verdict["attempts"] == 1


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


async def test_a_real_answer_that_the_limit_cut_is_not_taken_for_whole(llama: Llama) -> None:
    """B47: the server calls it completed; the count says otherwise."""
    events = await answered(llama.base_url, to_llama(HELLO, tokens=3))
    assert events[-1] == Finished("length")


async def test_every_kind_of_item_passes_its_chat_template(llama: Llama) -> None:
    """G4: also a call that never got its result, and what came from another provider."""
    history = (
        HELLO,
        Reasoning(ItemId("r"), "hm", "completed", "openai_responses x y\n[]"),
        AssistantMessage(ItemId("a"), "Let me look.", "completed"),
        ToolCall(ItemId("c1"), CallId("c1"), "ls", '{"path":"a"}', "completed", output="hi"),
        ToolCall(ItemId("c2"), CallId("c2"), "ls", "{broken", "pending"),
        Notice(ItemId("n"), "interrupted", "The user interrupted."),
        UserMessage(ItemId("u2"), "Go on.", "start", files=("a.py",)),
    )
    for tools in ((LS,), ()):
        events = await answered(llama.base_url, to_llama(*history, tools=tools, tokens=4))
        assert isinstance(events[-1], Finished)


async def test_images_are_told_apart_from_text(llama: Llama) -> None:
    """It can't see; that it says so shows that it understood."""
    shown = UserMessage(ItemId("u"), "Look.", "start", (Image("image/png", b"\x89PNG"),))
    with pytest.raises(ModelError, match="image"):
        await answered(llama.base_url, to_llama(shown))


async def test_a_request_beyond_its_context_is_told_as_such(llama: Llama) -> None:
    """B42."""
    long = UserMessage(ItemId("u"), "word " * 12_000, "start")
    with pytest.raises(ModelError) as caught:
        await answered(llama.base_url, to_llama(long))
    assert caught.value.kind == "context_overflow"


async def test_a_schema_is_taken_by_a_server_that_does_not_hold_to_it(llama: Llama) -> None:
    schema = {
        "type": "object",
        "properties": {"word": {"enum": ["yes", "no"]}},
        "required": ["word"],
        "additionalProperties": False,
    }
    events = await answered(llama.base_url, to_llama(HELLO, tokens=40, output_schema=schema))
    assert isinstance(events[-1], Finished)


async def test_a_cancelled_answer_frees_the_server(llama: Llama) -> None:
    """B28: it has two slots; were they still busy, later requests would wait for them."""
    count = UserMessage(ItemId("u"), "Count: 1 2 3 4 5 6", "start")
    async with open_http(llama.base_url, api="openai_responses") as http:
        for _ in range(4):
            with trio.CancelScope() as scope:
                client = OpenAIResponses(http)
                async with aclosing(client.stream(to_llama(count, tokens=100_000))) as stream:
                    async for event in stream:
                        if isinstance(event, TextDelta):
                            scope.cancel()
            assert scope.cancelled_caught
    with trio.fail_after(60):
        assert isinstance((await answered(llama.base_url, to_llama(HELLO)))[-1], Finished)


async def test_two_answers_at_once_do_not_mix(llama: Llama) -> None:
    answers: list[list[ModelEvent]] = []

    async def one() -> None:
        answers.append(await answered(llama.base_url, to_llama(HELLO)))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(one)
    assert all(isinstance(events[-1], Finished) for events in answers)
