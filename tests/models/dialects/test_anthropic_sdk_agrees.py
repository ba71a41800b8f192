"""Anthropic's own package as an oracle: our requests are of its types, answers mean the same to it.

But where it takes a broken stream for an answer, we do not.
"""

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from support.each import each
from support.http_server import events, serving
from support.messages_history import NEW, OLD, PLACE, READ, items, request
from support.streams import STREAMS, WHOLE, decode, wire_of
from support.vendor_types import messages_problem
from tiller_daemon.models.base import ModelError
from tiller_daemon.models.dialects.anthropic_messages.opaque_blocks import (
    PAUSE,
    origin_of,
    unseal_blocks,
)
from tiller_daemon.models.dialects.anthropic_messages.request import build_body
from tiller_protocol.ids import ItemId
from tiller_protocol.items import Item, Reasoning

if TYPE_CHECKING:
    import anthropic  # takes a second

MESSAGES = [name for name in STREAMS if wire_of(name) == "messages"]

ODDITIES = {"messages-proxy-whole-blocks-at-index-0", "messages-crlf-and-unknown-events"}
"""Streams that the package can't add up: blocks that share a number, and one it does not know."""


@settings(max_examples=60)
@given(
    history=st.lists(items, max_size=8),
    model=st.sampled_from([OLD, NEW]),
    variant=st.sampled_from(["", "none", "high", "max"]),
    schema=st.sampled_from([None, {"type": "object", "properties": {"a": {"type": "string"}}}]),
)
def test_every_request_is_of_the_types_of_the_package(
    history: list[Item], model: str, variant: str, schema: dict[str, Any] | None
) -> None:
    """G4."""
    asked = request(
        *history,
        model=model,
        variant=variant,
        system="be brief",
        tools=(READ,),
        output_schema=schema,
    )
    body = json.loads(build_body(asked, PLACE).body)
    assert messages_problem(body) == ""


def test_the_oracle_sees_what_is_wrong() -> None:
    whole = json.loads(build_body(request(), PLACE).body)
    wrong = [
        whole | {"temperature": 1},
        {name: value for name, value in whole.items() if name != "max_tokens"},
        whole | {"messages": [{"role": "user", "content": [{"type": "text", "words": "x"}]}]},
        whole | {"messages": [{"role": "tool", "content": "x"}]},
        whole | {"thinking": {"type": "enabled"}},
        whole | {"tools": [{"name": "x"}]},
    ]
    assert all(messages_problem(body) for body in wrong)


async def understood(stream: bytes) -> "anthropic.types.Message | None":
    """What the package adds a stream up to; None if it has nothing."""
    from anthropic import Anthropic

    def ask(base_url: str) -> "anthropic.types.Message | None":
        with Anthropic(base_url=base_url, api_key="k", max_retries=0) as client:
            asked = {"role": "user", "content": "hi"}
            with client.messages.stream(
                model=NEW,
                max_tokens=9,
                messages=[asked],  # pyright: ignore[reportArgumentType]
            ) as told:
                for _ in told:
                    pass
                return told.current_message_snapshot

    async with serving(events(stream)) as server:
        root = server.base_url.removesuffix("/v1")
        return await trio.to_thread.run_sync(ask, root)


def blocks_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The blocks that our items stand for, as they would go back."""
    blocks: list[dict[str, Any]] = []
    for kind, *item in answer["items"]:
        match kind:
            case "text":
                blocks.append({"type": "text", "text": item[0]})
            case "thinking":
                thought = Reasoning(ItemId("r"), item[0], "completed", item[1])
                kept = unseal_blocks(thought, origin_of("http://127.0.0.1:1/v1", "m"))
                assert kept is not None
                blocks += [b for b in kept.blocks if b["type"] not in ("text", PAUSE)]
            case "hosted":
                pass
            case _:
                input_ = json.loads(item[2]) if answer["finish"] != "length" else {}
                blocks.append({"type": "tool_use", "id": item[0], "name": item[1], "input": input_})
    return blocks


def joined(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Text in a row is one item for us, and a text without words is none."""
    result: list[dict[str, Any]] = []
    for block in blocks:
        if block["type"] == "text" and result and result[-1]["type"] == "text":
            result[-1] = {"type": "text", "text": result[-1]["text"] + block["text"]}
        elif block != {"type": "text", "text": ""}:
            result.append(block)
    return result


@each("name", [n for n in MESSAGES if n in WHOLE and n not in ODDITIES])
async def test_the_package_understands_every_stream_as_we_do(name: str) -> None:
    ours = decode(name, [STREAMS[name]])
    assert isinstance(ours, dict)
    theirs = await understood(STREAMS[name])
    assert theirs is not None
    told = [block.to_dict() for block in theirs.content]
    for block in told:
        block.pop("citations", None)
        if block["type"] == "tool_use" and ours["finish"] == "length":
            block["input"] = {}
        if block["type"] == "thinking":
            block.setdefault("signature", "")
    reply = json.loads(json.dumps(joined(told)).encode("utf-8", "surrogatepass"))
    assert joined(blocks_of(ours)) == _mended(reply)
    counted = theirs.usage
    cached = counted.cache_read_input_tokens or 0
    whole = counted.input_tokens + (counted.cache_creation_input_tokens or 0) + cached
    usage = ours["usage"]
    assert (usage.input_tokens, usage.cached_input_tokens, usage.output_tokens) == (
        whole,
        cached,
        counted.output_tokens,
    )


def _mended(blocks: Any) -> Any:
    """Halves of a surrogate pair joined, which the package leaves apart."""
    text = json.dumps(blocks, ensure_ascii=False)
    return json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16"))


@pytest.mark.promise("B47")
async def test_where_the_package_takes_a_broken_stream_for_an_answer_we_do_not() -> None:
    """It does not miss the end of a message."""
    stream = STREAMS["messages-anthropic-text"]
    broken = stream[: stream.index(b"event: message_stop")]
    theirs = await understood(broken)
    assert theirs is not None
    assert theirs.content[0].to_dict()["text"] == "Hello, wörld!"
    assert theirs.stop_reason == "end_turn"
    ours = decode("messages", [broken])
    assert isinstance(ours, ModelError)
    assert ours.kind == "broken_stream"
