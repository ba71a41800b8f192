#!/usr/bin/env python3
"""Measures the CPU and wall time that client and decoder take for a model server's answer.

    .venv/bin/python scripts/bench/http_client.py

The answers: a small one, one of a thousand pieces at full speed, and one of a hundred pieces a
millisecond apart, each over a connection that stays open, plain and with TLS. The server is a
separate process. Then it measures the event splitter alone. To compare two versions of the code,
run them in turns, with `PYTHONPATH=OTHER/daemon:OTHER/protocol` for the other version.
"""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import msgspec
import trio
from measured import Model
from model_server import MARK, Play
from table import Row, print_rows

from tiller_daemon.config import Provider
from tiller_daemon.models.base import ModelRequest, ToolSpec
from tiller_daemon.models.dialects.openai_chat.adapter import OpenAIChat
from tiller_daemon.models.http.client import HttpClient
from tiller_daemon.models.http.sse import EventSplitter
from tiller_protocol.ids import ItemId
from tiller_protocol.items import UserMessage

ROUNDS = 7
PLAYS = (
    ("a small answer", Play("small", deltas=3), 20, 1),
    ("a delta, 1,000 at full speed", Play("fast", deltas=1_000), 3, 1_000),
    ("a delta, one every millisecond", Play("paced", deltas=100, pace_ms=1), 1, 100),
)
"""Name, answer, requests in a round, and deltas in an answer, by which its CPU is divided."""

SPLITS = 20
EVENTS_AT_ONCE = 250
"""Events in one piece of 64 KiB, as they come at full speed."""

DELTA = b'{"type":"response.output_text.delta","delta":" word","sequence_number":1234}'
EVENTS = {"data": b"data: " + DELTA, "name and data": b"event: response.delta\ndata: " + DELTA}


async def main() -> None:
    """Measure each answer, plain and with TLS, then the splitter."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as directory:
        certificate = _certificate(Path(directory))
        for file in (None, certificate) if certificate else (None,):
            with Model(file) as server:
                rows += await _plays(server.url, file)
    for name, event in EVENTS.items():
        rows.append(Row(f"split an event: {name}", "us", _splits(event)))
    print_rows(rows)


async def _plays(url: str, certificate: Path | None) -> list[Row]:
    ca_file = str(certificate) if certificate else None
    provider = Provider("openai_chat", base_url=f"{url}/v1", ca_file=ca_file)
    http = HttpClient("bench", provider)
    model = OpenAIChat(http)
    rows: list[Row] = []
    for name, play, requests, parts in PLAYS:
        costs = [await _cost_us(model, play, requests) for _ in range(ROUNDS + 1)][1:]
        label = f"{name}, {'TLS' if certificate else 'plain'}"
        rows.append(Row(f"{label}, CPU", "us", tuple(cpu / parts for cpu, _ in costs)))
        rows.append(Row(f"{label}, time", "us", tuple(wall / parts for _, wall in costs)))
    await http.aclose()
    return rows


async def _cost_us(model: OpenAIChat, play: Play, requests: int) -> tuple[float, float]:
    """Return the CPU and the wall time of a request, in microseconds."""
    text = MARK + msgspec.json.encode(play).decode()
    tools = (ToolSpec("ls", "Lists.", {"type": "object"}),)
    asked = ModelRequest("m", "", (UserMessage(ItemId("u"), text, "start"),), tools, "s", 0)
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(requests):
        async with aclosing(model.stream(asked)) as stream:
            async for _ in stream:
                pass
    each = 1e6 / requests
    return (time.process_time() - cpu) * each, (time.perf_counter() - wall) * each


def _splits(event: bytes) -> tuple[float, ...]:
    chunk = (event + b"\n\n") * EVENTS_AT_ONCE

    def split() -> None:
        assert len(EventSplitter().feed(chunk)) == EVENTS_AT_ONCE

    return tuple(_mean_us(split) / EVENTS_AT_ONCE for _ in range(ROUNDS))


def _mean_us(action: Callable[[], None]) -> float:
    began = time.process_time()
    for _ in range(SPLITS):
        action()
    return (time.process_time() - began) / SPLITS * 1e6


def _certificate(directory: Path) -> Path | None:
    """Make a certificate for this machine, with its key in its file; None without openssl."""
    if not shutil.which("openssl"):
        return None
    file = directory / "certificate.pem"
    made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    named = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(file), "-out", str(directory / "public.pem")]
    subprocess.run(["openssl", *made, *named, *files], check=True, capture_output=True)
    with file.open("ab") as both:
        both.write((directory / "public.pem").read_bytes())
    return file


if __name__ == "__main__":
    trio.run(main)
