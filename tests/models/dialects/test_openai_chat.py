"""The Chat adapter over real HTTP: every fault is a typed error, every cancellation a close."""

import json
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import cycle
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock, wait_all_tasks_blocked

from support.dialect import check_chat_messages
from support.each import each
from support.http_server import (
    EVENT_STREAM,
    Answer,
    chunk,
    events,
    hanging,
    raw,
    serving,
    status,
)
from support.narrowing import of_kind
from support.providers import open_http
from tiller_daemon.config import Provider, Retry
from tiller_daemon.config.model_schema import Timeouts
from tiller_daemon.models.base import Finished, ModelError, ModelEvent, ModelRequest, TextDelta
from tiller_daemon.models.dialects.openai_chat.adapter import OpenAIChat
from tiller_daemon.models.dialects.stream_decoder import TRAILING_FRAMES_S
from tiller_daemon.models.http.client import HttpClient
from tiller_daemon.turn.retry import RetriedModel, RetryWait
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import ToolCall, UserMessage

REQUEST = ModelRequest(
    "m", "be brief", (UserMessage(ItemId("u"), "hello", "start"),), (), "s", ordinal=0
)
KEY = "sk-canary-0123456789"


def frame(content: str = "", finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


GOOD = [frame("one "), frame("two"), frame("", "stop"), b"data: [DONE]\n\n"]
WHOLE = [TextDelta("one two"), Finished("stop")]


def joined(seen: list[ModelEvent]) -> list[ModelEvent]:
    text = "".join(event.text for event in seen if isinstance(event, TextDelta))
    rest: list[ModelEvent] = [event for event in seen if not isinstance(event, TextDelta)]
    return [TextDelta(text), *rest] if text else rest


@asynccontextmanager
async def opened(base_url: str, key: str | None = KEY, **fields: Any) -> AsyncGenerator[OpenAIChat]:
    async with open_http(base_url, key, **fields) as http:
        yield OpenAIChat(http)


async def collect(
    client: OpenAIChat, seen: list[ModelEvent] | None = None, *, request: ModelRequest = REQUEST
) -> list[ModelEvent]:
    seen = [] if seen is None else seen
    async with aclosing(client.stream(request)) as stream:
        async for event in stream:
            seen.append(event)
    return joined(seen)


async def failure(answer: Answer, **options: Any) -> ModelError:
    async with serving(answer) as server, opened(server.base_url, **options) as client:
        with pytest.raises(ModelError) as caught:
            await collect(client)
    assert KEY not in caught.value.message
    assert server.base_url in caught.value.message
    return caught.value


async def test_a_request_and_its_answer() -> None:
    async with serving(events(*GOOD)) as server, opened(server.base_url) as client:
        assert await collect(client) == WHOLE
    (received,) = server.received
    assert received.path == "/v1/chat/completions"
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert received.headers["accept"] == "text/event-stream"
    assert received.body["model"] == "m"
    check_chat_messages(received.body["messages"])


async def test_own_headers_are_sent_and_no_key_means_no_authorization() -> None:
    headers = {"X-Team": "blue"}
    async with (
        serving(events(*GOOD)) as server,
        opened(server.base_url, None, headers=headers) as client,
    ):
        assert await collect(client) == WHOLE
    assert server.received[0].headers["x-team"] == "blue"
    assert "authorization" not in server.received[0].headers


async def test_the_connection_of_a_whole_answer_is_used_again() -> None:
    async with serving(events(*GOOD, keep=True)) as server, opened(server.base_url) as client:
        for _ in range(3):
            assert await collect(client) == WHOLE
        assert server.connections == 1


async def test_a_server_that_never_ends_its_body_costs_nothing_once_it_said_done() -> None:
    async with serving(hanging(*GOOD)) as server, opened(server.base_url) as client:
        assert await collect(client) == WHOLE
        await server.client_closed.wait()


@each(
    ("code", "body", "kind", "said"),
    [
        (400, {"error": {"message": "no such field"}}, "bad_request", "no such field"),
        (
            400,
            {"error": {"message": "too long", "code": "context_length_exceeded"}},
            "context_overflow",
            "longer than the model's context",
        ),
        (
            400,
            {"error": {"code": 400, "message": "exceeds the available context size (4096)"}},
            "context_overflow",
            "4096",
        ),
        (400, {"error": {"message": "x", "code": "content_filter"}}, "content_policy", "policy"),
        (401, {"error": {"message": f"bad key {KEY}"}}, "authentication", r"bad key \[secret\]"),
        (403, b"", "authentication", "variable LOCAL_KEY"),
        (402, b"", "quota", "billing"),
        (404, {"error": "model 'm' not found"}, "not_found", "model 'm' not found"),
        (408, b"", "timeout", "408"),
        (409, b"", "rate_limit", "409"),
        (413, b"", "context_overflow", "413"),
        (418, b"I am a teapot", "bad_request", "I am a teapot"),
        (429, {"error": {"message": "slow down"}}, "rate_limit", "slow down"),
        (429, {"error": {"message": "x", "code": "insufficient_quota"}}, "quota", "quota"),
        (500, b"<html>oops</html>", "server", "HTTP 500"),
        (502, b"\xff\xfe", "server", "HTTP 502"),
        (503, [{"error": {"message": "busy"}}], "overloaded", "busy"),
        (529, {"type": "error", "error": {"type": "overloaded_error"}}, "overloaded", "529"),
        (302, b"", "bad_request", "base_url"),
        (204, b"", "bad_request", "instead of an event stream"),
    ],
)
async def test_every_status_has_its_kind_and_its_sentence(
    code: int, body: Any, kind: str, said: str
) -> None:
    """B46, G13."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    error = await failure(status(code, content))
    assert (error.kind, error.status) == (kind, code)
    assert pytest.RaisesExc(ModelError, match=said).matches(error)
    assert "<html>" not in error.message


@each(
    ("headers", "seconds"),
    [
        ({"retry_after_ms": "1500", "retry_after": "9"}, 1.5),
        ({"retry_after": "2"}, 2.0),
        ({"retry_after": "soon"}, None),
        ({}, None),
    ],
)
async def test_the_delay_that_a_provider_asks_for_is_kept(
    headers: dict[str, Any], seconds: float | None
) -> None:
    """B46."""
    assert (await failure(status(429, **headers))).retry_after_s == seconds


async def test_a_delay_may_be_a_date() -> None:
    """B46."""
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    asked = (await failure(status(503, retry_after=date))).retry_after_s
    assert asked is not None
    assert 80 < asked <= 90


@each(
    ("answer", "kind", "said"),
    [
        (status(200, b"<html>", Content_Type="text/html"), "bad_request", "text/html instead"),
        (
            status(200, {"text": "no"}, Content_Type="application/json"),
            "bad_request",
            "application/json instead of an event stream.*no",
        ),
        (events(frame("one ")), "broken_stream", "before the response was complete"),
        (events(), "broken_stream", "before the response was complete"),
        (events(frame("one "), end=False), "network", "broke the connection"),
        (events(b"data: {nonsense\n\n"), "broken_stream", "an invalid frame"),
        (events(frame("a"), b'data: {"error":{"message":"boom"}}\n\n'), "server", "boom"),
        (raw(b""), "network", "broke the connection"),
        (raw(b"SSH-2.0-OpenSSH\r\n"), "network", "broke the connection"),
        (raw(b"HTTP/1.1 200 OK\r\nContent-Le"), "network", "broke the connection"),
    ],
)
async def test_every_way_to_break_off_is_a_typed_error(
    answer: Answer, kind: str, said: str
) -> None:
    error = await failure(answer)
    assert error.kind == kind
    assert pytest.RaisesExc(ModelError, match=said).matches(error)


async def test_a_server_that_says_nothing_behind_the_finish_reason_is_not_waited_for(
    mock_clock: MockClock,
) -> None:
    """It sends no usage, no `[DONE]`, and no end; the limit of silence is minutes."""
    mock_clock.rate = 20
    async with serving(hanging(*GOOD[:3])) as server, opened(server.base_url) as client:
        began = trio.current_time()
        assert await collect(client) == WHOLE
        assert TRAILING_FRAMES_S <= trio.current_time() - began < 10 * TRAILING_FRAMES_S
        await server.client_closed.wait()


async def test_a_break_after_the_finish_reason_loses_nothing() -> None:
    """B47."""
    cut = events(*GOOD[:3], end=False)
    async with serving(cut) as server, opened(server.base_url) as client:
        assert await collect(client) == WHOLE


@each("frames", range(4))
async def test_a_break_anywhere_is_an_error_or_complete(frames: int) -> None:
    """B47."""
    cut = events(*GOOD[:frames], end=False)
    async with serving(cut) as server, opened(server.base_url) as client:
        try:
            assert await collect(client) == WHOLE
        except ModelError:
            assert frames < 3
        else:
            assert frames == 3


async def test_a_huge_error_body_is_read_in_part_only() -> None:
    """G12."""
    head = b"HTTP/1.1 500 No\r\nContent-Length: 100000000000\r\n\r\n"
    error = await failure(raw(head + b"x" * 1_000_000))
    assert error.kind == "server"
    assert len(error.message) < 1_000


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def test_a_refused_connection_names_the_address() -> None:
    """B48."""
    async with opened(f"http://127.0.0.1:{free_port()}/v1") as client:
        with pytest.raises(ModelError, match=r"127\.0\.0\.1:\d+/v1.*Start the server") as caught:
            await collect(client)
    assert caught.value.kind == "refused"


async def test_a_name_that_does_not_exist_is_a_matter_of_the_network() -> None:
    async with opened("http://nowhere.invalid/v1") as client:
        with pytest.raises(ModelError, match=r"nowhere\.invalid.*can't be reached") as caught:
            await collect(client)
    assert caught.value.kind == "network"


@pytest.mark.parametrize(
    "fields",
    [
        {"base_url": "ftp://host"},
        {"base_url": "host/v1"},
        {"base_url": "http://host", "headers": {"X-Secret": "sk-\nnext"}},
    ],
)
def test_what_can_not_be_sent_is_said_at_once_and_without_the_value(fields: dict[str, Any]) -> None:
    """G13."""
    with pytest.raises(ValueError, match="provider local") as caught:
        HttpClient("local", Provider("openai_chat", **fields))
    assert "sk-" not in str(caught.value)


@pytest.mark.parametrize("key", ["sk-\nnext", "sk-ключ"])
async def test_a_key_that_can_not_be_sent_is_refused_without_saying_it(key: str) -> None:
    """G13."""
    async with opened("http://127.0.0.1:9/v1", key) as client:
        with pytest.raises(ModelError, match="contains a character that can't be sent") as caught:
            await collect(client)
    assert caught.value.kind == "authentication"
    assert "sk-" not in caught.value.message


async def test_a_model_can_have_its_own_place_and_its_requests_parameters() -> None:
    """As on Azure: the deployment in the path, a version after it, the key in its own header."""
    fields = {"query": {"api-version": "2024-10-21"}, "api_key_header": "api-key"}
    async with serving(events(*GOOD)) as server:
        base_url = server.base_url.replace("/v1", "/openai/deployments/{model}/")
        async with opened(base_url, **fields) as client:
            assert await collect(client) == WHOLE
    (received,) = server.received
    assert received.path == "/openai/deployments/m/chat/completions?api-version=2024-10-21"
    assert received.headers["api-key"] == KEY
    assert "authorization" not in received.headers


@pytest.mark.skipif(not which("openssl"), reason="openssl makes the certificate")
async def test_a_certificate_that_is_not_trusted_is_no_matter_for_waiting(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    files = ["-subj", "/CN=localhost", "-keyout", tmp_path / "key", "-out", tmp_path / "cert"]
    await trio.run_process(["openssl", *made, *files], capture_stderr=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    listeners = await trio.open_ssl_over_tcp_listeners(0, context, host="127.0.0.1")
    port = of_kind(trio.SocketListener, listeners[0].transport_listener).socket.getsockname()[1]

    async def shake_hands(stream: trio.SSLStream[trio.SocketStream]) -> None:
        with suppress(trio.BrokenResourceError):
            await stream.do_handshake()

    nursery.start_soon(trio.serve_listeners, shake_hands, listeners)
    async with opened(f"https://127.0.0.1:{port}/v1") as client:
        with pytest.raises(ModelError, match="certificate that is not trusted") as caught:
            await collect(client)
    assert not caught.value.retryable
    nursery.cancel_scope.cancel()


async def jump_when_blocked(clock: MockClock, seconds: float) -> None:
    """Let so much time pass as soon as client and server wait for each other."""
    await wait_all_tasks_blocked(0.02)
    clock.jump(seconds)


@pytest.mark.parametrize(("frames", "limit_s"), [(0, 50), (1, 20)])
async def test_a_silent_server_is_given_up_after_its_limit(
    mock_clock: MockClock, nursery: trio.Nursery, frames: int, limit_s: float
) -> None:
    """A model may think long before it says anything, and then has no reason to stop."""
    limits = Timeouts(first_byte_s=50, idle_s=20)
    async with (
        serving(hanging(*GOOD[:frames])) as server,
        opened(server.base_url, timeouts=limits) as client,
    ):
        nursery.start_soon(jump_when_blocked, mock_clock, limit_s - 1)
        nursery.start_soon(jump_when_blocked, mock_clock, 2)
        with pytest.raises(ModelError, match=f"sent nothing for {limit_s} seconds") as caught:
            await collect(client)
        assert caught.value.kind == "timeout"
        assert trio.current_time() == pytest.approx(limit_s + 1)
        await server.client_closed.wait()


def dripping(*frames: bytes, every_s: float, first: bytes = b"") -> Answer:
    """Send `first` at once, then the frames again and again."""

    async def answer(stream: trio.abc.Stream) -> None:
        await stream.send_all(EVENT_STREAM + (chunk(first) if first else b""))
        with suppress(trio.BrokenResourceError):
            for frame in cycle(frames):
                await trio.sleep(every_s)
                await stream.send_all(chunk(frame))

    return answer


@pytest.mark.parametrize(("first", "limit_s"), [(b"", 50), (GOOD[0], 20)])
@pytest.mark.parametrize(
    "keep_alive",
    [
        b": PROCESSING\n\n",
        b": PROCESSING\n",
        b"event: ping\ndata: {}\n\n",
        b"data: null\n\n",
        b"data:\n\n",
        b'data: {"choices": []}\n\n',
    ],
)
async def test_keep_alives_are_no_sign_of_an_answer(
    mock_clock: MockClock, keep_alive: bytes, first: bytes, limit_s: float
) -> None:
    """Otherwise a turn could wait for ever."""
    mock_clock.autojump_threshold = 0.05
    limits = Timeouts(first_byte_s=50, idle_s=20)
    async with (
        serving(dripping(keep_alive, every_s=6, first=first)) as server,
        opened(server.base_url, timeouts=limits) as client,
    ):
        with pytest.raises(ModelError, match=f"nothing but keep-alives for {limit_s} s") as caught:
            await collect(client)
    assert caught.value.kind == "timeout"
    assert trio.current_time() == pytest.approx(limit_s, abs=7)


@pytest.mark.parametrize("pieces", [GOOD, [one for f in GOOD for one in (f[:9], f[9:])]])
async def test_a_slow_answer_is_waited_for(mock_clock: MockClock, pieces: list[bytes]) -> None:
    mock_clock.autojump_threshold = 0.05
    limits = Timeouts(first_byte_s=50, idle_s=20)
    async with (
        serving(dripping(*pieces, every_s=15)) as server,
        opened(server.base_url, timeouts=limits) as client,
    ):
        assert await collect(client) == WHOLE


async def test_cancelling_closes_the_connection_at_once(nursery: trio.Nursery) -> None:
    """B28: the server sees it, so that it stops to compute."""
    seen: list[ModelEvent] = []
    async with serving(hanging(*GOOD[:2])) as server, opened(server.base_url) as client:
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


async def test_leaving_early_closes_the_connection_too() -> None:
    async with serving(hanging(*GOOD[:2])) as server, opened(server.base_url) as client:
        async with aclosing(client.stream(REQUEST)) as stream:
            assert isinstance(await anext(stream), TextDelta)
        with trio.fail_after(10):
            await server.client_closed.wait()


async def test_retry_carries_a_turn_over_a_bad_server(mock_clock: MockClock) -> None:
    """B46, B47 and B48 in a row: refused by none, limited, broken, answered."""
    mock_clock.rate = 100  # Faster ones reach the limits of a busy machine.
    plan = [
        status(429, retry_after="7"),
        events(frame("half"), end=False),
        status(500),
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
        (3, 2.0, "network"),
        (4, 4.0, "server"),
    ]
    last = seen.index(waits[-1])
    assert joined([e for e in seen[last:] if not isinstance(e, RetryWait)]) == WHOLE


@each(
    ("body", "kind"),
    [
        ({"error": {"message": "Rate limit exceeded", "code": 429}}, "rate_limit"),
        ({"error": {"message": "The model is overloaded", "code": 503}}, "overloaded"),
        ({"error": {"message": "No.", "type": "insufficient_quota"}}, "quota"),
        ({"error": {"message": "No.", "code": "context_length_exceeded"}}, "context_overflow"),
        ({"object": "error", "message": "No.", "code": 401}, "authentication"),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "No."}}, "overloaded"),
        ({"error": "invalid path"}, "bad_request"),
        ({"id": "x", "choices": [], "error": None}, "bad_request"),
    ],
)
async def test_an_error_with_the_status_200_has_the_kind_that_it_says(
    body: dict[str, Any], kind: str
) -> None:
    failed = await failure(status(200, body, Content_Type="application/json"))
    assert failed.kind == kind


@each("kind", ["text/plain", "application/octet-stream", "application/json"])
@each("start", [b"", b": hello\n\n", b"\xef\xbb\xbf", b"\n\n", b"event: x\n"])
async def test_an_event_stream_counts_whatever_its_content_type(kind: str, start: bytes) -> None:
    body = start + b"".join(GOOD)
    async with (
        serving(status(200, body, Content_Type=kind)) as server,
        opened(server.base_url) as client,
    ):
        assert await collect(client) == WHOLE


@each(
    ("code", "body"),
    [
        (400, {"object": "error", "message": "Unexpected role 'user' after role 'tool'"}),
        (
            400,
            {"message": "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9."},
        ),
        (
            500,
            {
                "error": {
                    "message": "Jinja Exception: After the optional system message, conversation "
                    "roles must alternate user and assistant roles except for tool calls."
                }
            },
        ),
        (422, {"detail": "Unexpected role user after role tool"}),
    ],
)
async def test_a_model_of_mistral_under_another_name_is_recognized_by_its_refusal(
    code: int, body: dict[str, Any]
) -> None:
    """Otherwise it would refuse every further request of a session with an interrupted command."""
    call = ToolCall(ItemId("c"), CallId("call_1"), "bash", "{}", "error", output="aborted")
    history = (*REQUEST.items, call, *REQUEST.items)
    request = replace(REQUEST, items=history)
    async with (
        serving(status(code, body), events(*GOOD)) as server,
        opened(server.base_url) as client,
    ):
        assert await collect(client, request=request) == WHOLE
        assert await collect(client, request=request) == WHOLE
    refused, mended, later = [one.body["messages"] for one in server.received]
    assert [one["role"] for one in refused][-2:] == ["tool", "user"]
    assert [one["role"] for one in mended][-3:] == ["tool", "assistant", "user"]
    assert mended[-3]["tool_call_id"] == "000000000"
    assert later == mended


async def test_many_streams_at_once_share_one_client() -> None:
    async with serving(events(*GOOD)) as server, opened(server.base_url) as client:
        async with trio.open_nursery() as nursery:
            answers: list[list[ModelEvent]] = []

            async def one() -> None:
                answers.append(await collect(client))

            for _ in range(50):
                nursery.start_soon(one)
        assert answers == [WHOLE] * 50
        assert len(server.received) == 50
