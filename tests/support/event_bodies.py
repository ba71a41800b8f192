"""Short functions that make event bodies of a model and its tools, for tests of frontends."""

from collections.abc import Callable
from typing import Any

from tiller_protocol.events import (
    AnyBody,
    ItemCompleted,
    ItemDelta,
    ItemStarted,
    ToolCallUpdated,
    TurnEnded,
    TurnStarted,
)
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import AssistantMessage, ToolCall, Usage
from tiller_protocol.settings import TurnContextShown

Tiller = Callable[..., tuple[int, str, str]]
"""Runs `tiller` with the given arguments; returns its exit status, stdout and stderr."""

CONTEXT = TurnContextShown("/w", "build", "demo/m", "", "ask", 10, (), 1000)


def started() -> TurnStarted:
    return TurnStarted(CONTEXT)


def ended(message: str = "", outcome: Any = "completed") -> TurnEnded:
    return TurnEnded(outcome, 1, Usage(1200, 0, 30), 1.5, message)


def text_item(item_id: str, *pieces: str) -> list[AnyBody]:
    """An answer that streams in pieces."""
    return [
        ItemStarted(AssistantMessage(ItemId(item_id), "", "streaming")),
        *(ItemDelta(ItemId(item_id), "text", piece) for piece in pieces),
        ItemCompleted(AssistantMessage(ItemId(item_id), "".join(pieces), "completed")),
    ]


def tool_call(item_id: str, name: str, title: str, **fields: Any) -> list[AnyBody]:
    """A call that runs and ends; `fields` are those of the completed item."""
    state = fields.pop("state", "completed")
    done = ToolCall(
        ItemId(item_id), CallId(item_id), name, "{}", state, title=title, duration_s=0.5, **fields
    )
    return [
        ItemStarted(ToolCall(done.id, done.call_id, name, "{}", "pending")),
        ToolCallUpdated(ItemId(item_id), "running", title=title),
        ToolCallUpdated(ItemId(item_id), state, done.error_kind),
        ItemCompleted(done),
    ]
