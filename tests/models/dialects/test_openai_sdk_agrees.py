"""OpenAI's own package as an oracle: what we ask for is of its types, what we understand it does.

And where it takes a broken stream for an answer, we do not.
"""

from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from support.each import each
from support.http_server import events, serving
from support.responses_history import PLACE, items, request
from support.streams import STREAMS, WHOLE, decode, wire_of
from support.vendor_types import check_chat_typed, check_responses_typed
from tiller_daemon.models.base import ModelError, ToolSpec
from tiller_daemon.models.dialects.openai_chat import request as openai_chat_request
from tiller_daemon.models.dialects.openai_responses import request as openai_responses_request
from tiller_daemon.models.dialects.openai_responses.frames import KNOWN_TYPES
from tiller_protocol.items import Item

if TYPE_CHECKING:
    import openai  # takes a second

TERMINAL = (b"completed", b"incomplete")

IGNORED = {
    "response.created",
    "response.queued",
    "response.in_progress",
    "response.content_part.added",
    "response.reasoning_summary_part.added",
    "response.reasoning_summary_part.done",
    "response.output_text.annotation.added",
    "response.compaction.compacting",
}
"""Events that add nothing to what is told elsewhere."""

IGNORED_FAMILIES = (
    "response.audio.",
    "response.code_interpreter_call",
    "response.custom_tool_call_input.",
    "response.file_search_call.",
    "response.image_generation_call.",
    "response.mcp_",
    "response.shell_call_",
    "response.web_search_call.",
)
"""Events of tools that the provider runs: whatever they tell is in the item when it is done."""

MAKER_ODDITIES = {
    "chat-crlf",
    "chat-mistral-thinking-parts",
    "chat-moonshot-usage-in-choice",
    "chat-usage-in-each-frame",
    "responses-crlf-and-unknown-events",
}
"""Streams of which the package does not take all: another choice, CR alone, a delta that is no
text, usage where it does not look."""


TOOL = ToolSpec("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}})


@settings(max_examples=60)
@given(history=st.lists(items, max_size=8), for_openai=st.booleans())
def test_every_request_is_of_the_types_of_the_package(
    history: list[Item],
    for_openai: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """G4."""
    asked = request(
        *history,
        system="be brief",
        tools=(TOOL,),
        max_output_tokens=99,
        variant="high",
        output_schema={"type": "object", "properties": {}},
    )
    build = openai_responses_request.build_body
    check_responses_typed(build(asked, PLACE, for_openai=for_openai))
    check_responses_typed(build(asked, PLACE, for_openai=True, for_plan=True))
    check_chat_typed(openai_chat_request.build_body(asked, for_openai=for_openai))


def test_every_event_that_the_package_knows_means_something_or_is_ignored_on_purpose() -> None:
    from openai.types.responses import ResponseStreamEvent

    schema = TypeAdapter(ResponseStreamEvent).json_schema()
    known = {
        one["properties"]["type"]["const"]
        for one in schema["$defs"].values()
        if str(one.get("properties", {}).get("type", {}).get("const")).startswith("response.")
        and "sequence_number" in one["properties"]
    }
    assert len(known) > 50
    meant = KNOWN_TYPES - {"error", "response.cancelled"}
    ignored = {one for one in known if one in IGNORED or one.startswith(IGNORED_FAMILIES)}
    assert meant | ignored == known
    assert not meant & ignored


class Sdk:
    """What the package understands of a stream, as anybody would add it up."""

    def __init__(self) -> None:
        self.text = ""
        self.calls: list[list[str]] = []
        self.usage: tuple[int, int] | None = None
        self.ended = False

    def ask(self, name: str, base_url: str) -> None:
        from openai import OpenAI

        with OpenAI(base_url=base_url, api_key="k", max_retries=0) as client:
            if wire_of(name) == "chat":
                self._chat(client)
            else:
                self._responses(client)

    def _chat(self, client: "openai.OpenAI") -> None:
        for chunk in client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True
        ):
            if chunk.usage:
                self.usage = (chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
            for choice in chunk.choices or ():
                self.text += choice.delta.content or choice.delta.refusal or ""

    def _responses(self, client: "openai.OpenAI") -> None:
        items: list[Any] = []
        for event in client.responses.create(model="m", input="hi", stream=True):
            match event.type:
                case "response.output_text.delta" | "response.refusal.delta":
                    self.text += event.delta
                case "response.output_item.done":
                    items.append(event.item)
                case "response.completed" | "response.incomplete":
                    self.ended = True
                    items = items or event.response.output or []
                    if usage := event.response.usage:
                        self.usage = (usage.input_tokens, usage.output_tokens)
                case _:
                    pass
        self.calls = [[one.name, one.arguments] for one in items if one.type == "function_call"]
        messages = [one for one in items if one.type == "message"]
        self.text = self.text or "".join(p.text for one in messages for p in one.content)


async def understood(name: str, stream: bytes) -> Sdk:
    sdk = Sdk()
    async with serving(events(stream)) as server:
        await trio.to_thread.run_sync(sdk.ask, name, server.base_url)
    return sdk


AGREED = [n for n in WHOLE if n not in MAKER_ODDITIES and wire_of(n) in ("chat", "responses")]


@each("name", AGREED)
async def test_the_package_understands_every_stream_as_we_do(name: str) -> None:
    ours = decode(name, [STREAMS[name]])
    assert isinstance(ours, dict)
    theirs = await understood(name, STREAMS[name])
    text = "".join(item[1] for item in ours["items"] if item[0] == "text")
    assert text.encode("utf-16", "surrogatepass") == theirs.text.encode("utf-16", "surrogatepass")
    usage = ours["usage"]
    assert (usage and (usage.input_tokens, usage.output_tokens)) == theirs.usage
    if wire_of(name) == "responses":
        assert [item[2:4] for item in ours["items"] if item[0] == "call"] == theirs.calls


@each("name", [name for name in AGREED if wire_of(name) == "responses"])
@pytest.mark.promise("B47")
async def test_where_the_package_takes_a_cut_stream_for_an_answer_we_do_not(name: str) -> None:
    """It says nothing when the terminal event is missing."""
    stream = STREAMS[name]
    last = max(stream.rfind(b'"type":"response.%s"' % kind) for kind in TERMINAL)
    cut = stream[: stream.rfind(b"\n\n", 0, last) + 2]
    assert not (await understood(name, cut)).ended
    ours = decode(name, [cut])
    assert isinstance(ours, ModelError)
    assert ours.kind == "broken_stream"
