"""The configuration and the answers of a test's own HTTP provider.

The server is `support.http_server`. Titles come from a scripted model, so that only requests from
turns and compactions reach the server, in order.
"""

import json
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from support.dialect import check_chat_body
from support.http_server import Answer, LocalServer, Received, events

CONFIG = """\
model = "local/m"
small_model = "scripted/untitled"

[providers.local]
api = "openai_chat"
base_url = "{url}"

[providers.scripted]
api = "scripted"
scripts = "../scripts"
record = "../requests.jsonl"

[models."local/m"]
context_window = {window}
"""

DONE = b"data: [DONE]\n\n"


def config_for(url: str, window: int = 128_000) -> str:
    """Return the configuration of a daemon that uses the provider at this address."""
    return CONFIG.format(url=url, window=window)


def frame(delta: dict[str, Any], finish: str | None = None) -> bytes:
    """One piece of a streamed answer."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def text_frames(*pieces: str) -> list[bytes]:
    """A whole answer of text."""
    return [*(frame({"content": piece}) for piece in pieces), frame({}, "stop"), DONE]


def call_frames(*calls: tuple[str, dict[str, Any]]) -> list[bytes]:
    """A whole answer of calls; each is a tool's name and its arguments."""
    frames: list[bytes] = []
    for index, (name, arguments) in enumerate(calls):
        call_id = f"call_{zlib.crc32(json.dumps(arguments).encode())}_{index}"
        head = {"index": index, "id": call_id, "function": {"name": name, "arguments": ""}}
        frames.append(frame({"tool_calls": [head]}))
        rest = {"index": index, "function": {"arguments": json.dumps(arguments)}}
        frames.append(frame({"tool_calls": [rest]}))
    return [*frames, frame({}, "tool_calls"), DONE]


def said(*pieces: str) -> Answer:
    """Answers with text."""
    return events(*text_frames(*pieces))


def called(*calls: tuple[str, dict[str, Any]]) -> Answer:
    """Answers with calls."""
    return events(*call_frames(*calls))


class _Body(Struct):
    messages: list[msgspec.Raw]


def messages_of(received: Received) -> list[bytes]:
    """The bytes of each message in a request."""
    return [bytes(raw) for raw in msgspec.json.decode(received.data, type=_Body).messages]


def check_all(server: LocalServer) -> Sequence[Received]:
    """Every request so far, each of them valid (G4)."""
    for received in server.received:
        check_chat_body(received.data)
    return server.received
