#!/usr/bin/env python3
"""Measures what a model's huge answer costs the daemon and its other frontends.

    .venv/bin/python scripts/bench/huge_answers.py [NAME...]

A hostile model server in a process of its own sends, for example, 20,000 calls or 22 MB of text at
full speed. Meanwhile, another frontend asks the daemon something every few milliseconds. The
longest time until it gets an answer shows how long the daemon did nothing else. To compare two
versions of the code, run this with `PYTHONPATH=OTHER/daemon:OTHER/protocol` for the other version.
"""

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

import trio
from measured import Daemon, Frontend, frontend_of
from table import Row, print_rows

from tiller_protocol import PROTOCOL_VERSION
from tiller_protocol.answers import SessionListResult
from tiller_protocol.events import TurnEnded
from tiller_protocol.ops import Hello, SessionList, UserInput

MB = 1_000_000
PROBE_S = 0.005
TURN_S_MAX = 30.0
"""A turn that takes longer is left alone."""

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def _frame(**delta: object) -> bytes:
    data = json.dumps({"choices": [{"index": 0, "delta": delta}]}, separators=(",", ":"))
    return f"data: {data}\n\n".encode()


def _call(number: int, name: str, arguments: str) -> bytes:
    function = {"name": name, "arguments": arguments}
    call = {"index": number, "id": f"c{number}", "type": "function", "function": function}
    return _frame(tool_calls=[call])


def _arguments(pieces: int, piece: str) -> Iterator[bytes]:
    yield _call(0, "write", '{"path":"a","content":"')
    for _ in range(pieces):
        yield _frame(tool_calls=[{"index": 0, "function": {"arguments": piece}}])


def _calls(name: str, count: int) -> Iterator[bytes]:
    arguments = {"bash": "command", "read": "path"}[name]
    return (_call(n, name, json.dumps({arguments: f"echo {n}"})) for n in range(count))


def _pieces(piece: str, count: int, *fields: str) -> Iterator[bytes]:
    return (_frame(**{fields[n % len(fields)]: piece}) for n in range(count))


TEXT, THINKING = "content", "reasoning_content"

ANSWERS: dict[str, Callable[[], Iterator[bytes]]] = {
    "20 calls": lambda: _calls("read", 20),
    "the most calls": lambda: _calls("read", 128),
    "the most commands": lambda: _calls("bash", 128),
    "20,000 calls": lambda: _calls("read", 20_000),
    "the longest text": lambda: _pieces("some words " * 5_000, 70, TEXT),
    "22 MB of text": lambda: _pieces("x" * 60_000, 370, TEXT),
    "22 MB of thinking": lambda: _pieces("x" * 60_000, 370, THINKING),
    "22 MB of arguments": lambda: _arguments(370, "x" * 60_000),
    "text of 4-byte characters": lambda: _pieces("\U0001f600" * 15_000, 400, TEXT),
    "text in one frame": lambda: _pieces("x" * 16 * MB, 1, TEXT),
    "tiny pieces": lambda: _pieces("x", 3_000_000, TEXT),
    "thinking between text": lambda: _pieces("x", 20_000, TEXT, THINKING),
}
"""The frames of each answer, by its name."""


def serve() -> None:
    """Answer each request with the answer that its last message names."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            connection = listener.accept()[0]
            # The daemon may end the connection when it has had enough.
            with (
                suppress(OSError),
                connection,
                connection.makefile("rwb", buffering=1 << 20) as stream,
            ):
                _answer(cast("BinaryIO", stream))


def _answer(stream: BinaryIO) -> None:
    length = 0
    while line := stream.readline().strip().lower():
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    messages = json.loads(stream.read(length) or "{}").get("messages", [])
    if not messages:
        return
    said = [one.get("content") for one in messages if one["role"] == "user"]
    is_done = messages[-1]["role"] != "user" or said[-1] not in ANSWERS
    stream.write(HEAD)
    for frame in iter([_frame(content="done")]) if is_done else ANSWERS[said[-1]]():
        stream.write(frame)
    stream.write(b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n')
    stream.write(b"data: [DONE]\n\n")


async def _probe(frontend: Frontend, waits: list[float]) -> None:
    while True:
        begun = time.monotonic()
        await frontend.ask(Hello(PROTOCOL_VERSION, "probe"))
        waits.append(time.monotonic() - begun)
        await trio.sleep(PROBE_S)


async def _is_busy(frontend: Frontend) -> bool:
    listed = await frontend.ask(SessionList())
    return isinstance(listed, SessionListResult) and listed.sessions[0].status != "idle"


async def _measure(name: str, directory: Path, url: str) -> list[Row]:
    with Daemon(directory, url) as daemon:
        async with frontend_of(daemon) as frontend, trio.open_nursery() as nursery:
            session_id = await frontend.create()
            waits: list[float] = []
            sizes: list[int] = [daemon.rss_bytes()]
            nursery.start_soon(_probe, frontend, waits)

            async def watch() -> None:
                while True:
                    sizes.append(daemon.rss_bytes())
                    await trio.sleep(0.05)

            nursery.start_soon(watch)
            begun = time.monotonic()
            await frontend.ask(UserInput(session_id, name, delivery="start"))
            with trio.move_on_after(TURN_S_MAX):
                while await _is_busy(frontend):  # noqa: ASYNC110 - another process
                    await trio.sleep(0.1)
            took = time.monotonic() - begun
            nursery.cancel_scope.cancel()
            # A slow frontend may have missed the end of the turn.
            ends = [one.event.body for one in frontend.seen[session_id]]
            for end in ends:
                if isinstance(end, TurnEnded):
                    print(f"{name}: {end.outcome}. {end.error and end.error.message}")
    return [
        Row(f"{name}: longest wait", "ms", (max(waits) * 1000,), budget=100.0),
        Row(f"{name}: the turn", "s", (took,)),
        Row(f"{name}: memory", "MB", ((max(sizes) - sizes[0]) / MB,)),
    ]


async def main(names: list[str]) -> None:
    """Measure each answer with a daemon of its own."""
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: ASYNC220
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        rows: list[Row] = []
        for name in names:
            with tempfile.TemporaryDirectory() as directory:
                rows += await _measure(name, Path(directory) / "home", url)
        server.terminate()
    print_rows(rows)


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        trio.run(main, sys.argv[1:] or list(ANSWERS))
