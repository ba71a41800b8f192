"""Compares what a terminal, `tiller rpc` and an editor show of one session."""

import json
from typing import Any

import msgspec

from e2e.clients import Client
from support.editor import Editor
from support.rpc import Rpc

Shown = dict[str, list[str]]


async def assert_all_see_the_same(
    session_id: str, attached: Client, rpc: Rpc, editor: Editor, *, typed: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """Compare the three frontends after a turn; return the events, each once and in order.

    `typed` is the editor's first prompt, which the editor shows by itself.
    """
    await rpc.turn(session_id)
    events = rpc.events(session_id)
    await attached.until(events[-1]["seq"])
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    # The terminal may have read beyond the turn's end.
    seen = [event for event in attached.seen if event.seq <= events[-1]["seq"]]
    assert json.loads(msgspec.json.encode(seen)) == events
    shown = _shown_in(events)
    await editor.until_update("agent_message_chunk")
    assert {**_shown_by(editor), "user": [*typed, *_shown_by(editor)["user"]]} == shown
    return events


def _shown_in(events: list[dict[str, Any]]) -> Shown:
    """Return the completed items of each kind, in the order in which they began."""
    began = [e["body"]["item"]["id"] for e in events if e["body"]["type"] == "item_started"]
    bodies = [event["body"] for event in events if event["body"]["type"] == "item_completed"]
    items = sorted((body["item"] for body in bodies), key=lambda item: began.index(item["id"]))
    return {
        "user": [item["text"] for item in items if item["type"] == "user_message"],
        "calls": [item["id"] for item in items if item["type"] == "tool_call"],
        "model": ["".join(item["text"] for item in items if item["type"] == "assistant_message")],
    }


def _shown_by(editor: Editor) -> Shown:
    return {
        "user": [one["content"]["text"] for one in editor.updates("user_message_chunk")],
        "calls": [one["toolCallId"] for one in editor.updates("tool_call")],
        "model": [editor.said()],
    }
