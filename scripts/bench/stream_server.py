#!/usr/bin/env python3
"""A server that streams deltas on any wire, in a separate process, so its CPU does not count.

Used by `models.py`. The base URL `http://127.0.0.1:PORT/DELTAS/PACE_US` says how many deltas to
send and how many microseconds to wait between two; with 0 they are sent at full speed. Each delta
is a separate chunk. The server prints its port.
"""

import json
import socket
import sys
import threading
import time

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    b"Connection: close\r\n\r\n"
)
PIECES_AT_ONCE = 64
"""Chunks in one write at full speed."""


def main() -> None:
    """Serve until standard input ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    threading.Thread(target=_serve, args=(listener,), daemon=True).start()
    sys.stdin.read()


def _serve(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    with connection:
        request = b""
        while b"\r\n\r\n" not in request:
            request += connection.recv(65536)
        head, _, body = request.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        while len(body) < length:
            body += connection.recv(65536)
        _, deltas, pace_us, *path = head.split()[1].decode().split("/")
        before, delta, after = WIRES[path[-1]]
        connection.sendall(HEAD + _chunk(before))
        _send(connection, _chunk(delta), int(deltas), int(pace_us) / 1e6)
        connection.sendall(_chunk(after) + b"0\r\n\r\n")


def _send(connection: socket.socket, piece: bytes, count: int, pace_s: float) -> None:
    if not pace_s:
        for start in range(0, count, PIECES_AT_ONCE):
            connection.sendall(piece * min(PIECES_AT_ONCE, count - start))
        return
    due = time.monotonic()
    for _ in range(count):
        due += pace_s
        time.sleep(max(0.0, due - time.monotonic()))
        connection.sendall(piece)


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _event(kind: str, **fields: object) -> bytes:
    told = json.dumps({"type": kind, **fields}, separators=(",", ":"))
    return f"event: {kind}\ndata: {told}\n\n".encode()


def _data(**fields: object) -> bytes:
    head = {"id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT", "object": "chat.completion.chunk"}
    told = head | {"created": 1741569952, "model": "m", "system_fingerprint": "fp_1"} | fields
    return b"data: " + json.dumps(told, separators=(",", ":")).encode() + b"\n\n"


def _choice(finish: str | None, **delta: str) -> list[dict[str, object]]:
    return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]


_ID = "msg_67ccd2bf17f0819081ff3bb2cf6508e60bb6a6b452d3795b"

WIRES = {
    "completions": (
        _data(choices=_choice(None, role="assistant", content="")),
        _data(choices=_choice(None, content=" word")),
        _data(choices=_choice("stop")) + b"data: [DONE]\n\n",
    ),
    "responses": (
        _event(
            "response.output_item.added",
            output_index=0,
            item={"id": _ID, "type": "message", "role": "assistant", "content": []},
            sequence_number=2,
        ),
        _event(
            "response.output_text.delta",
            content_index=0,
            delta=" word",
            item_id=_ID,
            logprobs=[],
            obfuscation="aJ8fk2Lq",
            output_index=0,
            sequence_number=1234,
        ),
        _event(
            "response.completed",
            sequence_number=9999,
            response={"id": "r", "object": "response", "status": "completed", "output": []},
        ),
    ),
    "messages": (
        _event(
            "message_start",
            message={
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "content": [],
                "model": "m",
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {"input_tokens": 9, "output_tokens": 1},
            },
        )
        + _event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        _event("content_block_delta", index=0, delta={"type": "text_delta", "text": " word"}),
        _event("content_block_stop", index=0)
        + _event(
            "message_delta",
            delta={"stop_reason": "end_turn", "stop_sequence": None},
            usage={"output_tokens": 9},
        )
        + _event("message_stop"),
    ),
}
"""The events before the deltas, one delta, and the events after, by the end of the path."""


if __name__ == "__main__":
    main()
