"""The rules of the Chat Completions dialect, as the strictest servers apply them.

For tests of whoever builds requests, and for scripted servers that check what they are sent.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

Message = dict[str, Any]

FIELDS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {
        *("role", "content", "tool_calls", "reasoning_content", "reasoning"),
        *("reasoning_details", "extra_content"),
    },
    "tool": {"role", "content", "tool_call_id"},
}


def check_chat_messages(messages: Sequence[Message]) -> None:
    """Raise `AssertionError` unless a strict server would take `messages`.

    The system message comes first and once; user messages are never adjacent, nor are assistant
    messages; each call has one result, right after its message, in call order; call ids are unique;
    arguments are JSON objects; nothing is empty.
    """
    position = 0
    ids: set[str] = set()
    before = ""
    while position < len(messages):
        message = messages[position]
        role = message["role"]
        assert role in FIELDS, f"message {position}: role {role!r}"
        assert set(message) <= FIELDS[role], f"message {position}: fields {sorted(message)}"
        assert role != "system" or position == 0, f"message {position}: system is not first"
        assert role != "tool", f"message {position}: a result without its call"
        assert role != before, f"message {position}: {role} after {role}"
        before = role
        position += 1
        if role == "assistant":
            calls = _check_assistant(message, position - 1, ids)
            _check_results(messages[position : position + len(calls)], calls, position)
            position += len(calls)
            before = "tool" if calls else before
        else:
            _check_content(message["content"], position - 1)


def check_chat_body(body: bytes) -> Message:
    """Check a whole request body and return it decoded."""
    request = json.loads(body)
    assert isinstance(request["model"], str)
    assert request["model"]
    check_chat_messages(request["messages"])
    for tool in request.get("tools", []):
        assert tool["type"] == "function"
        assert tool["function"]["parameters"]["type"] == "object"
    assert request.get("tools") != [], "an empty list of tools"
    return request


def _check_assistant(message: Message, position: int, ids: set[str]) -> list[Message]:
    calls = message.get("tool_calls", [])
    assert calls != [] or "tool_calls" not in message, f"message {position}: no calls in tool_calls"
    if not calls or message["content"] is not None:
        _check_content(message["content"], position)
    for call in calls:
        assert set(call) - {"extra_content"} == {"id", "type", "function"}
        assert call["type"] == "function"
        assert set(call["function"]) == {"name", "arguments"}
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", call["function"]["name"]), call
        assert isinstance(json.loads(call["function"]["arguments"]), dict), call
        assert call["id"], "an empty call id"
        assert call["id"] not in ids, f"call id {call['id']} twice"
        ids.add(call["id"])
    return calls


def _check_results(results: Sequence[Message], calls: Sequence[Message], position: int) -> None:
    for offset, call in enumerate(calls):
        assert offset < len(results), f"call {call['id']} has no result"
        result = results[offset]
        assert result["role"] == "tool", f"message {position + offset}: no result of {call['id']}"
        assert set(result) == FIELDS["tool"]
        assert result["tool_call_id"] == call["id"], f"message {position + offset}: wrong order"
        assert isinstance(result["content"], str), f"message {position + offset}: no text"
        assert result["content"], f"message {position + offset}: an empty result"


def _check_content(content: Any, position: int) -> None:
    assert content, f"message {position}: empty content"
    if isinstance(content, str):
        return
    for part in content:
        if part["type"] == "text":
            assert part["text"], f"message {position}: an empty part"
        elif part["type"] == "file":
            file = part["file"]
            assert file["filename"].endswith(".pdf")
            assert file["file_data"].startswith("data:application/pdf;base64,")
        else:
            assert part["type"] == "image_url"
            assert re.match(r"data:image/\w+;base64,", part["image_url"]["url"])
