"""Frames of the Messages API, as test servers send them."""

import json
from typing import Any

STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
PING = b'event: ping\ndata: {"type": "ping"}\n\n'


def frame(kind: str, **fields: Any) -> bytes:
    """One event."""
    data = json.dumps({"type": kind, **fields}).encode()
    return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


def started(**usage: Any) -> bytes:
    """The first event of an answer."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "m"}
    return frame("message_start", message=message | {"stop_reason": None, "usage": usage})


def begun(index: int, kind: str, **fields: Any) -> bytes:
    """The beginning of a block."""
    return frame("content_block_start", index=index, content_block={"type": kind, **fields})


def piece(index: int, kind: str, **fields: Any) -> bytes:
    """A piece of a block."""
    return frame("content_block_delta", index=index, delta={"type": kind, **fields})


def stopped(index: int) -> bytes:
    """The end of a block."""
    return frame("content_block_stop", index=index)


def ended(reason: str | None, **usage: Any) -> bytes:
    """The end of an answer."""
    delta = {"stop_reason": reason, "stop_sequence": None}
    return frame("message_delta", delta=delta, usage=usage) + STOP


def text(index: int, *pieces: str) -> bytes:
    """A whole block of text."""
    said = b"".join(piece(index, "text_delta", text=one) for one in pieces)
    return begun(index, "text", text="") + said + stopped(index)


def thought(index: int, signature: str, *pieces: str) -> bytes:
    """A whole block of thinking."""
    said = b"".join(piece(index, "thinking_delta", thinking=one) for one in pieces)
    sealed = piece(index, "signature_delta", signature=signature)
    return begun(index, "thinking", thinking="", signature="") + said + sealed + stopped(index)


def call(index: int, id_: str, name: str, *pieces: str, **fields: Any) -> bytes:
    """A whole call."""
    said = b"".join(piece(index, "input_json_delta", partial_json=one) for one in pieces)
    start = {"id": id_, "name": name, "input": {}} | fields
    return begun(index, "tool_use", **start) + said + stopped(index)
