"""The rules of the Messages dialect, as the strictest servers apply them.

For tests of whoever builds requests, and for scripted servers that check what they are sent. Most
rules are known from the API's error messages, some from its reference.
"""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

Block = dict[str, Any]
Message = dict[str, Any]

FIELDS = {
    *("model", "messages", "max_tokens", "stream", "system", "tools", "tool_choice", "thinking"),
    *("output_config", "stop_sequences", "metadata", "service_tier", "temperature", "top_p"),
}
CACHE_POINTS_MAX = 4
IMAGE_BASE64_BYTES_MAX = 5 * 1024 * 1024
THINKING = {"thinking", "redacted_thinking"}

is_call_id = re.compile(r"[a-zA-Z0-9_-]{1,128}").fullmatch
is_name = re.compile(r"[a-zA-Z0-9_-]{1,128}").fullmatch


def check_messages_body(body: bytes) -> dict[str, Any]:
    """Raise `AssertionError` unless a strict server would take `body`; return it decoded."""
    request = json.loads(body)
    assert set(request) <= FIELDS, f"fields {sorted(set(request) - FIELDS)}"
    assert isinstance(request["model"], str)
    assert request["model"]
    assert isinstance(request["max_tokens"], int)
    assert request["max_tokens"] > 0
    assert request["stream"] is True
    for block in request.get("system", [{"type": "text", "text": "x"}]):
        _check_text(block, "system")
    _check_tools(request)
    _check_thinking(request)
    check_messages(request["messages"])
    points = [block for block in _all_blocks(request) if "cache_control" in block]
    assert len(points) <= CACHE_POINTS_MAX, f"{len(points)} cache points"
    assert all(point["cache_control"]["type"] == "ephemeral" for point in points)
    assert all(point.get("type") not in THINKING for point in points), "a cached thought"
    return request


def check_messages(messages: Sequence[Message]) -> None:
    """Raise `AssertionError` unless a strict server would take `messages`.

    The user's messages are first and last; roles alternate; each call has one result, at the
    beginning of the next message and in call order; ids are unique; nothing is blank.
    """
    assert messages, "no messages"
    roles = [message["role"] for message in messages]
    assert roles[0] == "user", f"{roles[0]} begins"
    assert roles[-1] == "user", f"{roles[-1]} ends"
    assert set(roles) <= {"user", "assistant"}
    assert all(one != other for one, other in pairwise(roles)), f"roles do not alternate: {roles}"
    ids: set[str] = set()
    calls: list[str] = []
    for number, message in enumerate(messages):
        place = f"message {number}"
        assert set(message) == {"role", "content"}, f"{place}: fields {sorted(message)}"
        assert isinstance(message["content"], list), f"{place}: no blocks"
        assert message["content"], f"{place}: empty"
        if message["role"] == "assistant":
            calls = _check_assistant(message["content"], place)
            assert not ids.intersection(calls), f"{place}: a call id twice"
            assert len(set(calls)) == len(calls), f"{place}: a call id twice"
            ids.update(calls)
        else:
            _check_user(message["content"], calls, place)
            calls = []


def spoken(request: dict[str, Any]) -> list[str]:
    """Return the pieces that a provider caches, in order: tools, system prompt, every block.

    The result does not depend on the places of cache points.
    """
    tools = request.get("tools", [])
    system = request.get("system", [])
    said = [(m["role"], block) for m in request["messages"] for block in m["content"]]
    pieces = [("tool", tool) for tool in tools] + [("system", part) for part in system] + said
    return [
        json.dumps([role, {k: v for k, v in block.items() if k != "cache_control"}])
        for role, block in pieces
    ]


def _all_blocks(request: dict[str, Any]) -> Iterator[Block]:
    yield from request.get("tools", [])
    yield from request.get("system", [])
    for message in request["messages"]:
        yield from message["content"]


