"""Chat frames as events: every dialect, cut at every byte; complete or an error, never short."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.each import each
from support.providers import fixed_key
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
from tiller_daemon.models.dialects.openai_chat.opaque_fields import (
    OpaqueFields,
    origin_of,
    seal_fields,
    unseal_fields,
)
from tiller_daemon.models.dialects.openai_chat.stream import ChatDecoder
from tiller_daemon.models.http.failure import Endpoint
from tiller_protocol.events import FinishReason
from tiller_protocol.ids import ItemId
from tiller_protocol.items import Reasoning, Usage

ENDPOINT = Endpoint("local", "http://127.0.0.1:1/v1", fixed_key("sk-secret"))
DONE = b"data: [DONE]\n\n"


def frame(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice], **more}).encode() + b"\n\n"


def call(index: int | None = None, id: str | None = None, **function: Any) -> dict[str, Any]:  # noqa: A002
    delta = {"index": index, "id": id, "function": function}
    return {"tool_calls": [{key: value for key, value in delta.items() if value is not None}]}


def decode(stream: bytes, *cuts: int) -> list[ModelEvent]:
    decoder = ChatDecoder(ENDPOINT, "m", 7)
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    events: list[ModelEvent] = []
    for start, end in pairwise(places):
        events += decoder.feed(stream[start:end])
    return events + decoder.end()


def decode_or_error(stream: bytes) -> list[ModelEvent] | ModelError:
    try:
        return decode(stream)
    except ModelError as error:
        return error


def summary(events: list[ModelEvent]) -> dict[str, Any]:
    """What the events add up to, however they were cut; checks that their order makes sense."""
    text, thought = "", ""
    calls: dict[int, list[str]] = {}
    done: set[int] = set()
    for event in events:
        match event:
            case TextDelta():
                text += event.text
            case ReasoningDelta():
                thought += event.text
            case ToolCallStarted():
                assert event.index == len(calls)
                calls[event.index] = [event.call_id, event.name, ""]
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
        "text": text,
        "thought": thought,
        "calls": list(calls.values()),
        "usage": [event.usage for event in events if isinstance(event, UsageReported)],
        "finish": events[-1],
    }


GEMINI_CALL = {
    "index": 0,
    "id": "a",
    "type": "function",
    "function": {"name": "read", "arguments": '{"path":"x"}'},
    "extra_content": {"google": {"thought_signature": "B"}},
}
TWO_CALLS = [["a", "read", '{"path":"x"}'], ["b", "grep", '{"pattern":"y"}']]

WHOLE_STREAMS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "openai: text, then usage in a frame without choices": (
        frame({"role": "assistant", "content": "", "refusal": None})
        + frame({"content": "Hé"})
        + frame({"content": "llo"})
        + frame({}, "stop")
        + b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11,'
        b'"prompt_tokens_details":{"cached_tokens":4,"audio_tokens":0},'
        b'"completion_tokens_details":{"reasoning_tokens":1}}}\n\n' + DONE,
        {"text": "Héllo", "usage": [Usage(9, 4, 2, 1)], "finish": Finished("stop")},
    ),
    "openai: calls one after the other": (
        frame({"role": "assistant", "content": None})
        + frame(call(0, "a", name="read", arguments=""))
        + frame(call(0, arguments='{"path"'))
        + frame(call(0, arguments=':"x"}'))
        + frame(call(1, "b", name="grep", arguments=""))
        + frame(call(1, arguments='{"pattern":"y"}'))
        + frame({}, "tool_calls")
        + DONE,
        {"calls": TWO_CALLS, "finish": Finished("tool_calls")},
    ),
    "calls interleaved by index, and `stop` at the end": (
        frame(call(0, "a", name="read", arguments='{"pa'))
        + frame(call(1, "b", name="grep", arguments='{"pat'))
        + frame(call(0, arguments='th":"x"}'))
        + frame(call(1, arguments='tern":"y"}'))
        + frame({}, "stop")
        + DONE,
        {"calls": TWO_CALLS, "finish": Finished("stop")},
    ),
    "llama-cpp-python: the name in every delta": (
        frame(call(0, "a", name="read", arguments='{"pa'))
        + frame(call(0, "a", name="read", arguments='th":"x"}'))
        + frame(call(0, "a", name="read", arguments=""))
        + frame(call(1, "b", name="grep", arguments='{"pattern":'))
        + frame(call(1, "b", name="grep", arguments='"y"}'))
        + frame({}, "tool_calls")
        + DONE,
        {"calls": TWO_CALLS, "finish": Finished("tool_calls")},
    ),
    "every call has index 0": (
        frame(call(0, "a", name="read", arguments='{"path":"x"}'))
        + frame(call(0, "b", name="grep", arguments='{"pattern":"y"}'))
        + frame({}, "stop")
        + DONE,
        {"calls": TWO_CALLS, "finish": Finished("stop")},
    ),
    "the second call begins with index 0 and goes on with index 1": (
        frame(call(0, "a", name="read", arguments='{"path":"x"}'))
        + frame(call(0, "b", name="grep", arguments=""))
        + frame(call(1, "b", arguments='{"pattern":'))
        + frame(call(1, "b", arguments='"y"}'))
        + frame({}, "tool_calls"),
        {"calls": TWO_CALLS, "finish": Finished("tool_calls")},
    ),
    "the same with the name in every delta": (
        frame(call(0, "a", name="read", arguments='{"path":"x"}'))
        + frame(call(0, "b", name="grep"))
        + frame(call(1, "b", name="grep", arguments='{"pattern":'))
        + frame(call(1, "b", name="grep", arguments='"y"}'))
        + frame({}, "tool_calls"),
        {"calls": TWO_CALLS, "finish": Finished("tool_calls")},
    ),
    "an index for each delta": (
        frame(call(0, "a", name="read"))
        + frame(call(1, "a", arguments='{"path":'))
        + frame(call(2, "a", arguments='"x"}'))
        + frame(call(3, "b", name="grep"))
        + frame(call(4, "b", arguments='{"pattern":"y"}'))
        + frame({}, "tool_calls"),
        {"calls": TWO_CALLS, "finish": Finished("tool_calls")},
    ),
    "indices of the rest in another order": (
        frame(call(0, "a", name="read"))
        + frame(call(1, "b", name="grep"))
        + frame(call(1, "a", arguments='{"path":"x"}'))
        + frame(call(0, "b", arguments='{"pattern":"y"}'))
        + frame({}, "tool_calls"),
        {"calls": TWO_CALLS, "finish": Finished("tool_calls")},
    ),
    "one id for interleaved calls": (
        frame(call(0, "a", name="read"))
        + frame(call(1, "a", name="grep"))
        + frame(call(0, "a", arguments='{"path":"x"}'))
        + frame(call(1, "a", arguments='{"pattern":"y"}'))
        + frame({}, "tool_calls"),
        {
            "calls": [TWO_CALLS[0], ["call_7_1", "grep", '{"pattern":"y"}']],
            "finish": Finished("tool_calls"),
        },
    ),
    "no index and no id": (
        frame(call(name="read", arguments='{"path":"x"}'))
        + frame(call(name="grep", arguments='{"pattern":'))
        + frame(call(arguments='"y"}'))
        + frame({}, "tool_calls"),
        {
            "calls": [
                ["call_7_0", "read", '{"path":"x"}'],
                ["call_7_1", "grep", '{"pattern":"y"}'],
            ],
            "finish": Finished("tool_calls"),
        },
    ),
    "the same id twice, arguments as an object, none at all": (
        frame(call(0, "a", name="read", arguments={"path": "x"}))
        + frame(call(1, "a", name="plan"))
        + frame({}, "tool_calls"),
        {
            "calls": [["a", "read", '{"path":"x"}'], ["call_7_1", "plan", "{}"]],
            "finish": Finished("tool_calls"),
        },
    ),
    "the name comes after the first arguments": (
        frame(call(0, "a", arguments='{"path":'))
        + frame(call(0, name="read", arguments='"x"}'))
        + frame({}, "tool_calls"),
        {"calls": TWO_CALLS[:1], "finish": Finished("tool_calls")},
    ),
    "names in pieces, and names that grow": (
        frame(call(0, "a", name="re"))
        + frame(call(0, name="ad"))
        + frame(call(0, arguments='{"path":"x"}'))
        + frame(call(1, "b", name="gr", arguments=""))
        + frame(call(1, "b", name="grep", arguments=""))
        + frame(call(1, "b", name="grep", arguments='{"pattern":"y"}'))
        + frame({}, "tool_calls")
        + DONE,
        {"calls": TWO_CALLS, "finish": Finished("tool_calls")},
    ),
    "mistral: thinking as a part of the content": (
        frame({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "h"}]}]})
        + frame({"content": [{"type": "thinking", "thinking": "m"}, {"type": "reference"}]})
        + frame({"content": [{"type": "text", "text": "ye"}, {"type": "text", "text": "s"}]})
        + frame({"content": ""}, "stop")
        + DONE,
        {"text": "yes", "thought": "hm", "finish": Finished("stop")},
    ),
    "moonshot: usage in the choice; `null` as a word": (
        frame({"content": "a"}, "null")
        + b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop",'
        b'"usage":{"prompt_tokens":3,"completion_tokens":2,"prompt_cache_hit_tokens":1}}]}\n\n'
        + DONE,
        {"text": "a", "usage": [Usage(3, 1, 2)], "finish": Finished("stop")},
    ),
    "gemini: signatures amid the text and beside the calls": (
        frame({"content": "Let ", "extra_content": {"google": {"thought_signature": "A"}}})
        + frame({"content": "me see."})
        + frame({"tool_calls": [GEMINI_CALL, GEMINI_CALL | {"id": "b", "index": 1}]}, "stop")
        + DONE,
        {
            "text": "Let me see.",
            "calls": [["a", "read", '{"path":"x"}'], ["b", "read", '{"path":"x"}']],
            "finish": Finished("stop"),
        },
    ),
    "deepseek: thinking, text and a finish reason in the last delta; no [DONE]": (
        frame({"role": "assistant", "content": None, "reasoning_content": "h"})
        + frame({"content": None, "reasoning_content": "m"})
        + frame({"content": "yes", "reasoning_content": None}, "length"),
        {"text": "yes", "thought": "hm", "finish": Finished("length")},
    ),
    "openrouter: comments, thinking under both names": (
        b": OPENROUTER PROCESSING\r\n\r\n"
        + frame({"reasoning": "hm", "reasoning_content": "hm"})
        + frame({"content": "ok"}, "stop", usage=None)
        + DONE,
        {"text": "ok", "thought": "hm", "finish": Finished("stop")},
    ),
    "usage in every frame; another choice; an unknown finish reason": (
        frame({"content": "a"}, usage={"prompt_tokens": 1, "completion_tokens": 1})
        + b'data: {"choices":[{"index":1,"delta":{"content":"no"},"finish_reason":"stop"}]}\n\n'
        + frame({"content": "b"}, "abracadabra", usage={"prompt_tokens": 1}),
        {"text": "ab", "usage": [Usage(1)], "finish": Finished("unknown")},
    ),
    "an empty answer": (
        frame({"role": "assistant", "content": ""}) + frame({}, "stop") + DONE,
        {"finish": Finished("stop")},
    ),
    "[DONE] without a finish reason, and without a blank line": (
        frame({"content": "a"}) + b"data: [DONE]",
        {"text": "a", "finish": Finished("unknown")},
    ),
    "what comes after [DONE] is ignored": (
        frame({"content": "a"}, "stop") + DONE + b"data: {nonsense\n\n",
        {"text": "a", "finish": Finished("stop")},
    ),
}
NOTHING = {"text": "", "thought": "", "calls": [], "usage": []}
whole_streams = each("stream, expected", WHOLE_STREAMS.values())


@whole_streams
def test_a_stream_of_every_dialect_is_understood(stream: bytes, expected: dict[str, Any]) -> None:
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
    said_end = min(
        place for word in (b'"finish_reason": "', b"[DONE]") if (place := stream.find(word)) >= 0
    )
    errors = 0
    for cut in range(len(stream)):
        got = decode_or_error(stream[:cut])
        if isinstance(got, ModelError):
            assert got.kind == "broken_stream"
            errors += 1
        else:
            assert cut > said_end
            assert summary(got) | {"usage": expected.get("usage", [])} == NOTHING | expected
    assert errors > said_end


def test_nothing_is_lost_by_a_cut_after_the_finish_reason() -> None:
    """B47."""
    whole = frame({"content": "a"}, "stop")
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":9}}\n\n'
    for cut in range(len(usage + DONE)):
        got = summary(decode(whole + (usage + DONE)[:cut]))
        assert (got["text"], got["finish"]) == ("a", Finished("stop"))
        assert got["usage"] == ([Usage(9)] if cut >= len(usage) - 2 else [])


pieces = st.text(min_size=1, max_size=6)


@example(plan=[(0, " "), (1, "0")], cuts=[], with_done=b"")
@given(
    plan=st.lists(
        st.tuples(st.sampled_from(["text", "reasoning_content", 0, 1, 2]), pieces), max_size=30
    ),
    cuts=st.lists(st.integers(0, 5_000), max_size=10),
    with_done=st.sampled_from([b"", DONE]),
)
def test_any_interleaving_of_any_pieces_adds_up(
    plan: list[tuple[str | int, str]], cuts: list[int], with_done: bytes
) -> None:
    text, thought, arguments = "", "", dict[int, str]()
    stream = b""
    for target, piece in plan:
        if target == "text":
            text += piece
            stream += frame({"content": piece})
        elif isinstance(target, str):
            thought += piece
            stream += frame({target: piece})
        else:
            begun = target in arguments
            arguments[target] = arguments.get(target, "") + piece
            name = {} if begun else {"name": f"tool{target}"}
            stream += frame(call(target, None if begun else f"id{target}", arguments=piece, **name))
    stream += frame({}, "stop") + with_done
    got = summary(decode(stream, *cuts))
    assert (got["text"], got["thought"]) == (text, thought)
    assert [c[:2] for c in got["calls"]] == [[f"id{n}", f"tool{n}"] for n in arguments]
    sent = [text if text.strip() else text + "{}" for text in arguments.values()]
    assert [c[2] for c in got["calls"]] == sent


def test_a_complete_call_can_run_while_the_next_one_streams() -> None:
    """B33."""
    decoder = ChatDecoder(ENDPOINT, "m", 0)
    decoder.feed(frame(call(0, "a", name="read", arguments='{"path":"x"}')))
    assert decoder.feed(frame(call(1, "b", name="bash", arguments="{"))) == [
        ToolCallDone(0),
        ToolCallStarted(1, "b", "bash"),
        ToolCallDelta(1, "{"),
    ]


def test_text_of_one_chunk_is_one_event() -> None:
    chunk = b"".join(frame({"content": str(n)}) for n in range(10))
    assert ChatDecoder(ENDPOINT, "m", 0).feed(chunk) == [TextDelta("0123456789")]


@each(
    ("reason", "finish"),
    [
        ("stop", "stop"),
        ("STOP", "stop"),
        ("eos", "stop"),
        ("stop_sequence", "stop"),
        ("tool_call", "tool_calls"),
        ("tool_use", "tool_calls"),
        ("MAX_TOKENS", "length"),
        ("model_length", "length"),
        ("SAFETY", "content_filter"),
        ("sensitive", "content_filter"),
        ("abracadabra", "unknown"),
    ],
)
def test_every_maker_has_words_of_its_own_for_an_end(reason: str, finish: FinishReason) -> None:
    assert decode(frame({"content": "a"}, reason))[-1] == Finished(finish)


def kept_of(events: list[ModelEvent]) -> list[OpaqueFields]:
    """What is kept of a response, item by item."""
    opaques = [e.opaque for e in events if isinstance(e, ReasoningDelta) and e.opaque]
    items = [Reasoning(ItemId("r"), "", "completed", opaque) for opaque in opaques]
    kept = [unseal_fields(item, origin_of(ENDPOINT.base_url, "m")) for item in items]
    return [one for one in kept if one]


def test_thinking_is_marked_when_it_has_ended_with_where_it_came_from() -> None:
    decoder = ChatDecoder(ENDPOINT, "m", 0)
    tag = seal_fields(origin_of(ENDPOINT.base_url, "m"), OpaqueFields("reasoning"))
    seen = [
        *decoder.feed(frame({"reasoning": "a"})),
        *decoder.feed(frame({"reasoning": "b"})),
        *decoder.feed(frame({"content": "c"})),
        *decoder.feed(frame({"reasoning": "d"}, "stop") + DONE),
    ]
    assert [(e.text, e.opaque) for e in seen if isinstance(e, ReasoningDelta)] == [
        ("a", ""),
        ("b", ""),
        ("", tag),
        ("d", ""),
        ("", tag),
    ]


@given(text=st.text(alphabet="a😀é", min_size=1, max_size=12), cut=st.integers(0, 24))
@pytest.mark.promise("T16")
def test_a_surrogate_pair_cut_in_two_is_joined(text: str, cut: int) -> None:
    """T16: what comes out is what was meant, and can be encoded."""
    units = text.encode("utf-16-le", "surrogatepass")
    halves = [
        unit.decode("utf-16-le", "surrogatepass") for unit in (units[: 2 * cut], units[2 * cut :])
    ]
    stream = b"".join(
        frame({"content": half}) + frame({"reasoning": half}) + frame(call(0, "i", arguments=half))
        for half in halves
    )
    got = summary(decode(stream + frame(call(0, name="say"), "stop")))
    assert (got["text"], got["thought"]) == (text, text)
    assert got["calls"] == [["i", "say", text]]


def test_a_surrogate_without_its_other_half_does_not_break_the_stream() -> None:
    got = summary(decode(frame({"content": "a\ud83db"}) + frame({"content": "c\ud83d"}, "stop")))
    assert got["text"] == "a\ufffdbc"


@each(
    ("stream", "kind", "problem"),
    [
        (frame({"content": "a"}), "broken_stream", "before the response was complete"),
        (b"", "broken_stream", "before the response was complete"),
        (b"data: {nonsense\n\n", "broken_stream", "an invalid frame: {nonsense"),
        (b'data: {"choices": 3}\n\n', "broken_stream", "an invalid frame"),
        (b"data: " + b"[" * 100_000 + b"\n\n", "broken_stream", "an invalid frame"),
        (frame(call(0, "a"), "stop"), "broken_stream", "a tool call without a name"),
        (
            frame(call(0, "a", name="a", arguments="{}"))
            + frame(call(1, "b", name="b", arguments="{}"))
            + frame(call(0, arguments='{"x":1}')),
            "broken_stream",
            "whose arguments were complete",
        ),
        (b'data: {"error":{"message":"boom","code":500}}\n\n', "server", "boom"),
        (b'data: {"error":"boom sk-secret"}\n\n', "server", r"boom \[secret\]"),
        (b'data: {"error":{"message":"x","type":"overloaded_error"}}\n\n', "overloaded", "x"),
        (b'data: {"error":{"message":"x","code":"rate_limit_exceeded"}}\n\n', "rate_limit", "x"),
        (
            b'data: {"error":{"message":"exceeds the available context size","code":400}}\n\n',
            "context_overflow",
            "longer than the model's context",
        ),
        (b'data: {"object":"error","message":"boom","code":400}\n\n', "bad_request", "boom"),
        (frame({}, "error"), "server", "gave up"),
        (frame({}, "network_error"), "server", "gave up"),
        (frame({}, "function_call_filter: MALFORMED_FUNCTION_CALL"), "server", "malformed"),
        (frame({}, "insufficient_system_resource"), "overloaded", "gave up"),
        (
            b'data: {"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error",'
            b'"error":{"code":429,"message":"slow down"}}]}\n\n',
            "rate_limit",
            "slow down",
        ),
        (
            frame(call(0, "a", name="read", arguments='{"pa')) + DONE,
            "broken_stream",
            "in the middle of a tool call",
        ),
    ],
)
def test_what_is_no_whole_answer_is_a_typed_error(stream: bytes, kind: str, problem: str) -> None:
    with pytest.raises(ModelError, match=problem) as caught:
        decode(stream)
    assert caught.value.kind == kind
    assert "http://127.0.0.1:1/v1" in caught.value.message
    assert "sk-secret" not in caught.value.message
