"""The Messages adapter over real HTTP: what it asks for, and every way in which that fails."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from support.dialect_anthropic import check_messages_body
from support.each import each
from support.http_server import Answer, events, hanging, raw, serving, status
from support.providers import open_http
from tiller_daemon.config import Retry
from tiller_daemon.config.model_schema import Timeouts
from tiller_daemon.models.base import (
    Finished,
    ModelError,
    ModelEvent,
    ModelRequest,
    TextDelta,
    UsageReported,
)
from tiller_daemon.models.dialects.anthropic_messages.adapter import AnthropicMessages
from tiller_daemon.turn.retry import RetriedModel, RetryWait
from tiller_protocol.ids import ItemId
from tiller_protocol.items import Usage, UserMessage

REQUEST = ModelRequest(
    "claude-opus-4-8", "Be brief.", (UserMessage(ItemId("u"), "hi", "start"),), (), "s", ordinal=0
)
KEY = "sk-ant-canary-0123456789"
TIMEOUTS = Timeouts()


def frame(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


GOOD = [
    frame("message_start", message={"usage": {"input_tokens": 5, "output_tokens": 1}}),
    frame("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    frame("content_block_delta", index=0, delta={"type": "text_delta", "text": "one "}),
    frame("content_block_delta", index=0, delta={"type": "text_delta", "text": "two"}),
    frame("content_block_stop", index=0),
    frame("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2}),
    frame("message_stop"),
]
WHOLE = [TextDelta("one two"), UsageReported(Usage(5, 0, 2)), Finished("stop")]


def joined(seen: list[ModelEvent]) -> list[ModelEvent]:
    text = "".join(event.text for event in seen if isinstance(event, TextDelta))
    rest: list[ModelEvent] = [event for event in seen if not isinstance(event, TextDelta)]
    return [TextDelta(text), *rest] if text else rest


@asynccontextmanager
async def opened(base_url: str, **fields: Any) -> AsyncGenerator[AnthropicMessages]:
    fields = {"api": "anthropic_messages", "api_key_header": "x-api-key"} | fields
    async with open_http(base_url, KEY, **fields) as http:
        yield AnthropicMessages(http)


async def collect(
    client: AnthropicMessages, seen: list[ModelEvent] | None = None
) -> list[ModelEvent]:
    seen = [] if seen is None else seen
    async with aclosing(client.stream(REQUEST)) as stream:
        async for event in stream:
            seen.append(event)
    return joined(seen)


async def failure(answer: Answer) -> ModelError:
    async with serving(answer) as server, opened(server.base_url) as client:
        with pytest.raises(ModelError) as caught:
            await collect(client)
    assert KEY not in caught.value.message
    assert server.base_url in caught.value.message
    return caught.value


@each("path", ["/v1", "", "/anthropic", "/anthropic/v1/"])
async def test_a_request_and_its_answer_whether_the_version_is_in_the_base_url_or_not(
    path: str,
) -> None:
    async with serving(events(*GOOD)) as server:
        base_url = server.base_url.removesuffix("/v1")
        async with opened(base_url + path) as client:
            assert await collect(client) == WHOLE
    (received,) = server.received
    assert received.path == path.removesuffix("/").removesuffix("/v1") + "/v1/messages"
    assert received.headers["x-api-key"] == KEY
    assert received.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in received.headers
    check_messages_body(json.dumps(received.body).encode())


async def test_configured_headers_win_and_name_the_betas() -> None:
    headers = {"Anthropic-Version": "2026-10-21", "anthropic-beta": "one,two"}
    async with serving(events(*GOOD)) as server, opened(server.base_url, headers=headers) as client:
        assert await collect(client) == WHOLE
    assert server.received[0].headers["anthropic-version"] == "2026-10-21"
    assert server.received[0].headers["anthropic-beta"] == "one,two"


async def test_the_connection_of_a_whole_answer_is_used_again() -> None:
    async with (
        serving(events(*GOOD, keep=True)) as server,
        opened(server.base_url) as client,
    ):
        for _ in range(3):
            assert await collect(client) == WHOLE
        assert server.connections == 1


async def test_a_server_that_never_ends_its_body_costs_nothing_once_the_message_has_stopped() -> (
    None
):
    async with serving(hanging(*GOOD)) as server, opened(server.base_url) as client:
        assert await collect(client) == WHOLE
        await server.client_closed.wait()


def refusal(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


TOO_LONG = "prompt is too long: 208310 tokens > 200000 maximum"
TOO_LONG_TOGETHER = (
    "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input "
    "length or `max_tokens` and try again"
)


@each(
    ("code", "type_", "message", "kind", "retryable"),
    [
        (400, "invalid_request_error", "max_tokens: Field required", "bad_request", False),
        (400, "invalid_request_error", TOO_LONG, "context_overflow", False),
        (400, "invalid_request_error", TOO_LONG_TOGETHER, "context_overflow", False),
        (413, "request_too_large", "Request exceeds the maximum size", "context_overflow", False),
        (400, "invalid_request_error", "Your credit balance is too low", "quota", False),
        (
            400,
            "invalid_request_error",
            "You have reached your specified API usage limits.",
            "quota",
            False,
        ),
        (402, "billing_error", "Payment is required", "quota", False),
        (
            400,
            "invalid_request_error",
            "Output blocked by content filtering policy",
            "content_policy",
            False,
        ),
        (401, "authentication_error", "invalid x-api-key", "authentication", False),
        (403, "permission_error", "not for you", "authentication", False),
        (404, "not_found_error", "model: claude-x", "not_found", False),
        (429, "rate_limit_error", "slow down", "rate_limit", True),
        (500, "api_error", "Internal server error", "server", True),
        (504, "timeout_error", "timed out", "server", True),
        (529, "overloaded_error", "Overloaded", "overloaded", True),
    ],
)
async def test_every_refusal_says_whose_fault_it_is_and_whether_to_try_again(
    code: int, type_: str, message: str, kind: str, *, retryable: bool
) -> None:
    """B42, B46."""
    error = await failure(status(code, refusal(type_, message)))
    assert (error.kind, error.status, error.retryable) == (kind, code, retryable)
    assert message[:40] in error.message


@each(
    ("answer", "kind", "said"),
    [
        (status(200, b"<html>", Content_Type="text/html"), "bad_request", "text/html instead"),
        (
            status(200, {"type": "message", "content": []}, Content_Type="application/json"),
            "bad_request",
            "application/json instead of an event stream",
        ),
        (events(*GOOD[:3]), "broken_stream", "before the response was complete"),
        (events(*GOOD[:6]), "broken_stream", "before the response was complete"),
        (events(), "broken_stream", "before the response was complete"),
        (events(*GOOD[:3], end=False), "network", "broke the connection"),
        (events(*GOOD[:6], end=False), "network", "broke the connection"),
        (events(*GOOD[:3], b"data: {nonsense\n\n"), "broken_stream", "an invalid frame"),
        (
            events(*GOOD[:3], frame("error", error={"type": "overloaded_error"})),
            "overloaded",
            "overloaded",
        ),
        (raw(b""), "network", "broke the connection"),
    ],
)
async def test_every_way_to_break_off_is_a_typed_error(
    answer: Answer, kind: str, said: str
) -> None:
    """B47."""
    error = await failure(answer)
    assert error.kind == kind
    assert pytest.RaisesExc(ModelError, match=said).matches(error)


async def test_a_break_after_the_message_has_stopped_loses_nothing() -> None:
    """B47."""
    cut = events(*GOOD, end=False)
    async with serving(cut) as server, opened(server.base_url) as client:
        assert await collect(client) == WHOLE


@pytest.mark.parametrize(("frames", "limit_s"), [(0, TIMEOUTS.first_byte_s), (3, TIMEOUTS.idle_s)])
async def test_a_silent_server_is_given_up_after_its_limit(
    mock_clock: MockClock, nursery: trio.Nursery, frames: int, limit_s: float
) -> None:
    async def jump_when_blocked() -> None:
        await wait_all_tasks_blocked(0.02)
        mock_clock.jump(limit_s + 1)

    async with serving(hanging(*GOOD[:frames])) as server, opened(server.base_url) as client:
        nursery.start_soon(jump_when_blocked)
        with pytest.raises(ModelError, match=f"sent nothing for {limit_s:g} seconds") as caught:
            await collect(client)
        assert caught.value.kind == "timeout"
        await server.client_closed.wait()


async def test_cancelling_closes_the_connection_at_once(nursery: trio.Nursery) -> None:
    """B28: the server sees it, so that it stops to compute."""
    seen: list[ModelEvent] = []
    async with serving(hanging(*GOOD[:4])) as server, opened(server.base_url) as client:
        with trio.CancelScope() as scope:

            async def cancel_in_mid_stream() -> None:
                await wait_all_tasks_blocked(0.02)
                assert joined(seen) == WHOLE[:1]
                scope.cancel()

            nursery.start_soon(cancel_in_mid_stream)
            await collect(client, seen)
        assert scope.cancelled_caught
        with trio.fail_after(10):
            await server.client_closed.wait()


async def test_retry_carries_a_turn_over_a_bad_server(mock_clock: MockClock) -> None:
    """B46, B47."""
    mock_clock.rate = 100  # Faster ones reach the limits of a busy machine.
    plan = [
        status(429, refusal("rate_limit_error", "slow down"), retry_after="7"),
        events(*GOOD[:3], frame("error", error={"type": "overloaded_error", "message": "x"})),
        events(*GOOD[:6]),
        events(*GOOD),
    ]
    seen: list[ModelEvent | RetryWait] = []
    async with (
        serving(*plan) as server,
        opened(server.base_url) as client,
        aclosing(
            RetriedModel(client, Retry(), trio.current_time, lambda: 0.0).stream(REQUEST)
        ) as stream,
    ):
        async for event in stream:
            seen.append(event)  # noqa: PERF401
    waits = [event for event in seen if isinstance(event, RetryWait)]
    assert [(wait.attempt, wait.delay_s, wait.kind) for wait in waits] == [
        (2, 7.0, "rate_limit"),
        (3, 1.0, "overloaded"),
        (4, 2.0, "broken_stream"),
    ]
    last = seen.index(waits[-1])
    assert joined([e for e in seen[last:] if not isinstance(e, RetryWait)]) == WHOLE
