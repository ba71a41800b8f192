"""The Responses adapter over real HTTP: what it asks for, and every way in which that fails."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock, wait_all_tasks_blocked

from support.dialect_responses import check_responses_body
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
from tiller_daemon.models.dialects.opaque import Origin
from tiller_daemon.models.dialects.openai_responses.adapter import OpenAIResponses
from tiller_daemon.models.dialects.openai_responses.request import API, seal_items
from tiller_daemon.turn.retry import RetriedModel, RetryWait
from tiller_protocol.ids import ItemId
from tiller_protocol.items import AssistantMessage, Reasoning, Usage, UserMessage

USER = UserMessage(ItemId("u"), "hi", "start")
REQUEST = ModelRequest("gpt-5", "Be brief.", (USER,), (), "s", ordinal=0)
KEY = "sk-canary-0123456789"
THOUGHT = b'{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"}'
TIMEOUTS = Timeouts()


def frame(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


DONE = {"type": "message", "content": [{"type": "output_text", "text": "one two"}]}
GOOD = [
    frame("response.created", response={"status": "in_progress"}),
    frame("response.output_item.added", output_index=0, item={"type": "message", "id": "m"}),
    frame("response.output_text.delta", output_index=0, item_id="m", delta="one "),
    frame("response.output_text.delta", output_index=0, item_id="m", delta="two"),
    frame("response.output_item.done", output_index=0, item=DONE),
    frame(
        "response.completed",
        response={"status": "completed", "usage": {"input_tokens": 5, "output_tokens": 2}},
    ),
]
WHOLE = [TextDelta("one two"), UsageReported(Usage(5, 0, 2)), Finished("stop")]


def joined(seen: list[ModelEvent]) -> list[ModelEvent]:
    text = "".join(event.text for event in seen if isinstance(event, TextDelta))
    rest: list[ModelEvent] = [event for event in seen if not isinstance(event, TextDelta)]
    return [TextDelta(text), *rest] if text else rest


@asynccontextmanager
async def opened(base_url: str, **fields: Any) -> AsyncGenerator[OpenAIResponses]:
    async with open_http(base_url, KEY, **{"api": "openai_responses", **fields}) as http:
        yield OpenAIResponses(http)


async def collect(
    client: OpenAIResponses,
    seen: list[ModelEvent] | None = None,
    request: ModelRequest = REQUEST,
) -> list[ModelEvent]:
    seen = [] if seen is None else seen
    async with aclosing(client.stream(request)) as stream:
        async for event in stream:
            seen.append(event)
    return joined(seen)


async def failure(answer: Answer) -> ModelError:
    async with serving(answer) as server, opened(server.base_url) as client:
        with pytest.raises(ModelError) as caught:
            await collect(client)
    assert KEY not in caught.value.message
    assert server.base_url in caught.value.message
    assert len(server.received) == 1
    return caught.value


async def test_a_request_and_its_answer() -> None:
    async with serving(events(*GOOD)) as server, opened(server.base_url) as client:
        assert await collect(client) == WHOLE
    (received,) = server.received
    assert received.path == "/v1/responses"
    assert received.headers["authorization"] == f"Bearer {KEY}"
    body = check_responses_body(json.dumps(received.body).encode())
    assert (body["model"], body["instructions"]) == ("gpt-5", "Be brief.")


async def test_the_connection_of_a_whole_answer_is_used_again() -> None:
    async with serving(events(*GOOD, keep=True)) as server, opened(server.base_url) as client:
        for _ in range(3):
            assert await collect(client) == WHOLE
        assert server.connections == 1


async def test_a_server_that_never_ends_its_body_costs_nothing_once_it_has_completed() -> None:
    async with serving(hanging(*GOOD)) as server, opened(server.base_url) as client:
        assert await collect(client) == WHOLE
        await server.client_closed.wait()


def refusal(message: str, code: str | None = None, type_: str = "invalid_request_error") -> Any:
    return {"error": {"message": message, "type": type_, "param": "x", "code": code}}


@each(
    ("status_", "message", "code", "kind", "retryable"),
    [
        (400, "Unsupported parameter: 'temperature'", None, "bad_request", False),
        (400, "Your input exceeds …", "context_length_exceeded", "context_overflow", False),
        (400, "violating our usage policy", "content_policy_violation", "content_policy", False),
        (401, "Incorrect API key provided", "invalid_api_key", "authentication", False),
        (403, "Country not supported", "unsupported_country", "authentication", False),
        (404, "The model does not exist", "model_not_found", "not_found", False),
        (429, "You exceeded your current quota", "insufficient_quota", "quota", False),
        (429, "Rate limit reached", "rate_limit_exceeded", "rate_limit", True),
        (500, "The server had an error", None, "server", True),
        (503, "The engine is currently overloaded", None, "overloaded", True),
    ],
)
async def test_every_refusal_says_whose_fault_it_is_and_whether_to_try_again(
    status_: int, message: str, code: str | None, kind: str, *, retryable: bool
) -> None:
    """B42, B46."""
    error = await failure(status(status_, refusal(message, code)))
    assert (error.kind, error.status, error.retryable) == (kind, status_, retryable)
    assert message in error.message


@each(
    ("answer", "kind", "said"),
    [
        (status(200, b"<html>", Content_Type="text/html"), "bad_request", "text/html instead"),
        (
            status(200, {"object": "response", "output": []}, Content_Type="application/json"),
            "bad_request",
            "application/json instead of an event stream",
        ),
        (events(*GOOD[:3]), "broken_stream", "before the response was complete"),
        (events(*GOOD[:5]), "broken_stream", "before the response was complete"),
        (events(), "broken_stream", "before the response was complete"),
        (events(b"<html>"), "broken_stream", "before the response was complete"),
        (events(*GOOD[:3], end=False), "network", "broke the connection"),
        (events(*GOOD[:5], end=False), "network", "broke the connection"),
        (events(*GOOD[:3], b"data: {nonsense\n\n"), "broken_stream", "an invalid frame"),
        (events(GOOD[0], frame("error", code="server_error", message="x")), "server", "It said: x"),
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


async def test_a_piece_that_is_missing_is_taken_from_the_whole() -> None:
    """B47."""
    async with (
        serving(events(*GOOD[:3], *GOOD[4:])) as server,
        opened(server.base_url) as client,
    ):
        assert await collect(client) == WHOLE


async def test_a_break_after_the_answer_has_completed_loses_nothing() -> None:
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
    mock_clock.rate = 100
    limited = {"code": "rate_limit_exceeded", "message": "Please try again in 3.5s."}
    plan = [
        status(429, refusal("slow down"), retry_after="7"),
        events(*GOOD[:3], frame("response.failed", response={"error": limited})),
        events(*GOOD[:5]),
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
        (3, 3.5, "rate_limit"),
        (4, 4.0, "broken_stream"),
    ]
    last = seen.index(waits[-1])
    assert joined([e for e in seen[last:] if not isinstance(e, RetryWait)]) == WHOLE


NEVER = "Encrypted content is not supported with this model."
NOT_NOW = (
    "The encrypted content gAAA… could not be verified. Reason: Encrypted content organization_id "
    "did not match the target organization."
)
NO_FOLLOWER = "Item 'rs_1' of type 'reasoning' was provided without its required following item."


def thoughtful(base_url: str) -> ModelRequest:
    """A request with thinking that came from the server at `base_url`."""
    opaque = seal_items(Origin(API, base_url, "gpt-5"), [THOUGHT])
    thought = Reasoning(ItemId("r"), "", "completed", opaque)
    said = AssistantMessage(ItemId("a"), "yes", "completed")
    return replace(REQUEST, items=(USER, thought, said, USER))


@pytest.mark.parametrize("message", [NEVER, NOT_NOW, NO_FOLLOWER])
async def test_a_request_refused_for_what_only_the_provider_reads_is_sent_without_it(
    message: str,
) -> None:
    """It stays in history: without this the session would be refused for ever."""
    refused = status(400, refusal(message, "invalid_encrypted_content"))
    async with (
        serving(refused, events(*GOOD)) as server,
        opened(server.base_url) as client,
    ):
        assert await collect(client, request=thoughtful(server.base_url)) == WHOLE
    first, second = (one.body for one in server.received)
    assert json.loads(THOUGHT) in first["input"]
    assert first["include"] == ["reasoning.encrypted_content"]
    assert [item["type"] for item in second["input"]] == ["message"] * 3
    assert "include" not in second


async def test_a_model_that_never_encrypts_is_asked_for_it_once() -> None:
    never = status(400, refusal(NEVER), Connection="close")
    plan = [never, events(*GOOD), events(*GOOD), events(*GOOD)]
    async with serving(*plan) as server, opened(server.base_url) as client:
        for model in ("gpt-4o", "gpt-4o", "gpt-5"):
            assert await collect(client, request=replace(REQUEST, model=model)) == WHOLE
    asked = ["include" in one.body for one in server.received]
    assert asked == [True, False, False, True]


async def test_another_organisation_s_thinking_is_tried_again_with_the_next_request() -> None:
    not_now = status(400, refusal(NOT_NOW))
    plan = [not_now, events(*GOOD), events(*GOOD)]
    async with serving(*plan) as server, opened(server.base_url) as client:
        for _ in range(2):
            assert await collect(client, request=thoughtful(server.base_url)) == WHOLE
    assert ["include" in one.body for one in server.received] == [True, False, True]


async def test_a_second_refusal_is_the_error() -> None:
    async with (
        serving(status(400, refusal(NOT_NOW))) as server,
        opened(server.base_url) as client,
    ):
        with pytest.raises(ModelError, match="could not be verified"):
            await collect(client, request=thoughtful(server.base_url))
        assert len(server.received) == 2
