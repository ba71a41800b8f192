"""Tools that the provider runs: recorded answers on each wire, over HTTP, to a real daemon."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio

from support.daemon import Daemon
from support.frontend import Frontend
from support.http_server import Received, events, hanging, serving
from support.streams import STREAMS
from support.vendor_types import check_chat_typed, check_messages_typed, check_responses_typed
from tiller_protocol.items import AssistantMessage, Citation, ToolCall, ToolErrorKind
from tiller_protocol.ops import Interrupt

CONFIG = """\
model = "there/m"
small_model = "scripted/untitled"

[providers.there]
api = "{api}"
base_url = "{url}"

[providers.scripted]
api = "scripted"
scripts = "../scripts"

[models."there/m"]
hosted_tools.web_search = {fields}
"""


class Wire(NamedTuple):
    """A recorded answer, its configuration, and the expected result."""

    api: str
    stream: str
    begun: bytes
    """Bytes in the frame after which the provider works on its first call or begins its text."""

    fields: str
    offered: dict[str, Any]
    """The configured part of a request's description of the tool."""

    check: Callable[[bytes], None]
    calls: list[tuple[str, str, str]]
    citations: tuple[Citation, ...]
    text: str


WIRES = (
    Wire(
        "anthropic_messages",
        "messages-anthropic-web-search",
        b'"server_tool_use"',
        "{ max_uses = 3 }",
        {"name": "web_search", "max_uses": 3},
        check_messages_typed,
        [("web_search", "completed", "T · https://example.org/")],
        (Citation("https://example.org/", "T", "It is so."),),
        "By what I found, it is so.",
    ),
    Wire(
        "openai_responses",
        "responses-openai-hosted-results",
        b"response.web_search_call.searching",
        '{ search_context_size = "low" }',
        {"type": "web_search", "search_context_size": "low"},
        check_responses_typed,
        [
            ("web_search", "completed", "https://example.com/cats\nhttps://example.org/"),
            ("web_search", "completed", ""),
            ("file_search", "completed", "cats.md · Cats exist."),
            ("code_interpreter", "error", "ZeroDivisionError"),
        ],
        (Citation("https://example.com/cats", "Cats"), Citation("", "cats.md")),
        "Cats exist.",
    ),
    Wire(
        "openai_chat",
        "chat-openai-web-search",
        b'"content": "Cats',
        '{ search_context_size = "low" }',
        {"search_context_size": "low"},
        check_chat_typed,
        [],
        (Citation("https://example.com/cats?utm_source=openai", "Cats"),),
        "Cats exist.",
    ),
)


def frames_of(stream: str) -> list[bytes]:
    return [frame + b"\n\n" for frame in STREAMS[stream].split(b"\n\n") if frame]


def beginning_of(wire: Wire) -> list[bytes]:
    """The frames up to the one in which the provider begins its first call."""
    frames = frames_of(wire.stream)
    last = next(n for n, frame in enumerate(frames) if wire.begun in frame)
    return frames[: last + 1]


def offered_in(body: dict[str, Any]) -> dict[str, Any]:
    """Return a request's description of the tool."""
    if "web_search_options" in body:
        return body["web_search_options"]
    tools = body["tools"]
    return next(one for one in tools if "web_search" in (one.get("name"), one.get("type")))


def sent_back(wire: Wire, received: Received) -> list[Any]:
    """Return the blocks of the provider's own calls in a request."""
    body = received.body
    if wire.api != "anthropic_messages":
        return [item for item in body.get("input", ()) if item.get("type", "").endswith("_call")]
    answers = [one["content"] for one in body["messages"] if one["role"] == "assistant"]
    return [block for content in answers for block in content if block["type"] != "text"]


def received_blocks(wire: Wire) -> list[Any]:
    """Return the complete blocks of the provider's own calls in its answer."""
    lines = STREAMS[wire.stream].decode().splitlines()
    told = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    if wire.api == "openai_chat":
        return []
    if wire.api == "openai_responses":
        return told[-1]["response"]["output"][:-1]
    blocks = [one["content_block"] for one in told if one["type"] == "content_block_start"]
    call, result = (block for block in blocks if block["type"] != "text")
    return [{**call, "input": {"query": "is it so"}}, result]


