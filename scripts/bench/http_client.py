#!/usr/bin/env python3
"""What an answer of a model server costs this process: CPU of the HTTP client and the decoder.

    .venv/bin/python scripts/bench/http_client.py

A small answer, one of a thousand pieces at full speed, and one of a hundred pieces a millisecond
apart, each over a connection that is kept. The server is a process of its own. Prints microseconds
of CPU: the median of some rounds, and the best.
"""

import statistics
import time
from contextlib import aclosing

import msgspec
import trio
from measured import Model
from model_server import MARK, Play

from tiller_daemon.config import Provider
from tiller_daemon.models.base import ModelRequest, ToolSpec
from tiller_daemon.models.dialects.openai_chat.adapter import OpenAIChat
from tiller_daemon.models.http.client import HttpClient
from tiller_protocol.ids import ItemId
from tiller_protocol.items import UserMessage

ROUNDS = 7
PLAYS = (
    ("a small answer", Play("small", deltas=3), 20, 1),
    ("a delta, 1,000 at full speed", Play("fast", deltas=1_000), 3, 1_000),
    ("a delta, one every millisecond", Play("paced", deltas=100, pace_ms=1), 1, 100),
)
"""Name, what is played, requests in a round, and by how much their CPU is divided."""


async def main() -> None:
    """Measure each play."""
    with Model() as server:
        http = HttpClient("bench", Provider("openai_chat", base_url=f"{server.url}/v1"))
        model = OpenAIChat(http)
        for name, play, requests, parts in PLAYS:
            costs = [await _cost_us(model, play, requests) / parts for _ in range(ROUNDS + 1)][1:]
            print(f"{name:<32}{statistics.median(costs):8.1f}{min(costs):8.1f} us")
        await http.aclose()


async def _cost_us(model: OpenAIChat, play: Play, requests: int) -> float:
    text = MARK + msgspec.json.encode(play).decode()
    tools = (ToolSpec("ls", "Lists.", {"type": "object"}),)
    asked = ModelRequest("m", "", (UserMessage(ItemId("u"), text, "start"),), tools, "s", 0)
    began = time.process_time()
    for _ in range(requests):
        async with aclosing(model.stream(asked)) as stream:
            async for _ in stream:
                pass
    return (time.process_time() - began) / requests * 1e6


if __name__ == "__main__":
    trio.run(main)
