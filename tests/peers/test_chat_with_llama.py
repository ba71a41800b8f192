"""The Chat adapter against a real model in llama.cpp's own server."""

from contextlib import aclosing
from typing import Any

import pytest
import trio

from support.peers import Llama
from support.providers import open_http
from tiller_daemon.models.base import (
    Finished,
    ModelError,
    ModelEvent,
    ModelRequest,
    TextDelta,
    ToolSpec,
    UsageReported,
)
from tiller_daemon.models.dialects.openai_chat.adapter import OpenAIChat
from tiller_daemon.turn.output_schema import message_problem
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import AssistantMessage, Item, Notice, ToolCall, UserMessage

pytestmark = pytest.mark.peer

HELLO = UserMessage(ItemId("u"), "Say hello.", "start")
READ = ToolSpec("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}})


def request(*items: Item, tokens: int | None = 12, **fields: object) -> ModelRequest:
    known = {"model": "smollm2", "system": "Be brief.", "tools": ()} | fields
    return ModelRequest(
        items=items,
        session_id="s",
        ordinal=0,
        max_output_tokens=tokens,
        **known,  # pyright: ignore
    )


async def answered(llama: Llama, asked: ModelRequest) -> list[ModelEvent]:
    async with (
        open_http(llama.base_url) as http,
        aclosing(OpenAIChat(http).stream(asked)) as stream,
    ):
        return [event async for event in stream]


async def test_a_real_answer_streams_and_is_counted(llama: Llama) -> None:
    events = await answered(llama, request(HELLO))
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
        AssistantMessage(ItemId("a"), "Let me read.", "completed"),
        ToolCall(ItemId("c1"), CallId("c1"), "read", '{"path":"a"}', "completed", output="hi"),
        ToolCall(ItemId("c2"), CallId("c2"), "read", "{broken", "pending"),
        Notice(ItemId("n"), "interrupted", "The user interrupted."),
        UserMessage(ItemId("u2"), "Go on.", "start", files=("a.py",)),
    )
    events = await answered(llama, request(*history, tools=(READ,), tokens=4))
    assert isinstance(events[-1], Finished)


async def test_a_request_beyond_its_context_is_told_as_such(llama: Llama) -> None:
    """B42."""
    long = UserMessage(ItemId("u"), "word " * 12_000, "start")
    with pytest.raises(ModelError) as caught:
        await answered(llama, request(long))
    assert caught.value.kind == "context_overflow"


def a_call(tool: str, argument: str) -> dict[str, Any]:
    """The schema of a call of a tool with one argument."""
    arguments = {
        "type": "object",
        "properties": {argument: {"type": "string"}},
        "required": [argument],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {"tool": {"const": tool}, "arguments": arguments},
        "required": ["tool", "arguments"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize("words", ["Show me the file main.py", "Run the command git status"])
@pytest.mark.promise("B10")
async def test_a_real_model_answers_in_the_form_of_a_call_that_a_schema_asks_for(
    llama: Llama, words: str
) -> None:
    """It is too weak to choose well among tools, and to call any by itself; the form it keeps."""
    schema = {"anyOf": [a_call("read", "path"), a_call("bash", "command")]}
    examples = [
        UserMessage(ItemId("u1"), "Show me the file notes.txt", "start"),
        AssistantMessage(
            ItemId("a1"), '{"tool":"read","arguments":{"path":"notes.txt"}}', "completed"
        ),
        UserMessage(ItemId("u2"), "Run the command ls -l", "start"),
        AssistantMessage(
            ItemId("a2"), '{"tool":"bash","arguments":{"command":"ls -l"}}', "completed"
        ),
    ]
    asked = UserMessage(ItemId("u3"), words, "start")
    options = {"temperature": 0}
    events = await answered(
        llama, request(*examples, asked, tokens=60, output_schema=schema, options=options)
    )
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert message_problem(schema, text) is None, text
    assert events[-1] == Finished("stop")


async def test_a_cancelled_answer_frees_the_server(llama: Llama) -> None:
    """B28: it has two slots; were they still busy, later requests would wait for them."""
    endless = request(UserMessage(ItemId("u"), "Count: 1 2 3 4 5 6", "start"), tokens=100_000)
    async with open_http(llama.base_url) as http:
        for _ in range(4):
            with trio.CancelScope() as scope:
                async with aclosing(OpenAIChat(http).stream(endless)) as stream:
                    async for event in stream:
                        if isinstance(event, TextDelta):
                            scope.cancel()
            assert scope.cancelled_caught
        with trio.fail_after(60):
            assert isinstance((await answered(llama, request(HELLO)))[-1], Finished)


async def test_two_answers_at_once_do_not_mix(llama: Llama) -> None:
    answers: list[list[ModelEvent]] = []

    async def one() -> None:
        answers.append(await answered(llama, request(HELLO)))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(one)
    assert all(isinstance(events[-1], Finished) for events in answers)
