"""The Chat adapter against a real model in llama.cpp's own server."""

from contextlib import aclosing

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
from tiller_daemon.models.openai_chat import OpenAIChat
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
