"""The Synadia Agent Protocol, with the client SDK of its makers."""

import asyncio
from collections.abc import Generator

import nats
import pytest
from synadia_ai.agents import Agents, Query, ResponseChunk

from e2e.words import bash, calls, text
from support.fleet import Broker, Host, fleet_of

ASKING = """\
model = "scripted/main"
[providers.scripted]
api = "scripted"
scripts = "../scripts"
record = "../requests.jsonl"
[sandbox]
mode = "full_access"
[[permissions]]
permission = "bash"
pattern = "*"
action = "ask"
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Broker, Host]]:
    directory = tmp_path_factory.mktemp("f")
    work = directory / "work"
    work.mkdir()
    with fleet_of(directory, 1, f'workspace = "{work}"', ASKING) as (broker, (host,)):
        yield broker, host


async def prompt(broker: Broker, words: str, reply: str) -> tuple[str, list[str]]:
    """Find the agent and prompt it; return its text and its queries."""
    nc = await nats.connect(f"nats://127.0.0.1:{broker.port}")
    try:
        (agent,) = await Agents(nc=nc).discover(timeout=2.0)
        said, asked = "", list[str]()
        async for chunk in agent.prompt(words):
            if isinstance(chunk, ResponseChunk):
                said += chunk.text
            elif isinstance(chunk, Query):
                asked.append(chunk.prompt)
                await chunk.reply(reply)
        return said, asked
    finally:
        await nc.close()


def test_a_client_of_the_protocol_finds_the_agent_and_runs_prompts(
    fleet: tuple[Broker, Host],
) -> None:
    broker, host = fleet
    steps = text("Hello there.", 3), calls(bash("echo approved > made")), text("Made.")
    host.daemon.play("main", *steps)
    assert asyncio.run(prompt(broker, "Hello", "no")) == ("Hello there.", [])
    said, asked = asyncio.run(prompt(broker, "Make it", "yes"))
    assert said == "Made."
    assert "echo approved > made" in asked[0]
    assert (host.daemon.home.parent / "work" / "made").read_text() == "approved\n"
