"""Messages frames as events, cut at every byte; complete or an error, never short."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.each import each
from support.messages_frames import (
    PING,
    STOP,
    begun,
    call,
    ended,
    frame,
    piece,
    started,
    stopped,
    text,
    thought,
)
from tiller_daemon.models.base import (
    Finished,
    ModelError,
    ModelEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallDone,
    ToolCallStarted,
    UsageReported,
)
from tiller_daemon.models.dialects.anthropic_messages.opaque_blocks import origin_of, unseal_blocks
from tiller_daemon.models.dialects.anthropic_messages.stream import MessagesDecoder
from tiller_daemon.models.http.failure import Endpoint
from tiller_protocol.events import FinishReason
from tiller_protocol.ids import ItemId
from tiller_protocol.items import Reasoning, Usage

ENDPOINT = Endpoint("claude", "http://127.0.0.1:1/v1", headers=("sk-secret",))


def decode(stream: bytes, *cuts: int) -> list[ModelEvent]:
    decoder = MessagesDecoder(ENDPOINT, "m", 7, "digest")
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    events: list[ModelEvent] = []
    for start, end in pairwise(places):
        events += decoder.feed(stream[start:end])
    return events + decoder.end()


def summary(events: list[ModelEvent]) -> dict[str, Any]:
    """What the events add up to, however they were cut; checks that their order makes sense."""
    said: list[str] = []
    thoughts: list[tuple[str, str]] = []
    calls: dict[int, list[str]] = {}
    done: set[int] = set()
    current: type[ModelEvent] | None = None
    for event in events:
        match event:
            case TextDelta():
                said = [*said, event.text] if current is not TextDelta else said
                said[-1] = said[-1] if current is not TextDelta else said[-1] + event.text
                current = TextDelta
            case ReasoningDelta():
                if current is not ReasoningDelta:
                    thoughts.append(("", ""))
                before, opaque = thoughts[-1]
                thoughts[-1] = (before + event.text, event.opaque or opaque)
                current = ReasoningDelta
            case ToolCallStarted():
                assert event.index == len(calls)
                calls[event.index] = [event.call_id, event.name, ""]
                current = ToolCallStarted
            case ToolCallDelta():
                assert event.index not in done
                calls[event.index][2] += event.arguments
            case ToolCallDone():
                assert event.index not in done
                done.add(event.index)
            case UsageReported() | Finished():
                pass
    assert done == set(calls)
    assert len({call_id for call_id, _, _ in calls.values()}) == len(calls)
    assert [type(event) for event in events].count(Finished) == 1
    return {
        "text": said,
        "thought": "".join(one for one, _ in thoughts),
        "kept": [block for one in thoughts for block in kept_blocks(*one)],
        "calls": list(calls.values()),
        "usage": [event.usage for event in events if isinstance(event, UsageReported)],
        "finish": events[-1],
    }


def kept_blocks(said: str, opaque: str) -> tuple[dict[str, Any], ...]:
    item = Reasoning(ItemId("r"), said, "completed", opaque)
    kept = unseal_blocks(item, origin_of(ENDPOINT.base_url, "m"))
    assert kept is None or kept.prefix == "digest"
    return kept.blocks if kept else ()


SEARCH = {"type": "server_tool_use", "id": "srv1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srv1", "content": [{"url": "u"}]}
CITATION = {"type": "web_search_result_location", "url": "u", "encrypted_index": "E"}

WHOLE_STREAMS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "text, with pings, and usage that grows": (
        started(
            input_tokens=10,
            cache_creation_input_tokens=20,
            cache_read_input_tokens=70,
            output_tokens=1,
        )
        + begun(0, "text", text="")
        + PING
        + piece(0, "text_delta", text="Hé")
        + piece(0, "text_delta", text="llo")
        + stopped(0)
        + ended("end_turn", output_tokens=5, output_tokens_details={"thinking_tokens": 2}),
        {"text": ["Héllo"], "usage": [Usage(100, 70, 5, 2, 20)], "finish": Finished("stop")},
    ),
    "thinking, text and two calls": (
        started(input_tokens=3)
        + thought(0, "sig", "h", "m")
        + text(1, "Let me ", "look.")
        + call(2, "toolu_a", "read", "", '{"pa', 'th":"x"}')
        + call(3, "toolu_b", "plan")
        + ended("tool_use", output_tokens=9),
        {
            "text": ["Let me look."],
            "thought": "hm",
            "kept": [{"type": "thinking", "thinking": "hm", "signature": "sig"}],
            "calls": [["toolu_a", "read", '{"path":"x"}'], ["toolu_b", "plan", "{}"]],
            "usage": [Usage(3, 0, 9)],
            "finish": Finished("tool_calls"),
        },
    ),
    "thinking in several blocks, one of them redacted, one of them hidden": (
        started()
        + thought(0, "s0", "one")
        + begun(1, "redacted_thinking", data="EqQB")
        + stopped(1)
        + thought(2, "s2")
        + thought(3, "s3", "two")
        + text(4, "So")
        + thought(5, "s5", "three")
        + call(6, "a", "read", "{}")
        + ended("tool_use"),
        {
            "text": ["So"],
            "thought": "onetwothree",
            "kept": [
                {"type": "thinking", "thinking": "one", "signature": "s0"},
                {"type": "redacted_thinking", "data": "EqQB"},
                {"type": "thinking", "thinking": "", "signature": "s2"},
                {"type": "thinking", "thinking": "two", "signature": "s3"},
                {"type": "thinking", "thinking": "three", "signature": "s5"},
            ],
            "calls": [["a", "read", "{}"]],
            "finish": Finished("tool_calls"),
        },
    ),
    "a server's tool, its result, and text with citations": (
        started()
        + frame("content_block_start", index=0, content_block=SEARCH | {"input": {}})
        + piece(0, "input_json_delta", partial_json='{"query"')
        + piece(0, "input_json_delta", partial_json=':"x"}')
        + stopped(0)
        + frame("content_block_start", index=1, content_block=FOUND)
        + stopped(1)
        + begun(2, "text", text="", citations=[])
        + piece(2, "citations_delta", citation=CITATION)
        + piece(2, "text_delta", text="It is so.")
        + stopped(2)
        + text(3, " And so.")
        + ended("end_turn"),
        {
            "text": ["It is so. And so."],
            "kept": [SEARCH, FOUND, {"type": "text", "texts": [[9, [CITATION]], [8, []]]}],
            "finish": Finished("stop"),
        },
    ),
    "all at once in the first frame of a block": (
        begun(0, "thinking", thinking="hm", signature="sig")
        + stopped(0)
        + begun(1, "text", text="Hi")
        + stopped(1)
        + begun(2, "tool_use", id="a", name="read", input={"path": "x"})
        + stopped(2)
        + ended("tool_use"),
        {
            "text": ["Hi"],
            "thought": "hm",
            "kept": [{"type": "thinking", "thinking": "hm", "signature": "sig"}],
            "calls": [["a", "read", '{"path":"x"}']],
            "finish": Finished("tool_calls"),
        },
    ),
    "every block has index 0 and none is ended; ids are missing and doubled": (
        started()
        + begun(0, "text", text="")
        + piece(0, "text_delta", text="Hi")
        + begun(0, "tool_use", id="", name="read", input={})
        + piece(0, "input_json_delta", partial_json='{"path":"x"}')
        + begun(0, "tool_use", id="a", name="ls")
        + begun(0, "tool_use", id="a", name="ls")
        + ended("tool_use"),
        {
            "text": ["Hi"],
            "calls": [
                ["call_7_0", "read", '{"path":"x"}'],
                ["a", "ls", "{}"],
                ["call_7_2", "ls", "{}"],
            ],
            "finish": Finished("tool_calls"),
        },
    ),
    "blocks, deltas and events of the future": (
        frame("future_event", index=9, usage={"input_tokens": 99})
        + started(input_tokens=1)
        + begun(0, "future", data="?")
        + piece(0, "future_delta", data="??")
        + stopped(0)
        + begun(1, "text", text="")
        + piece(1, "future_delta", data="??")
        + piece(1, "text_delta", text="Hi")
        + stopped(1)
        + ended("future_reason"),
        {
            "text": ["Hi"],
            "kept": [{"type": "future", "data": "?"}],
            "usage": [Usage(1)],
            "finish": Finished("unknown"),
        },
    ),
    "cut off at its limit in the middle of a call": (
        started()
        + call(0, "a", "read", '{"path":')
        + ended("max_tokens", output_tokens=8, input_tokens=2),
        {
            "calls": [["a", "read", '{"path":']],
            "usage": [Usage(2, 0, 8)],
            "finish": Finished("length"),
        },
    ),
    "refused": (
        started() + text(0) + ended("refusal"),
        {"finish": Finished("content_filter")},
    ),
    "an empty answer, CR LF, a comment, no blank line at the end, [DONE]": (
        (b": hello\n\n" + started() + ended(None)).replace(b"\n", b"\r\n") + b"data: [DONE]",
        {"finish": Finished("unknown")},
    ),
}
NOTHING: dict[str, Any] = {"text": [], "thought": "", "kept": [], "calls": [], "usage": []}
whole_streams = each("stream, expected", WHOLE_STREAMS.values())


@whole_streams
def test_a_stream_is_understood(stream: bytes, expected: dict[str, Any]) -> None:
    assert summary(decode(stream)) == NOTHING | expected


@whole_streams
def test_bytes_may_come_in_any_two_pieces(stream: bytes, expected: dict[str, Any]) -> None:
    for cut in range(len(stream) + 1):
        assert summary(decode(stream, cut)) == NOTHING | expected


@whole_streams
def test_a_stream_cut_at_any_byte_is_an_error_or_complete(
    stream: bytes, expected: dict[str, Any]
) -> None:
    """B47: a cut stream never passes for a short answer."""
    said_end = stream.find(b'{"type":"message_stop"}') + len(b'{"type":"message_stop"}')
    for cut in range(said_end):
        with pytest.raises(ModelError) as caught:
            decode(stream[:cut])
        assert caught.value.kind == "broken_stream"
    for cut in range(said_end, len(stream)):
        assert summary(decode(stream[:cut])) == NOTHING | expected


@each(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("pause_turn", "paused"),
    ],
)
def test_every_stop_reason_has_its_meaning(reason: str, finish: FinishReason) -> None:
    assert decode(started() + ended(reason))[-1] == Finished(finish)


pieces = st.text(min_size=1, max_size=6)


@given(
    plan=st.lists(
        st.tuples(st.sampled_from(["text", "thinking", "tool_use"]), st.lists(pieces, max_size=4)),
        max_size=8,
    ),
    cuts=st.lists(st.integers(0, 9_000), max_size=10),
    kept=st.booleans(),
)
def test_any_blocks_of_any_pieces_add_up(
    plan: list[tuple[str, list[str]]], cuts: list[int], *, kept: bool
) -> None:
    stream, said, thinking, calls = started(), "", "", list[list[str]]()
    for index, (kind, parts) in enumerate(plan):
        match kind:
            case "text":
                stream += text(index, *parts)
                said += "".join(parts)
            case "thinking":
                stream += thought(index, "s", *parts)
                thinking += "".join(parts)
            case _:
                stream += call(index, f"id{index}", "read", *parts)
                arguments = "".join(parts)
                whole = arguments if arguments.strip() else arguments + "{}"
                calls.append([f"id{index}", "read", whole])
    got = summary(decode(stream + ended("end_turn"), *cuts))
    assert ("".join(got["text"]), got["thought"], got["calls"]) == (said, thinking, calls)
    assert [b["thinking"] for b in got["kept"]] == [
        "".join(parts) for kind, parts in plan if kind == "thinking"
    ]


def test_a_complete_call_is_said_while_the_next_one_streams() -> None:
    """B33."""
    decoder = MessagesDecoder(ENDPOINT, "m", 0, "")
    decoder.feed(call(0, "a", "read", '{"path":"x"}')[: -len(stopped(0))])
    assert decoder.feed(stopped(0) + begun(1, "tool_use", id="b", name="bash")) == [
        ToolCallDone(0),
        ToolCallStarted(1, "b", "bash"),
    ]


def test_text_of_one_chunk_is_one_event() -> None:
    chunk = b"".join(piece(0, "text_delta", text=str(n)) for n in range(10))
    decoder = MessagesDecoder(ENDPOINT, "m", 0, "")
    assert decoder.feed(begun(0, "text", text="") + chunk) == [TextDelta("0123456789")]


@given(said=st.text(alphabet="a😀é", min_size=1, max_size=12), cut=st.integers(0, 24))
def test_a_surrogate_pair_cut_in_two_is_joined(said: str, cut: int) -> None:
    """T16: what comes out is what was meant, and can be encoded."""
    units = said.encode("utf-16-le", "surrogatepass")
    halves = [
        unit.decode("utf-16-le", "surrogatepass") for unit in (units[: 2 * cut], units[2 * cut :])
    ]
    stream = text(0, *halves) + thought(1, "s", *halves) + call(2, "i", "say", *halves)
    got = summary(decode(stream + ended("tool_use")))
    assert ("".join(got["text"]), got["thought"]) == (said, said)
    assert got["calls"] == [["i", "say", said]]


def test_a_surrogate_without_its_other_half_does_not_break_the_stream() -> None:
    stream = text(0, "a\ud83d", "c\ud83d") + begun(1, "tool_use", id="\ud83d", name="r\ud83d")
    cited = begun(2, "text", text="x") + piece(2, "citations_delta", citation={"t": "\ud83d"})
    got = summary(decode(stream + stopped(1) + cited + stopped(2) + ended("tool_use")))
    assert got["text"] == ["a\ufffdc", "x"]
    assert got["calls"] == [["\ufffd", "r\ufffd", "{}"]]
    assert got["kept"] == [{"type": "text", "texts": [[1, [{"t": "\ufffd"}]]]}]


def error(kind: str, message: str = "boom") -> bytes:
    return frame("error", error={"type": kind, "message": message}, request_id="req_1")


@each(
    ("stream", "kind", "said"),
    [
        (b"", "broken_stream", "before the response was complete"),
        (started() + text(0, "a"), "broken_stream", "before the response was complete"),
        (
            started() + text(0, "a") + ended("end_turn")[: -len(STOP)],
            "broken_stream",
            "before the response was complete",
        ),
        (b"data: {nonsense\n\n", "broken_stream", "an invalid frame: {nonsense"),
        (b'data: {"type": 3}\n\n', "broken_stream", "an invalid frame"),
        (b"data: " + b"[" * 100_000 + b"\n\n", "broken_stream", "an invalid frame"),
        (begun(0, "tool_use", id="a"), "broken_stream", "a tool call without a name"),
        (piece(3, "text_delta", text="a"), "broken_stream", "a block that was not started"),
        (
            text(0, "a") + piece(0, "text_delta", text="b"),
            "broken_stream",
            "a block that was not started",
        ),
        (
            call(0, "a", "read", '{"path":')[: -len(stopped(0))] + ended("tool_use"),
            "broken_stream",
            "in the middle of a tool call",
        ),
        (error("overloaded_error", "Overloaded"), "overloaded", "Overloaded"),
        (error("rate_limit_error"), "rate_limit", "boom"),
        (error("api_error", "Internal server error"), "server", "Internal server error"),
        (error("timeout_error"), "timeout", "boom"),
        (error("invalid_request_error"), "bad_request", "boom"),
        (
            error("invalid_request_error", "prompt is too long: 213 tokens > 200 maximum"),
            "context_overflow",
            "longer than the model's context",
        ),
        (error("request_too_large"), "context_overflow", "boom"),
        (error("authentication_error", "invalid x-api-key"), "authentication", "x-api-key"),
        (error("permission_error"), "authentication", "boom"),
        (error("billing_error"), "quota", "boom"),
        (error("not_found_error", "model: claude-x"), "not_found", "claude-x"),
        (b'data: {"error":{"message":"boom sk-secret"}}\n\n', "server", r"boom \[secret\]"),
        (
            b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n',
            "broken_stream",
            "response was complete",
        ),
    ],
)
def test_what_is_no_whole_answer_is_a_typed_error(stream: bytes, kind: str, said: str) -> None:
    with pytest.raises(ModelError, match=said) as caught:
        decode(stream)
    assert caught.value.kind == kind
    assert "http://127.0.0.1:1/v1" in caught.value.message
    assert "sk-secret" not in caught.value.message
