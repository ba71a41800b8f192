"""A model server for benchmarks: Chat Completions over HTTP, as fast as asyncio writes.

The newest user message says what to answer (`Play`, as JSON after `PLAY `), so that one server
serves every session at once. A request without tools is a side request, such as for a title: it
gets a short text and is not counted. The server prints its port, then a JSON object for each
finished answer (`Played`), with times of the system-wide monotonic clock. It runs in a separate
process, so that it never waits for the benchmark. If its argument names a file with a certificate
and its key, it speaks TLS.
"""

import asyncio
import json
import signal
import ssl
import sys
import time
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

MARK = "PLAY "
WORDS = ("the", "agent", "reads", "one", "more", "file", "and", "then", "it", "writes", "a", "line")
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
WRITE_BYTES = 64 * 1024
"""Bytes handed to the connection at once when an answer is sent at full speed."""


class Play(Struct, omit_defaults=True):
    """What to answer in a conversation: `rounds` of `calls` each, then `deltas` pieces of text.

    `think_ms` is the time before an answer, `pace_ms` the time between two pieces. With `hang` the
    text never ends. The calls run `commands` in turn with the tool `bash`; without commands, each
    reads 20 lines of `path`.
    """

    id: str
    rounds: int = 0
    calls: int = 1
    deltas: int = 3
    think_ms: float = 0.0
    pace_ms: float = 0.0
    hang: bool = False
    commands: list[str] = []
    path: str = ""


class Played(Struct):
    """The times of one answer: the request was complete, its text began, its last byte left."""

    id: str
    round: int
    arrived: float
    began: float
    ended: float
    request_bytes: int


class Connection(asyncio.Protocol):
    """A keep-alive connection that answers one request at a time."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._playing: asyncio.Task[None] | None = None
        self._gone = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for writing."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        """Let a task that waits to write continue."""
        self._gone.set()
        self._writable.set()

    def pause_writing(self) -> None:
        """Make tasks wait before they write."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let tasks write again."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Collect bytes, and answer the request once it is complete."""
        self._received += data
        head_end = self._received.find(b"\r\n\r\n")
        if head_end < 0:
            return
        begin = head_end + 4
        end = begin + _content_length(bytes(self._received[:head_end]))
        if len(self._received) < end:
            return
        arrived = time.monotonic()
        method = bytes(self._received[:4])
        body = bytes(self._received[begin:end])
        del self._received[:end]
        if method == b"GET ":
            # The daemon asks a provider for its list of models; this server has none.
            self._transport.write(NOT_FOUND)
            return
        self._playing = asyncio.get_running_loop().create_task(self._play(body, arrived))

    async def _play(self, body: bytes, arrived: float) -> None:
        request = json.loads(body)
        if not request.get("tools"):
            self._transport.write(HEAD + _delta({"content": "A title"}) + _end("stop"))
            return
        play, results = _read(request)
        number = results // play.calls
        began = 0.0
        if play.think_ms:
            await asyncio.sleep(play.think_ms / 1000)
        if number < play.rounds:
            self._transport.write(HEAD + _calls(play, number) + _end("tool_calls"))
        else:
            self._transport.write(HEAD + _delta({"role": "assistant", "content": ""}))
            began = time.monotonic()
            await self._say(play)
            if play.hang:
                await self._gone.wait()
            self._transport.write(_end("stop"))
        played = Played(play.id, number, arrived, began, time.monotonic(), len(body))
        sys.stdout.buffer.write(msgspec.json.encode(played) + b"\n")
        sys.stdout.buffer.flush()

    async def _say(self, play: Play) -> None:
        pieces = [_delta({"content": f"{WORDS[n % len(WORDS)]} "}) for n in range(play.deltas)]
        if not play.pace_ms:
            whole = b"".join(pieces)
            for place in range(0, len(whole), WRITE_BYTES):
                self._transport.write(whole[place : place + WRITE_BYTES])
                await self._writable.wait()
            return
        begin = time.monotonic()
        for number, piece in enumerate(pieces):
            due = begin + number * play.pace_ms / 1000
            if (left := due - time.monotonic()) > 0:
                await asyncio.sleep(left)
            if self._gone.is_set():
                return
            self._transport.write(piece)


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return 0


def _read(request: dict[str, Any]) -> tuple[Play, int]:
    """Return what the newest user message asks for, and the number of results after the message."""
    results = 0
    for message in reversed(request["messages"]):
        if message["role"] == "tool":
            results += 1
        elif message["role"] == "user":
            _, _, text = message["content"].partition(MARK)
            return msgspec.json.decode(text, type=Play), results
    raise ValueError("a request without a user message")


def _calls(play: Play, number: int) -> bytes:
    return b"".join(
        _delta(
            {
                "tool_calls": [
                    {
                        "index": index,
                        "id": f"call_{number}_{index}",
                        "type": "function",
                        "function": _function(play, number * play.calls + index),
                    }
                ]
            }
        )
        for index in range(play.calls)
    )


def _function(play: Play, place: int) -> dict[str, str]:
    if play.commands:
        command = play.commands[place % len(play.commands)].replace("{n}", str(place))
        return {"name": "bash", "arguments": json.dumps({"command": command})}
    arguments = {"path": play.path, "offset": place + 1, "limit": 20}
    return {"name": "read", "arguments": json.dumps(arguments)}


def _delta(delta: dict[str, Any]) -> bytes:
    return _frame([{"index": 0, "delta": delta, "finish_reason": None}])


def _end(reason: str) -> bytes:
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    finish = _frame([{"index": 0, "delta": {}, "finish_reason": reason}])
    return finish + _frame([], usage=usage) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def _frame(choices: list[dict[str, Any]], **more: object) -> bytes:
    frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "play"}
    return _chunk(b"data: " + msgspec.json.encode({**frame, "choices": choices, **more}) + b"\n\n")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def main() -> None:
    """Serve until SIGTERM."""
    loop = asyncio.get_running_loop()
    tls = None
    if len(sys.argv) > 1:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(sys.argv[1])
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=1024, ssl=tls)
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    sys.stdout.buffer.write(b"%d\n" % server.sockets[0].getsockname()[1])
    sys.stdout.buffer.flush()
    await ended.wait()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt, BrokenPipeError):
        asyncio.run(main())
