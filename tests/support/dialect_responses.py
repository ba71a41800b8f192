"""The rules of the Responses dialect, as the strictest servers apply them.

For tests of whoever builds requests, and for scripted servers that check what they are sent.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

Item = dict[str, Any]

FIELDS = {
    "message": {"type", "role", "content", "phase"},
    "function_call": {"type", "call_id", "name", "arguments"},
    "function_call_output": {"type", "call_id", "output"},
}

BODY = {
    "model",
    "input",
    "instructions",
    "stream",
    "store",
    "include",
    "tools",
    "max_output_tokens",
    "prompt_cache_key",
    "reasoning",
    "text",
}
"""The fields of a request that is made without options."""

GENERATED = {"message", "function_call"}
"""Types of items that may follow an item of the provider's, which requires the next item."""


def check_responses_input(items: Sequence[Item]) -> None:
    """Raise `AssertionError` unless a strict server would take `items`.

    User messages are never adjacent, nor are plain assistant messages; each call has one output,
    after the calls of its response, in call order; call ids are unique; arguments are JSON objects;
    nothing is empty; an item from the provider is followed by an item from the model.
    """
    waiting: list[str] = []
    ids: set[str] = set()
    before: Item = {}
    for place, item in enumerate(items):
        kind = item["type"]
        where = f"item {place} ({kind})"
        if kind in FIELDS:
            assert set(item) <= FIELDS[kind], f"{where}: fields {sorted(item)}"
        if kind == "function_call_output":
            assert waiting, f"{where}: an output without its call"
            assert item["call_id"] == waiting.pop(0), f"{where}: wrong order"
            _check_content(item["output"], where)
        elif kind == "function_call":
            _check_call(item, ids, where)
            waiting.append(item["call_id"])
        elif kind == "message" and item["role"] == "user":
            assert not waiting, f"{where}: {waiting} have no output"
            assert before.get("role") != "user", f"{where}: user after user"
            _check_content(item["content"], where)
        elif kind == "message":
            assert item["role"] == "assistant", f"{where}: role {item['role']}"
            assert isinstance(item["content"], str), f"{where}: no text"
            assert item["content"], f"{where}: empty"
            plain = not item.get("phase") and not before.get("phase")
            assert before.get("role") != "assistant" or not plain, f"{where}: assistant twice"
            assert item.get("phase") in (None, "commentary", "final_answer"), where
        before = item
    assert not waiting, f"{waiting} have no output"
    _check_followed(items)


def check_responses_body(body: bytes) -> Item:
    """Check a whole request body, made without options, and return it decoded."""
    request = json.loads(body)
    assert set(request) <= BODY, set(request) - BODY
    assert isinstance(request["model"], str)
    assert request["model"]
    assert request["stream"] is True
    assert request["store"] is False
    assert request.get("instructions") != ""
    check_responses_input(request["input"])
    for tool in request.get("tools", []):
        assert set(tool) == {"type", "name", "description", "parameters", "strict"}
        assert tool["parameters"]["type"] == "object"
        assert tool["strict"] is False, "parameters are not made for strict tools"
    assert request.get("tools") != [], "an empty list of tools"
    return request


def _check_call(item: Item, ids: set[str], where: str) -> None:
    assert set(item) == FIELDS["function_call"], where
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", item["name"]), where
    assert isinstance(json.loads(item["arguments"]), dict), where
    assert re.fullmatch(r"[!-~]{1,64}", item["call_id"]), where
    assert item["call_id"] not in ids, f"{where}: call id twice"
    ids.add(item["call_id"])


def _check_content(content: Any, where: str) -> None:
    assert content, f"{where}: empty"
    if isinstance(content, str):
        return
    for part in content:
        if part["type"] == "input_text":
            assert part["text"], f"{where}: an empty part"
        elif part["type"] == "input_file":
            assert part["filename"].endswith(".pdf"), where
            assert part["file_data"].startswith("data:application/pdf;base64,"), where
        else:
            assert part["type"] == "input_image", where
            assert part["detail"] == "auto", where
            assert re.match(r"data:image/\w+;base64,", part["image_url"]), where


def _check_followed(items: Sequence[Item]) -> None:
    """Check that after items from the provider, the next other item is made by the model."""
    outputs = {item["call_id"] for item in items if item["type"].endswith("_output")}
    calls = {
        item["call_id"] for item in items if item["type"].endswith("_call") if "call_id" in item
    }
    assert outputs == calls, "a call without an output, or an output without a call"
    for place, item in enumerate(items):
        if item["type"] in FIELDS:
            continue
        rest = (one for one in items[place:] if one["type"] in FIELDS)
        follower = next(rest, {"type": "nothing"})
        assert follower["type"] in GENERATED, f"item {place} ({item['type']}) is not followed"
        assert follower.get("role") != "user", f"item {place} ({item['type']}) is not followed"
