#!/usr/bin/env python3
"""Measures what a streamed delta costs on each wire: our adapter, the provider's package, `plain`.

    .venv/bin/python scripts/bench/models.py [--rounds 5] [--deltas 5000] [--only responses]

`plain` is the minimum: the same HTTP client, with its stream split at blank lines and decoded by
msgspec into the text of a delta, without error handling. The aim is 1.3 times `plain`. All clients
take turns in one run; the server is a separate process. At full speed many deltas come in one read,
which no model does; one by one they come as from a fast model, each in its own read.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import trio
from msgspec import Struct
from table import Row, print_rows

from tiller_daemon.config import Provider
from tiller_daemon.models.base import Finished, ModelRequest, TextDelta
from tiller_daemon.models.dialects.anthropic_messages.adapter import AnthropicMessages
from tiller_daemon.models.dialects.openai_chat.adapter import OpenAIChat
from tiller_daemon.models.dialects.openai_responses.adapter import OpenAIResponses
from tiller_daemon.models.http.client import HttpClient
from tiller_protocol.ids import ItemId
from tiller_protocol.items import UserMessage

AIM = 1.3
WORD = " word"
PACES_US = {"at full speed": 0, "one by one": 300}

Client = Callable[[str], Awaitable[int]]
"""Asks the server at a base URL and returns how many characters it sent."""

REQUEST = ModelRequest("m", "", (UserMessage(ItemId("u"), "hi", "start"),), (), "s", 0)


class ChatDelta(Struct):
    """The delta of a Chat Completions choice."""

    content: str = ""


class ChatChoice(Struct):
    """A choice in a Chat Completions event."""

    delta: ChatDelta


class ChatFrame(Struct):
    """An event of Chat Completions."""

    choices: list[ChatChoice]


class ResponsesFrame(Struct):
    """An event of Responses."""

    type: str
    delta: str = ""


class MessagesDelta(Struct):
    """The delta in a Messages event."""

    text: str = ""


class MessagesFrame(Struct):
    """An event of Messages."""

    type: str
    delta: MessagesDelta | None = None


def plain(path: str, decode: Callable[[bytes], Any], text_of: Callable[[Any], str]) -> Client:
    """Make a client that only splits and decodes."""

    async def ask(base_url: str) -> int:
        http = HttpClient("bench", Provider("openai_chat", base_url=base_url))
        chars, rest = 0, b""
        async with http.stream(path, b"{}") as chunks:
            async for chunk in chunks:
                *events, rest = (rest + chunk).split(b"\n\n")
                for event in events:
                    data = event[event.index(b"data: ") + 6 :]
                    if data != b"[DONE]":
                        chars += len(text_of(decode(data)))
        await http.aclose()
        return chars

    return ask


def adapter(make: Callable[[HttpClient], Any]) -> Client:
    """Make a client that uses our adapter."""

    async def ask(base_url: str) -> int:
        http = HttpClient("bench", Provider("openai_chat", base_url=base_url))
        chars, event = 0, None
        async with aclosing(make(http).stream(REQUEST)) as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    chars += len(event.text)
        assert isinstance(event, Finished)
        await http.aclose()
        return chars

    return ask


async def openai_chat_package(base_url: str) -> int:
    """Stream Chat Completions with OpenAI's package."""
    import openai

    async with openai.AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0) as client:
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        return sum([len(chunk.choices[0].delta.content or "") async for chunk in stream])


async def openai_responses_package(base_url: str) -> int:
    """Stream Responses with OpenAI's package."""
    import openai

    async with openai.AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0) as client:
        stream: AsyncIterator[Any] = await client.responses.create(
            model="m", input="hi", stream=True
        )
        return sum(
            [
                len(event.delta)
                async for event in stream
                if event.type == "response.output_text.delta"
            ]
        )


async def anthropic_package(base_url: str) -> int:
    """Stream Messages with Anthropic's package, which adds `/v1` itself."""
    import anthropic

    async with anthropic.AsyncAnthropic(base_url=base_url, api_key="k", max_retries=0) as client:
        stream: AsyncIterator[Any] = await client.messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}], stream=True
        )
        return sum(
            [
                len(event.delta.text)
                async for event in stream
                if event.type == "content_block_delta" and event.delta.type == "text_delta"
            ]
        )


def _chat_text(frame: ChatFrame) -> str:
    return frame.choices[0].delta.content


def _responses_text(frame: ResponsesFrame) -> str:
    return frame.delta


def _messages_text(frame: MessagesFrame) -> str:
    return frame.delta.text if frame.delta else ""


WIRES: dict[str, dict[str, Client]] = {
    "chat": {
        "plain": plain("/chat/completions", msgspec.json.Decoder(ChatFrame).decode, _chat_text),
        "ours": adapter(OpenAIChat),
        "package": openai_chat_package,
    },
    "responses": {
        "plain": plain("/responses", msgspec.json.Decoder(ResponsesFrame).decode, _responses_text),
        "ours": adapter(OpenAIResponses),
        "package": openai_responses_package,
    },
    "messages": {
        "plain": plain("/v1/messages", msgspec.json.Decoder(MessagesFrame).decode, _messages_text),
        "ours": adapter(AnthropicMessages),
        "package": anthropic_package,
    },
}


def main() -> None:
    """Measure and print one table for each pace."""
    parser = argparse.ArgumentParser(description="Measure what a streamed delta costs.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--deltas", type=int, default=5_000)
    parser.add_argument("--only", help="measure only this wire")
    arguments = parser.parse_args()
    server = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("stream_server.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin
    assert server.stdout
    address = f"http://127.0.0.1:{int(server.stdout.readline())}"
    clients = {
        (wire, name): client
        for wire, named in WIRES.items()
        if arguments.only in (None, wire)
        for name, client in named.items()
    }
    for pace, pace_us in PACES_US.items():
        base_url = f"{address}/{arguments.deltas}/{pace_us}"
        _print(pace, trio.run(_measure, clients, base_url, arguments.deltas, arguments.rounds))
    server.stdin.close()
    server.wait()


async def _measure(
    clients: dict[tuple[str, str], Client], base_url: str, deltas: int, rounds: int
) -> dict[tuple[str, str], tuple[float, ...]]:
    """Return each client's cost in each round but the first; the clients take turns."""
    costs: dict[tuple[str, str], list[float]] = {key: [] for key in clients}
    for _ in range(rounds + 1):
        for key, client in list(clients.items()):
            try:
                costs[key].append(await _cost_us(client, base_url, deltas))
            except ImportError as error:
                print(f"{' '.join(key)}: left out ({error})")
                del clients[key]
    return {key: tuple(values[1:]) for key, values in costs.items() if values}


async def _cost_us(client: Client, base_url: str, deltas: int) -> float:
    began = time.process_time()
    chars = await client(base_url)
    spent = time.process_time() - began
    assert chars == deltas * len(WORD), chars
    return spent / deltas * 1e6


def _print(pace: str, costs: dict[tuple[str, str], tuple[float, ...]]) -> None:
    rows = [Row(f"{wire}, {name}, {pace}", "us", costs[wire, name]) for wire, name in costs]
    print_rows(rows)
    for wire in WIRES:
        if (wire, "ours") in costs:
            least = statistics.median(costs[wire, "plain"])
            times = statistics.median(costs[wire, "ours"]) / least
            mark = "" if times <= AIM else " !"
            print(f"{wire}, {pace}: {times:.2f} x plain (aim {AIM}){mark}")


if __name__ == "__main__":
    main()
