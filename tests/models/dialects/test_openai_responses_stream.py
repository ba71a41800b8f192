"""Responses frames as events: what each server means, and a typed error for what none can mean.

That recorded streams may be cut and damaged anywhere is shown in `test_streams_cut` and
`test_streams_damaged`.
"""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.each import each
from support.streams import ENDPOINT, STREAMS, WHOLE, decode, fold, wire_of
from tiller_daemon.models.base import (
    Finished,
    ModelError,
    ModelEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallDone,
    ToolCallStarted,
)
from tiller_daemon.models.dialects.opaque import Origin
from tiller_daemon.models.dialects.openai_responses.request import API
from tiller_daemon.models.dialects.openai_responses.stream import ResponsesDecoder
from tiller_daemon.models.http.failure import Endpoint
from tiller_daemon.models.keys import EnvironmentKey
from tiller_protocol.items import Usage

ORIGIN = Origin(API, ENDPOINT.base_url, "m")


def frame(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def delta(kind: str, piece: str, index: int = 0, **fields: Any) -> bytes:
    return frame(f"response.{kind}.delta", delta=piece, output_index=index, **fields)


def added(index: int, kind: str, **fields: Any) -> bytes:
    item = {"type": kind, "id": f"{kind}{index}"} | fields
    return frame("response.output_item.added", output_index=index, item=item)


def done(index: int, kind: str, **fields: Any) -> bytes:
    item = {"type": kind, "id": f"{kind}{index}"} | fields
    return frame("response.output_item.done", output_index=index, item=item)


def text(*texts: str) -> list[dict[str, str]]:
    return [{"type": "output_text", "text": one} for one in texts]


COMPLETED = frame("response.completed", response={"status": "completed"})


def told(stream: bytes, **options: Any) -> list[ModelEvent]:
    decoder = ResponsesDecoder(ENDPOINT, "m", 7, **options)
    return decoder.feed(stream) + decoder.end()


def answer(stream: bytes, **options: Any) -> dict[str, Any]:
    return fold(told(stream, **options))


def kept(item: list[Any]) -> list[dict[str, Any]]:
    content = ORIGIN.unseal(item[2])
    assert content is not None
    return json.loads(content)


CALLS = {
    "read": ["call_A", "read", '{"path":"x"}', True],
    "grep": ["call_B", "grep", '{"pattern":"y"}', True],
}

SOURCES = "https://example.com/cats\nhttps://example.org/"
FOUND = "cats.md · Cats exist."
HOSTED = {
    "search": ["hosted", "web_search", '{"query":"cats"}', "", "completed"],
    "files": ["hosted", "file_search", '{"query":"cats"}', "", "completed"],
    "code": ["hosted", "code_interpreter", '{"code":"print(1)"}', "", "completed"],
    "mcp": ["hosted", "roll", '{"sides":6}', "4", "completed"],
    "image": ["hosted", "image_generation", "", "", "completed"],
}

EXPECTED: dict[str, tuple[list[list[Any]], str]] = {
    "openai-text": ([["text", "Héllo, wörld 😀!"]], "stop"),
    "openai-thought-and-call": (
        [
            ["thinking", "**Looking** at it\n\n**Then** the rest"],
            ["call", "call_Jx1", "read", '{"path":"a b.py"}', True],
        ],
        "tool_calls",
    ),
    "openai-two-calls": (
        [
            ["thinking", ""],
            ["text", "Both at once."],
            ["call", *CALLS["read"]],
            ["call", *CALLS["grep"]],
        ],
        "tool_calls",
    ),
    "openai-web-search": (
        [["thinking", "Search."], HOSTED["search"], ["thinking", ""], ["text", "Cats exist."]],
        "stop",
    ),
    "openai-refusal": ([["text", "I'm sorry, but no."]], "stop"),
    "openai-length": ([["thinking", "Hm."], ["text", "This is cut in the mid"]], "length"),
    "openai-content-filter": ([["text", "Half"]], "content_filter"),
    "openai-commentary-and-call": (
        [["thinking", ""], ["text", "I look first."], ["call", "call_C", "ls", "{}", True]],
        "tool_calls",
    ),
    "openai-two-messages": (
        [["thinking", ""], ["text", "I looked."], ["thinking", ""], ["text", '{"answer": 42}']],
        "stop",
    ),
    "openai-code-interpreter": (
        [HOSTED["code"], ["thinking", ""], ["text", "It prints 1."]],
        "stop",
    ),
    "openai-mcp": (
        [["thinking", ""], HOSTED["mcp"], ["thinking", ""], ["text", "You rolled a 4."]],
        "stop",
    ),
    "openai-image-generation": ([HOSTED["image"], ["thinking", ""], ["text", "A cat."]], "stop"),
    "openai-file-search": ([HOSTED["files"], ["thinking", ""], ["text", "Found."]], "stop"),
    "openai-hosted-results": (
        [
            ["hosted", "web_search", '{"query":"cats","queries":["cats"]}', SOURCES, "completed"],
            ["thinking", ""],
            ["hosted", "web_search", '{"url":"https://example.com/cats"}', "", "completed"],
            ["thinking", ""],
            ["hosted", "file_search", '{"query":"cats | felines"}', FOUND, "completed"],
            ["thinking", ""],
            ["hosted", "code_interpreter", '{"code":"1/0"}', "ZeroDivisionError", "failed"],
            ["thinking", ""],
            ["text", "Cats exist."],
        ],
        "stop",
    ),
    "openai-length-in-call": (
        [["call", "call_L", "write", '{"path":"x","content":"abc', False]],
        "length",
    ),
    "copilot-other-ids": (
        [
            ["thinking", ""],
            ["text", "One moment."],
            ["call", "call_q", "ls", '{"path":"."}', True],
        ],
        "tool_calls",
    ),
    "vllm-thinking-and-call": (
        [
            ["thinking", "We need to list."],
            ["call", "call_v1", "ls", '{"path":"src"}', True],
        ],
        "tool_calls",
    ),
    "gpt-oss-thinking": ([["thinking", "The user greets."], ["text", "Hi there"]], "stop"),
    "xai-whole-calls": (
        [
            ["call", "call_1", "read", '{"path":"a"}', True],
            ["call", "call_2", "read", '{"path":"b"}', True],
        ],
        "tool_calls",
    ),
    "llama-thinking-and-calls": (
        [
            ["thinking", "Look at it"],
            ["text", "Let me look."],
            ["call", "fc_c1", "read", '{"path":"a"}', True],
            ["call", "fc_c2", "read", '{"path":"b"}', True],
        ],
        "tool_calls",
    ),
    "openrouter-thinking": ([["thinking", "Hm, yes."], ["text", "Yes."]], "stop"),
    "bare": ([["text", "Hello"]], "stop"),
    "items-without-pieces": (
        [["text", "Here. And here."], ["call", "c1", "ls", "{}", True]],
        "tool_calls",
    ),
    "all-in-the-last-frame": (
        [["text", "Here. And here."], ["call", "c1", "ls", "{}", True]],
        "tool_calls",
    ),
    "crlf-and-unknown-events": ([["text", "a\u2028bc"]], "stop"),
    "every-item-at-place-0": (
        [["thinking", "Hm"], ["call", "c1", "ls", "{}", True], ["call", "c2", "ls", "{}", True]],
        "tool_calls",
    ),
    "aimock-text-cut-in-utf16": (
        [["thinking", "😀 hm"], ["text", "Grüße 😀😀 an alle"]],
        "stop",
    ),
    "aimock-length": ([["thinking", ""], ["text", "found" * 20]], "length"),
}


@each("name", EXPECTED)
def test_a_stream_of_every_maker_is_understood(name: str) -> None:
    items, finish = EXPECTED[name]
    got = decode("responses", [STREAMS[f"responses-{name}"]])
    assert not isinstance(got, ModelError), got.message
    shown = [_shown(item) for item in got["items"]]
    assert (shown, got["finish"]) == (items, finish)


def _shown(item: list[Any]) -> list[Any]:
    """An item without opaque data, ids of hosted calls and citations."""
    match item[0]:
        case "call":
            return item
        case "hosted":
            return ["hosted", *item[2:]]
        case _:
            return item[:2]


def test_usage_is_told_with_what_was_cached_and_thought() -> None:
    got = decode("responses", [STREAMS["responses-openai-thought-and-call"]])
    assert isinstance(got, dict)
    assert got["usage"] == Usage(900, 0, 120, 64)
    assert answer(COMPLETED)["usage"] is None


@each(
    ("name", "kinds"),
    [
        ("openai-web-search", ["reasoning", "web_search_call", "reasoning"]),
        ("openai-mcp", ["mcp_list_tools", "mcp_call"]),
        ("openai-code-interpreter", ["code_interpreter_call"]),
        ("openai-commentary-and-call", ["reasoning", "message"]),
        ("llama-thinking-and-calls", ["reasoning"]),
    ],
)
def test_what_goes_back_is_kept_as_it_came(name: str, kinds: list[str]) -> None:
    stream = STREAMS[f"responses-{name}"]
    thinking = [item for item in answer(stream)["items"] if item[0] == "thinking"]
    stored = [item for one in thinking for item in kept(one)]
    assert [item["type"] for item in stored] == kinds
    content = "".join(ORIGIN.unseal(one[2]) or "" for one in thinking)
    sent = [line[6:] for line in stream.decode().splitlines() if '.output_item.done"' in line]
    for item in stored:
        if item["type"] != "message":
            (raw,) = [one for one in sent if json.loads(one)["item"] == item]
            at = raw.index('"item":') + 7
            assert raw[at : raw.rindex("}")].partition(',"output_index"')[0] in content


def test_thinking_that_only_its_server_knows_by_id_is_not_kept() -> None:
    """It is not stored there, so an id without content would be refused for ever."""
    for item in ({"summary": []}, {"summary": [], "encrypted_content": None, "content": []}):
        got = answer(added(0, "reasoning") + done(0, "reasoning", **item) + COMPLETED)
        assert got["items"] == []


def test_what_was_not_completed_is_not_kept() -> None:
    cut = done(0, "reasoning", encrypted_content="e", status="incomplete")
    search = done(1, "web_search_call", status="incomplete")
    (shown,) = answer(cut + search + COMPLETED)["items"]
    assert shown == ["hosted", "web_search_call1", "web_search", "", "", "failed"]


def test_a_message_is_told_from_the_one_before_it() -> None:
    two = done(0, "message", content=text("a")) + done(1, "message", content=text("b"))
    first, between, second = answer(two + COMPLETED)["items"]
    assert (first[1], second[1]) == ("a", "b")
    assert kept(between) == [{"type": "message"}]


def test_what_begins_at_the_same_place_is_another_message() -> None:
    """Some servers number every item 0, and name none."""
    begun = added(0, "message", id=None)
    first, _, second = answer(
        begun + delta("output_text", "a") + begun + delta("output_text", "b") + COMPLETED
    )["items"]
    assert (first[1], second[1]) == ("a", "b")


def test_thinking_in_a_row_is_one_item_with_paragraphs() -> None:
    stream = (
        delta("reasoning_summary_text", "a", summary_index=0)
        + delta("reasoning_summary_text", "b", summary_index=0)
        + delta("reasoning_summary_text", "c", summary_index=1)
        + done(0, "reasoning", encrypted_content="1")
        + delta("reasoning_text", "d", 1)
        + done(1, "reasoning", encrypted_content="2")
    )
    (item,) = answer(stream + COMPLETED)["items"]
    assert item[1] == "ab\n\nc\n\nd"
    assert [one["encrypted_content"] for one in kept(item)] == ["1", "2"]


def test_a_call_is_done_when_its_item_is_and_not_before() -> None:
    """B33: a read can start then; arguments alone may belong to a call that was cut off."""
    decoder = ResponsesDecoder(ENDPOINT, "m", 0)
    begin = added(0, "function_call", call_id="c", name="read", arguments="")
    assert decoder.feed(begin) == [ToolCallStarted(0, "c", "read")]
    pieces = delta("function_call_arguments", '{"a"') + delta("function_call_arguments", ":1}")
    assert decoder.feed(pieces) == [ToolCallDelta(0, '{"a":1}')]
    whole = {"output_index": 0, "arguments": '{"a":1}'}
    assert decoder.feed(frame("response.function_call_arguments.done", **whole)) == []
    item = {"call_id": "c", "name": "read", "arguments": '{"a":1}'}
    assert decoder.feed(done(0, "function_call", **item)) == [ToolCallDone(0)]
    assert decoder.feed(COMPLETED) == [Finished("tool_calls")]


def test_calls_without_an_id_or_with_the_same_one_get_their_own() -> None:
    calls = b"".join(done(n, "function_call", name="ls", arguments="{}") for n in range(2))
    calls += b"".join(
        done(n, "function_call", name="ls", arguments="", call_id="same") for n in range(2, 4)
    )
    ids = [item[1] for item in answer(calls + COMPLETED)["items"]]
    assert ids == ["call_7_0", "call_7_1", "same", "call_7_3"]


def test_arguments_that_are_said_again_with_other_blanks_are_the_same() -> None:
    pieces = added(0, "function_call", name="ls", call_id="c")
    pieces += delta("function_call_arguments", '{"a":1}')
    again = done(0, "function_call", name="ls", call_id="c", arguments='{ "a": 1 }')
    assert answer(pieces + again + COMPLETED)["items"] == [["call", "c", "ls", '{"a":1}', True]]


def test_text_of_one_chunk_is_one_event() -> None:
    chunk = b"".join(delta("output_text", str(n), item_id="m", content_index=0) for n in range(10))
    assert ResponsesDecoder(ENDPOINT, "m", 0).feed(chunk) == [TextDelta("0123456789")]


def test_nothing_is_lost_or_doubled_when_only_some_of_the_pieces_came() -> None:
    half = added(0, "message") + delta("output_text", "Hel")
    item = done(0, "message", content=text("Hello"))
    last = frame(
        "response.completed",
        response={"output": [{"type": "message", "id": "message0", "content": text("Hello")}]},
    )
    part = frame("response.output_text.done", output_index=0, text="Hello")
    for rest in (item + COMPLETED, last, item + last, part + item + last, part + COMPLETED):
        assert answer(half + rest)["items"] == [["text", "Hello", ""]]


def test_a_limit_that_is_not_admitted_is_seen_by_the_count() -> None:
    """llama.cpp calls an answer completed that `max_output_tokens` has cut."""
    stream = delta("output_text", "one two") + frame(
        "response.completed",
        response={"status": "completed", "usage": {"input_tokens": 1, "output_tokens": 9}},
    )
    assert answer(stream, output_tokens_max=9)["finish"] == "length"
    assert answer(stream, output_tokens_max=10)["finish"] == "stop"
    assert answer(stream)["finish"] == "stop"


def test_a_completed_frame_whose_response_is_incomplete_is_believed_the_worse() -> None:
    for kind in ("completed", "incomplete"):
        response = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        assert answer(frame(f"response.{kind}", response=response))["finish"] == "length"
    odd = {"status": "incomplete", "incomplete_details": {"reason": "steered"}}
    assert answer(frame("response.incomplete", response=odd))["finish"] == "unknown"


@given(said=st.text(alphabet="a😀é", min_size=1, max_size=12), cut=st.integers(0, 24))
def test_a_surrogate_pair_cut_in_two_is_joined(said: str, cut: int) -> None:
    """T16: what comes out is what was meant, and can be encoded."""
    units = said.encode("utf-16-le", "surrogatepass")
    halves = [
        unit.decode("utf-16-le", "surrogatepass") for unit in (units[: 2 * cut], units[2 * cut :])
    ]
    stream = added(2, "function_call", name="ls", call_id="c") + b"".join(
        delta("reasoning_summary_text", half, 0)
        + delta("output_text", half, 1)
        + delta("function_call_arguments", half, 2)
        for half in halves
    )
    events = told(stream + done(2, "function_call", name="ls", arguments=said) + COMPLETED)
    for kind, field in (
        (TextDelta, "text"),
        (ReasoningDelta, "text"),
        (ToolCallDelta, "arguments"),
    ):
        pieces = (getattr(event, field) for event in events if isinstance(event, kind))
        assert "".join(pieces) == said


def test_half_a_pair_in_what_is_kept_does_not_reach_the_next_request() -> None:
    item = {"encrypted_content": "e", "summary": [{"type": "summary_text", "text": "a\ud83d"}]}
    (thinking,) = answer(done(0, "reasoning", **item) + COMPLETED)["items"]
    assert kept(thinking)[0]["summary"][0]["text"] == "a\ufffd"


pieces = st.text(min_size=1, max_size=6)


@given(
    plan=st.lists(st.tuples(st.integers(0, 4), pieces), max_size=30),
    cuts=st.lists(st.integers(0, 5_000), max_size=6),
    again=st.booleans(),
)
def test_any_interleaving_of_any_pieces_adds_up(
    plan: list[tuple[int, str]],
    cuts: list[int],
    again: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Two messages and three calls, whose pieces come in any order, said once more or not."""
    kinds = ["message", "message", *["function_call"] * 3]
    said: dict[int, str] = {}
    stream = b""
    for index, piece in plan:
        if index not in said:
            stream += added(index, kinds[index], call_id=f"c{index}", name=f"tool{index}")
        said[index] = said.get(index, "") + piece
        what = "output_text" if index < 2 else "function_call_arguments"
        stream += delta(what, piece, index)
    output = [
        {"type": "message", "content": text(whole)}
        if index < 2
        else {"type": "function_call", "call_id": f"c{index}", "arguments": whole}
        for index, whole in said.items()
    ]
    stream += frame("response.completed", response={"output": output if again else []})
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[a:b] for a, b in pairwise(places)]
    got = decode("responses", chunks)
    assert isinstance(got, dict), got
    calls = [item for item in got["items"] if item[0] == "call"]
    assert [item[1:3] for item in calls] == [[f"c{n}", f"tool{n}"] for n in said if n > 1]
    texts = [whole if whole.strip() else whole + "{}" for n, whole in said.items() if n > 1]
    assert [item[3] for item in calls] == texts
    spoken = "".join(item[1] for item in got["items"] if item[0] == "text")
    assert sorted(spoken) == sorted(said.get(0, "") + said.get(1, ""))


@each(
    ("stream", "kind", "said"),
    [
        (b"", "broken_stream", "before the response was complete"),
        (delta("output_text", "a"), "broken_stream", "before the response was complete"),
        (b"data: [DONE]\n\n", "broken_stream", "before the response was complete"),
        (b'data: {"choices":[]}\n\n', "broken_stream", "before the response was complete"),
        (b"data: {nonsense\n\n", "broken_stream", "an invalid frame: {nonsense"),
        (b'data: {"type": 3}\n\n', "broken_stream", "an invalid frame"),
        (b"data: []\n\n", "broken_stream", "an invalid frame"),
        (b"data: " + b"[" * 100_000 + b"\n\n", "broken_stream", "an invalid frame"),
        (frame("response.output_text.delta", delta=3), "broken_stream", "an invalid frame"),
        (frame("response.output_item.done", item=3), "broken_stream", "an invalid frame"),
        (frame("response.completed", response=[]), "broken_stream", "an invalid frame"),
        (
            delta("output_text", "Hlo") + done(0, "message", content=text("Hello")),
            "broken_stream",
            "left out parts of a text",
        ),
        (
            added(0, "function_call", name="a", call_id="c")
            + delta("function_call_arguments", '{"a":2}')
            + done(0, "function_call", arguments='{"a":3}'),
            "broken_stream",
            "left out parts of a tool call",
        ),
        (
            done(0, "function_call", id="f", name="a", call_id="c", arguments="{}")
            + delta("function_call_arguments", "x"),
            "broken_stream",
            "whose arguments were complete",
        ),
        (done(0, "function_call", call_id="c"), "broken_stream", "without a name"),
        (
            delta("function_call_arguments", "{}") + COMPLETED,
            "broken_stream",
            "a tool call without a name",
        ),
        (frame("error", code="server_error", message="boom"), "server", "boom"),
        (frame("error", error={"message": "boom sk-secret"}), "server", r"boom \[secret\]"),
        (b'data: {"error":{"message":"boom","code":500}}\n\n', "server", "boom"),
        (b'data: {"object":"error","message":"boom","code":400}\n\n', "bad_request", "boom"),
        (
            frame("error", code="rate_limit_exceeded", message="slow down"),
            "rate_limit",
            "slow down",
        ),
        (frame("response.failed", response={"error": None}), "server", "gave up"),
        (frame("response.cancelled"), "server", "gave up"),
        (
            frame("response.completed", response={"status": "failed", "error": {"message": "x"}}),
            "server",
            "x",
        ),
        (
            frame("response.failed", response={"error": {"code": "context_length_exceeded"}}),
            "context_overflow",
            "longer than the model's context",
        ),
        (
            frame("response.failed", response={"error": {"code": "insufficient_quota"}}),
            "quota",
            "quota",
        ),
        (
            frame("response.failed", response={"error": {"code": "server_is_overloaded"}}),
            "overloaded",
            "overloaded",
        ),
        (
            frame(
                "response.failed", response={"error": {"code": "invalid_prompt", "message": "x"}}
            ),
            "bad_request",
            "refused the request",
        ),
        (
            frame("response.failed", response={"error": {"code": "image_too_large"}}),
            "bad_request",
            "refused the request",
        ),
        (
            frame(
                "response.failed",
                response={"error": {"code": "misalignment_policy_violation", "message": "x"}},
            ),
            "content_policy",
            "policy",
        ),
    ],
)
def test_what_is_no_whole_answer_is_a_typed_error(stream: bytes, kind: str, said: str) -> None:
    endpoint = Endpoint("local", "http://127.0.0.1:1/v1", EnvironmentKey("K", {"K": "sk-secret"}))
    decoder = ResponsesDecoder(endpoint, "m", 7)
    with pytest.raises(ModelError, match=said) as caught:
        _ = decoder.feed(stream) + decoder.end()
    assert caught.value.kind == kind
    assert "http://127.0.0.1:1/v1" in caught.value.message
    assert "sk-secret" not in caught.value.message


def test_the_wait_that_a_limit_in_mid_stream_asks_for_is_kept() -> None:
    error = decode("responses", [STREAMS["responses-openai-rate-limited-fails"]])
    assert isinstance(error, ModelError)
    assert error.retry_after_s == 11.054


def test_what_is_tested_here_are_all_streams_of_this_wire() -> None:
    mine = {name.partition("-")[2] for name in WHOLE if wire_of(name) == "responses"}
    others = {"aimock-two-calls", "aimock-web-search", "llmock-call", "llmock-text", "llama-text"}
    assert mine == set(EXPECTED) | others
