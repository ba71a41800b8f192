"""Random history items for the Responses wire, and requests made from them."""

from typing import Any

from hypothesis import strategies as st

from tiller_daemon.models.base import ModelRequest
from tiller_daemon.models.dialects.opaque import Origin
from tiller_daemon.models.dialects.openai_responses.request import API, seal_items
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

PLACE = "http://127.0.0.1:1/v1"
ORIGIN = Origin(API, PLACE, "m")
USER = UserMessage(ItemId("u"), "hello", "start")
PIXEL = Image("image/png", b"\x89PNG")

THOUGHT = b'{"id":"rs_1", "type":"reasoning","summary":[],"encrypted_content":"gAAA="}'
NEWER = b'{"type":"reasoning", "id":"rs_2","summary":[],"encrypted_content":"g","new":[1.0, null]}'
SEARCH = (
    b'{"type":"web_search_call","id":"ws_1","status":"completed",'
    b'"action":{"type":"search","query":"x"}}'
)
SHELL = b'{"type":"shell_call","id":"sh_1","call_id":"s1","action":{"commands":["ls"]}}'
SHELL_OUTPUT = b'{"type":"shell_call_output","id":"so_1","call_id":"s1","output":[]}'


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


def thought(*kept: bytes, origin: Origin = ORIGIN, **fields: Any) -> Reasoning:
    known: dict[str, Any] = {
        "text": "hm",
        "state": "completed",
        "opaque": seal_items(origin, list(kept)),
    }
    return Reasoning(ItemId("r"), **(known | fields))


def request(*items: Item, **fields: Any) -> ModelRequest:
    known: dict[str, Any] = {"model": "m", "system": "", "tools": (), "session_id": "s"}
    return ModelRequest(items=items, ordinal=0, **(known | fields))


texts = st.text(max_size=20)
ids = st.sampled_from(["", "c1", "c2", "call_0", "call_1", "a b", "x" * 70, "ünï"])
states = st.sampled_from(["streaming", "completed", "interrupted", "discarded"])
images = st.lists(st.just(PIXEL), max_size=2).map(tuple)
marks = [
    THOUGHT,
    SEARCH,
    SHELL,
    SHELL_OUTPUT,
    b'{"type":"message"}',
    b'{"type":"message","phase":"commentary"}',
]
opaques = st.lists(st.sampled_from(marks), max_size=4).map(lambda kept: seal_items(ORIGIN, kept))
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
