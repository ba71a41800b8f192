"""Random history items for the Messages wire, and requests made from them."""

from typing import Any

from hypothesis import strategies as st

from tiller_daemon.models.base import ModelRequest, ToolSpec
from tiller_daemon.models.dialects.anthropic_messages.opaque_blocks import origin_of, seal_blocks
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import (
    AssistantMessage,
    Compaction,
    Image,
    Item,
    Notice,
    Patch,
    Reasoning,
    ToolCall,
    UserMessage,
)

PLACE = "https://api.anthropic.com/v1"
OLD = "claude-sonnet-4-5"
NEW = "claude-opus-4-8"
OTHER = "deepseek-chat"
USER = UserMessage(ItemId("u"), "hello", "start")
PIXEL = Image("image/png", b"\x89PNG")
READ = ToolSpec("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}})


def call(call_id: str = "c1", **fields: Any) -> ToolCall:
    known: dict[str, Any] = {
        "name": "read",
        "arguments": '{"path":"a"}',
        "state": "completed",
        "output": "text",
    }
    return ToolCall(ItemId("i" + call_id), CallId(call_id), **(known | fields))


def reply(text: str, **fields: Any) -> AssistantMessage:
    return AssistantMessage(ItemId("a"), text, fields.pop("state", "completed"), **fields)


def thought(text: str, model: str = NEW, prefix: str = "", **fields: Any) -> Reasoning:
    block = {"type": "thinking", "thinking": text, "signature": f"sign {text}"}
    opaque = seal_blocks(origin_of(PLACE, model), prefix, [block])
    known: dict[str, Any] = {"state": "completed", "opaque": opaque}
    return Reasoning(ItemId("r"), text, **(known | fields))


def request(*items: Item, **fields: Any) -> ModelRequest:
    known: dict[str, Any] = {"model": OLD, "system": "", "tools": (), "session_id": "s"}
    return ModelRequest(items=items, ordinal=0, **(known | fields))


texts = st.text(max_size=20)
ids = st.sampled_from(["", "c1", "c2", "call_0", "call_1", "a b", "x" * 150, "ünï"])
states = st.sampled_from(["streaming", "completed", "interrupted", "discarded"])
images = st.lists(st.just(PIXEL) | st.just(Image("image/bmp", b"")), max_size=2).map(tuple)
CITATION = {
    "type": "web_search_result_location", "url": "u", "title": "t", "cited_text": "c",
    "encrypted_index": "e",
}  # fmt: skip
kinds = st.sampled_from(
    [
        {"type": "thinking", "thinking": "", "signature": "s"},
        {"type": "redacted_thinking", "data": "d"},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
        {"type": "text", "citations": [CITATION]},
    ]
)
opaques = st.builds(
    seal_blocks,
    st.sampled_from([origin_of(PLACE, OLD), origin_of(PLACE, NEW)]),
    st.just(""),
    st.lists(kinds, max_size=4, unique_by=str),
)
items: st.SearchStrategy[Item] = st.one_of(
    st.builds(UserMessage, ids, texts, st.just("start"), images, st.just(("f",)) | st.just(())),
    st.builds(AssistantMessage, ids, texts, states),
    st.builds(Reasoning, ids, texts, states, opaques | st.sampled_from(["", "sealed"])),
    st.builds(
        ToolCall,
        ids,
        ids,
        texts | st.just("read"),
        texts | st.just("{}") | st.just("[]"),
        st.sampled_from(["pending", "running", "completed", "error"]),
        output=texts,
        error_kind=st.sampled_from([None, "failed", "lost"]),
        images=images,
        discarded=st.booleans(),
        ordinal=st.integers(0, 3),
    ),
    st.builds(Compaction, ids, texts, ids),
    st.builds(Notice, ids, st.just("code"), texts),
    st.builds(Patch, ids, st.just(("f",))),
)