def _check_tools(request: dict[str, Any]) -> None:
    tools = request.get("tools", [])
    assert tools != [] or "tools" not in request, "an empty list of tools"
    names = [tool["name"] for tool in tools]
    assert len(set(names)) == len(names), f"a tool twice: {names}"
    for tool in tools:
        assert is_name(tool["name"]), tool["name"]
        schema = tool["input_schema"]
        assert schema["type"] == "object", f"{tool['name']}: {schema}"
        assert not {"anyOf", "oneOf", "allOf"} & set(schema), f"{tool['name']}: {schema}"
    has_calls = any(block.get("type") == "tool_use" for block in _all_blocks(request))
    assert tools or not has_calls, "calls without a definition of any tool"
    choice = request.get("tool_choice", {"type": "auto"})
    assert choice["type"] in ("auto", "any", "tool", "none")
    assert tools or "tool_choice" not in request, "tool_choice without tools"


def _check_thinking(request: dict[str, Any]) -> None:
    thinking = request.get("thinking", {"type": "disabled"})
    match thinking["type"]:
        case "enabled":
            assert 1_024 <= thinking["budget_tokens"] < request["max_tokens"], thinking
            assert set(thinking) <= {"type", "budget_tokens", "display"}
        case "adaptive":
            assert set(thinking) <= {"type", "display"}
        case kind:
            assert kind == "disabled"
            assert set(thinking) == {"type"}


def _check_assistant(blocks: Sequence[Block], place: str) -> list[str]:
    calls: list[str] = []
    open_uses: list[str] = []
    for block in blocks:
        match block["type"]:
            case "text":
                _check_text(block, place)
            case "tool_use":
                assert set(block) <= {"type", "id", "name", "input", "cache_control"}
                assert is_call_id(block["id"]), f"{place}: id {block['id']!r}"
                assert is_name(block["name"]), f"{place}: name {block['name']!r}"
                assert isinstance(block["input"], dict), f"{place}: input {block['input']!r}"
                calls.append(block["id"])
            case "thinking":
                assert set(block) == {"type", "thinking", "signature"}, f"{place}: {sorted(block)}"
            case "redacted_thinking":
                assert set(block) == {"type", "data"}, f"{place}: {sorted(block)}"
            case kind if kind.endswith("tool_use"):
                open_uses.append(block["id"])
            case kind:
                assert kind.endswith("tool_result"), f"{place}: {kind}"
                assert kind != "tool_result", f"{place}: a result beside its call"
                open_uses.remove(block["tool_use_id"])
    assert not open_uses, f"{place}: a server's tool without its result"
    assert blocks[-1]["type"] not in THINKING, f"{place}: ends with thinking"
    return calls


def _check_user(blocks: Sequence[Block], calls: Sequence[str], place: str) -> None:
    results = [block for block in blocks if block["type"] == "tool_result"]
    assert list(blocks[: len(results)]) == results, f"{place}: results are not first"
    assert [result["tool_use_id"] for result in results] == list(calls), f"{place}: results"
    for result in results:
        fields = {"type", "tool_use_id", "content", "is_error", "cache_control"}
        assert set(result) <= fields, f"{place}: {sorted(result)}"
        _check_shown(result["content"], place)
        kinds = {part["type"] for part in result["content"]}
        assert kinds == {"text"} or not result.get("is_error"), f"{place}: an error with {kinds}"
    _check_shown(blocks[len(results) :], place)


def _check_shown(parts: Sequence[Block], place: str) -> None:
    for part in parts:
        if part["type"] == "text":
            _check_text(part, place)
        elif part["type"] == "document":
            assert part["source"]["media_type"] == "application/pdf", place
            assert part["source"]["data"], place
        else:
            assert part["type"] == "image", f"{place}: {part['type']}"
            source = part["source"]
            assert set(source) == {"type", "media_type", "data"}
            assert source["media_type"] in ("image/jpeg", "image/png", "image/gif", "image/webp")
            assert 0 < len(source["data"]) <= IMAGE_BASE64_BYTES_MAX, f"{place}: size of an image"


def _check_text(block: Block, place: str) -> None:
    assert block["type"] == "text", f"{place}: {block['type']}"
    assert set(block) <= {"type", "text", "citations", "cache_control"}, f"{place}: {sorted(block)}"
    assert block["text"].strip(), f"{place}: blank text"
