"""Every adapter against a provider that breaks its streams, each way and after any frame."""

from collections.abc import Callable
from contextlib import aclosing

import pytest
import trio

from support.peers import Llmock
from support.providers import open_http
from tiller_daemon.models.base import (
    Finished,
    ModelClient,
    ModelError,
    ModelEvent,
    ModelRequest,
    ToolCallDelta,
    ToolCallDone,
    ToolSpec,
)
from tiller_daemon.models.dialects.anthropic_messages.adapter import AnthropicMessages
from tiller_daemon.models.dialects.openai_chat.adapter import OpenAIChat
from tiller_daemon.models.dialects.openai_responses.adapter import OpenAIResponses
from tiller_daemon.models.http.client import HttpClient
from tiller_protocol.ids import ItemId
from tiller_protocol.items import UserMessage

pytestmark = pytest.mark.peer

Adapter = Callable[[HttpClient], ModelClient]

LS = ToolSpec("ls", "Lists.", {"type": "object", "properties": {"path": {"type": "string"}}})
LOOK = ModelRequest("m", "", (UserMessage(ItemId("u"), "look", "start"),), (LS,), "s", 0)

FRAMES_MAX = 40
"""More than its call of `ls` has on any wire."""

every_adapter = pytest.mark.parametrize("adapter", [OpenAIChat, OpenAIResponses, AnthropicMessages])


async def answered(llmock: Llmock, adapter: Adapter) -> list[ModelEvent] | ModelError:
    url = llmock.anthropic_base_url if adapter is AnthropicMessages else llmock.base_url
    async with open_http(url, "sk-test") as http:
        try:
            async with aclosing(adapter(http).stream(LOOK)) as stream:
                return [event async for event in stream]
        except ModelError as error:
            return error


@every_adapter
@pytest.mark.parametrize(
    ("fault", "kinds"),
    [
        ("disconnect", {"network"}),
        ("truncate", {"broken_stream"}),
        ("malformed", {"broken_stream"}),
    ],
)
@pytest.mark.promise("B47")
async def test_a_broken_stream_is_an_error_until_the_answer_is_whole(
    llmock: Llmock, adapter: Adapter, fault: str, kinds: set[str]
) -> None:
    failed: list[ModelError] = []
    for frames in range(FRAMES_MAX):
        llmock.behave("stream_fault", kind=fault, after_chunks=frames)
        got = await answered(llmock, adapter)
        if not isinstance(got, ModelError):
            break
        failed.append(got)
    assert {error.kind for error in failed} == kinds
    assert all(error.retryable for error in failed)
    assert len(failed) > 3
    assert isinstance(got, list)
    assert sum(isinstance(event, ToolCallDone) for event in got) == 1
    arguments = "".join(e.arguments for e in got if isinstance(e, ToolCallDelta))
    assert (arguments[0], arguments[-1]) == ("{", "}")
    assert isinstance(got[-1], Finished)


@every_adapter
async def test_a_stall_is_waited_for(llmock: Llmock, adapter: Adapter) -> None:
    """The limit of silence is minutes; a pause within it costs nothing but time."""
    llmock.behave("stream_fault", kind="stall", after_chunks=3, stall_seconds=0.5)
    began = trio.current_time()
    got = await answered(llmock, adapter)
    assert isinstance(got, list)
    assert isinstance(got[-1], Finished)
    assert trio.current_time() - began >= 0.5