@pytest.mark.parametrize("wire", WIRES, ids=[wire.api for wire in WIRES])
async def test_a_recorded_answer_is_shown_survives_an_interrupt_and_a_crash_and_goes_back(
    new_daemon: Callable[..., Daemon], workspace: Path, nursery: trio.Nursery, wire: Wire
) -> None:
    stuck, whole = hanging(*beginning_of(wire)), events(*frames_of(wire.stream))
    async with serving(stuck, stuck, whole) as server:
        config = CONFIG.format(api=wire.api, url=server.base_url, fields=wire.fields)
        daemon = new_daemon(config)
        daemon.start()
        frontend = await Frontend.connect(daemon, nursery)
        session_id = await frontend.session(workspace, model="there/m")

        await begin(frontend, session_id, wire, 1)
        await frontend.must(Interrupt(session_id))
        assert (await frontend.turn_ended(session_id)).outcome == "interrupted"
        check_unfinished(frontend, session_id, wire, "aborted", 1)

        await begin(frontend, session_id, wire, 2)
        daemon.restart()
        await frontend.reconnect()
        assert (await frontend.turn_ended(session_id, 2)).outcome == "interrupted"
        check_unfinished(frontend, session_id, wire, "lost", 2)

        await frontend.say(session_id, "so?")
        ended = await frontend.turn_ended(session_id, 3)
        assert (ended.outcome, ended.steps, ended.last_message) == ("completed", 1, wire.text)
        items = (await frontend.snapshot(session_id)).items
        calls = [item for item in items if isinstance(item, ToolCall)][2 * bool(wire.calls) :]
        assert [(call.name, call.state, call.output) for call in calls] == wire.calls
        assert all(call.by_provider for call in calls)
        answer = [item for item in items if isinstance(item, AssistantMessage)][-1]
        assert (answer.text, answer.citations) == (wire.text, wire.citations)

        await frontend.say(session_id, "thanks")
        await frontend.turn_ended(session_id, 4)
        requests = list(server.received)
        await frontend.close()
    for received in requests:
        wire.check(received.data)
        assert wire.offered.items() <= offered_in(received.body).items()
    assert [sent_back(wire, received) for received in requests[:3]] == [[], [], []]
    assert sent_back(wire, requests[3]) == received_blocks(wire)


async def begin(frontend: Frontend, session_id: str, wire: Wire, number: int) -> None:
    """Start a turn whose answer stops where the provider works; `number` counts from 1."""
    await frontend.say(session_id, "is it so?")
    if wire.calls:
        await frontend.until_call(session_id, "running", number)
    else:
        await frontend.until(
            session_id, lambda event: getattr(event.body, "channel", "") == "text", number
        )


def check_unfinished(
    frontend: Frontend, session_id: str, wire: Wire, kind: ToolErrorKind, number: int
) -> None:
    """Check that the provider's call without a result has ended like the turn."""
    calls = frontend.completed_calls(session_id)
    assert len(calls) == (number if wire.calls else 0)
    for call in calls[-1:]:
        assert (call.name, call.state, call.error_kind) == ("web_search", "error", kind)
        assert call.by_provider


async def test_an_answer_that_the_provider_pauses_goes_on_where_it_was(
    new_daemon: Callable[..., Daemon], workspace: Path, nursery: trio.Nursery
) -> None:
    wire = WIRES[0]
    paused, rest = "messages-anthropic-pause", "messages-anthropic-after-pause"
    async with serving(events(*frames_of(paused)), events(*frames_of(rest))) as server:
        daemon = new_daemon(CONFIG.format(api=wire.api, url=server.base_url, fields=wire.fields))
        daemon.start()
        frontend = await Frontend.connect(daemon, nursery)
        session_id = await frontend.session(workspace, model="there/m")
        await frontend.say(session_id, "x?")
        ended = await frontend.turn_ended(session_id)
        before, after = frontend.completed_calls(session_id)
        requests = list(server.received)
        await frontend.close()
    assert (ended.outcome, ended.steps, ended.last_message) == ("completed", 2, "Found.")
    assert after.output == "T · https://example.org/"
    assert (before.call_id, after.call_id) == ("srvtoolu_01", "srvtoolu_01")
    for received in requests:
        wire.check(received.data)
    (call,) = sent_back(wire, requests[1])
    assert (call["id"], call["input"]) == ("srvtoolu_01", {"query": "x"})
    assert requests[1].body["messages"][-1]["role"] == "assistant"
