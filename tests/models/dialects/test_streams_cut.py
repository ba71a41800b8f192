"""Recorded streams of every wire, cut anywhere: an error or the whole answer, never a short one."""

from collections import Counter
from contextlib import aclosing
from typing import Any

import pytest

from support.each import each
from support.http_server import Answer, events, serving
from support.providers import open_http
from support.streams import CLIENTS, STREAMS, WHOLE, decode, fold, wire_of
from tiller_daemon.models.base import ModelError, ModelEvent, ModelRequest
from tiller_protocol.ids import ItemId
from tiller_protocol.items import UserMessage

CUT_KINDS = {"broken_stream"}

TOLD_ONCE = {"responses-bare", "responses-items-without-pieces"}
"""Streams that say nothing again; nobody can see what of them is lost."""

FAILURES = {
    "chat-error-in-mid-stream-fails": "server",
    "messages-anthropic-api-error-fails": "server",
    "messages-anthropic-overloaded-fails": "overloaded",
    "messages-anthropic-too-long-fails": "context_overflow",
    "responses-openai-error-fails": "context_overflow",
    "responses-openai-failed-fails": "server",
    "responses-openai-rate-limited-fails": "rate_limit",
}

every_stream = each("name", STREAMS)
every_whole_stream = each("name", WHOLE)


def whole(name: str) -> dict[str, Any]:
    answer = decode(name, [STREAMS[name]])
    assert not isinstance(answer, ModelError), answer.message
    return answer


def told(answer: dict[str, Any]) -> list[Any]:
    """What an answer says and does, without what was thought."""
    text = "".join(item[1] for item in answer["items"] if item[0] == "text")
    calls = sorted(item[2:] for item in answer["items"] if item[0] == "call")
    return [text, calls, answer["finish"]]


def is_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two answers are the same; the usage may be missing, as it can come after the end."""
    return {**one, "usage": None} == {**other, "usage": None}


def test_there_are_streams_of_every_wire_and_of_many_makers() -> None:
    assert len(STREAMS) >= 50
    assert min(Counter(map(wire_of, STREAMS)).values()) >= 10
    assert set(FAILURES) == set(STREAMS) - set(WHOLE)


@every_whole_stream
def test_a_stream_may_come_in_pieces_of_any_size(name: str) -> None:
    stream = STREAMS[name]
    answer = whole(name)
    assert answer["items"] or "length" in name
    for size in (1, 2, 7, 64, 1000):
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert decode(name, pieces) == answer


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.nightly)])
@every_stream
@pytest.mark.promise("B47")
def test_a_stream_cut_at_any_byte_is_an_error_or_whole(name: str, step: int) -> None:
    stream = STREAMS[name]
    answer = decode(name, [stream])
    errors = 0
    for cut in range(0, len(stream), step):
        got = decode(name, [stream[:cut]])
        if isinstance(got, ModelError):
            errors += step
            if not isinstance(answer, ModelError):
                assert got.kind in CUT_KINDS
                assert got.retryable
        else:
            assert not isinstance(answer, ModelError)
            assert is_same(got, answer)
    assert errors > len(stream) // 3


@each(("name", "kind"), FAILURES.items())
def test_a_stream_that_says_that_it_failed_is_that_error(name: str, kind: str) -> None:
    error = decode(name, [STREAMS[name]])
    assert isinstance(error, ModelError)
    assert error.kind == kind


def frames(name: str) -> list[bytes]:
    stream = STREAMS[name].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return [frame + b"\n\n" for frame in stream.rstrip(b"\n").split(b"\n\n")]


@each("name", [name for name in WHOLE if wire_of(name) == "responses" and name not in TOLD_ONCE])
@pytest.mark.promise("B47")
def test_a_frame_that_is_lost_on_the_way_is_missed_or_does_not_matter(name: str) -> None:
    """Responses say everything again, and so what was lost is added or the stream is broken."""
    sent = frames(name)
    for lost in range(len(sent)):
        got = decode(name, sent[:lost] + sent[lost + 1 :])
        if not isinstance(got, ModelError):
            assert told(got) == told(whole(name)), sent[lost]


async def answer_over_http(name: str, answer: Answer) -> dict[str, Any] | ModelError:
    request = ModelRequest(
        "m", "", (UserMessage(ItemId("u"), "hello", "start"),), (), "s", ordinal=7
    )
    seen: list[ModelEvent] = []
    async with serving(answer) as server, open_http(server.base_url) as http:
        try:
            async with aclosing(CLIENTS[wire_of(name)](http).stream(request)) as stream:
                async for event in stream:
                    seen.append(event)  # noqa: PERF401
        except ModelError as error:
            return error
    return fold(seen)


@every_whole_stream
@each("end", [True, False])
@pytest.mark.promise("B47")
async def test_a_connection_that_ends_anywhere_gives_an_error_or_the_whole_answer(
    name: str,
    end: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """The same over real HTTP: a body that ends, and one that breaks off."""
    stream = STREAMS[name]
    answer = whole(name)
    for cut in {*range(0, len(stream), 1 + len(stream) // 6), len(stream)}:
        got = await answer_over_http(
            name, events(stream[:cut], end=end) if cut else events(end=end)
        )
        if isinstance(got, ModelError):
            assert cut < len(stream) or not end
            assert got.kind in ("broken_stream", "network")
        else:
            assert told(got) == told(answer)
