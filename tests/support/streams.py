"""Recorded streams of every wire, their decoders, and the items that their events add up to.

For tests that cut or damage streams. The streams are in `tests/models/dialects/streams`.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from tiller_daemon.models.base import (
    Cited,
    Finished,
    HostedCall,
    ModelError,
    ModelEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallDone,
    ToolCallStarted,
    UsageReported,
)
from tiller_daemon.models.dialects.anthropic_messages.adapter import AnthropicMessages
from tiller_daemon.models.dialects.anthropic_messages.stream import MessagesDecoder
from tiller_daemon.models.dialects.openai_chat.adapter import OpenAIChat
from tiller_daemon.models.dialects.openai_chat.stream import ChatDecoder
from tiller_daemon.models.dialects.openai_responses.adapter import OpenAIResponses
from tiller_daemon.models.dialects.openai_responses.stream import ResponsesDecoder
from tiller_daemon.models.http.client import HttpClient
from tiller_daemon.models.http.failure import Endpoint

ENDPOINT = Endpoint("local", "http://127.0.0.1:1/v1")
ORDINAL = 7


class Decoder(Protocol):
    """The interface of every adapter's decoder."""

    def feed(self, chunk: bytes) -> list[ModelEvent]:
        """Take the next bytes."""
        ...

    def end(self) -> list[ModelEvent]:
        """The connection has ended."""
        ...


WIRES: dict[str, Callable[[], Decoder]] = {
    "chat": lambda: ChatDecoder(ENDPOINT, "m", ORDINAL),
    "responses": lambda: ResponsesDecoder(ENDPOINT, "m", ORDINAL),
    "messages": lambda: MessagesDecoder(ENDPOINT, "m", ORDINAL, "digest"),
}
"""Decoders by wire, which is the first word of a stream's name."""

CLIENTS: dict[str, Callable[[HttpClient], Any]] = {
    "chat": OpenAIChat,
    "responses": OpenAIResponses,
    "messages": AnthropicMessages,
}

STREAMS: dict[str, bytes] = {
    path.stem: path.read_bytes()
    for path in sorted((Path(__file__).parents[1] / "models/dialects/streams").glob("*.sse"))
}

WHOLE = [name for name in STREAMS if not name.endswith("-fails")]


def wire_of(name: str) -> str:
    """The wire of a stream."""
    return name.partition("-")[0]


def decode(name: str, chunks: Iterable[bytes]) -> dict[str, Any] | ModelError:
    """Decode chunks on the wire of `name`; return the answer, or the error if they are none."""
    decoder = WIRES[wire_of(name)]()
    events: list[ModelEvent] = []
    try:
        for chunk in chunks:
            events += decoder.feed(chunk)
        events += decoder.end()
    except ModelError as error:
        fold(events, ended=False)
        return error
    return fold(events)


def fold(events: Iterable[ModelEvent], *, ended: bool = True) -> dict[str, Any]:
    """Check these events and return the items that a turn makes of them, in order.

    Adjacent text events are one item, as are adjacent thinking events; calls differ by number.
    """
    items: list[list[Any]] = []
    calls: dict[int, list[Any]] = {}
    usage, finish = None, None
    for event in events:
        assert finish is None, f"{event} after the end"
        match event:
            case TextDelta():
                assert event.text
                _last(items, "text")[1] += event.text
            case ReasoningDelta():
                last = _last(items, "thinking")
                last[1] += event.text
                last[2] = event.opaque or last[2]
            case ToolCallStarted():
                assert event.index == len(calls)
                assert event.call_id
                assert event.name
                assert event.call_id not in {call[1] for call in calls.values()}
                calls[event.index] = ["call", event.call_id, event.name, "", False]
                items.append(calls[event.index])
            case ToolCallDelta():
                assert not calls[event.index][4], "a piece of a call that is done"
                assert event.arguments
                calls[event.index][3] += event.arguments
            case ToolCallDone():
                assert not calls[event.index][4], "a call is done twice"
                calls[event.index][4] = True
            case HostedCall():
                hosted = [one for one in items if one[:2] == ["hosted", event.call_id]]
                if hosted and hosted[-1][5] == "running":
                    assert hosted[-1][2] == event.name
                    hosted[-1][3:] = [event.arguments, event.output, event.state]
                else:
                    fields = (event.call_id, event.name, event.arguments, event.output)
                    items.append(["hosted", *fields, event.state])
            case Cited():
                _last(items, "text").append(event.citation)
            case UsageReported():
                usage = event.usage
            case Finished():
                finish = event.reason
    assert bool(finish) == ended
    if finish in ("stop", "tool_calls"):
        assert all(call[4] for call in calls.values()), "a whole answer with half a call"
    return {"items": items, "usage": usage, "finish": finish}


def _last(items: list[list[Any]], kind: str) -> list[Any]:
    if not items or items[-1][0] != kind:
        items.append([kind, "", ""])
    return items[-1]
