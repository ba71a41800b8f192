"""MCP servers over the wire: their tools among ours, their lives and deaths, and none left."""

import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from e2e.gates import Gate
from e2e.words import calls, calls_in, text
from support import mcp_server
from support.daemon import CONFIG, Daemon
from support.frontend import Frontend
from tiller_daemon.models.scripted import CallPart
from tiller_protocol.events import Event, ItemCompleted, ToolCallUpdated
from tiller_protocol.items import ToolCall

BENCH = f"""
[mcp.bench]
command = ["{sys.executable}", "{mcp_server.__file__}"]
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Generator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("d"), CONFIG + BENCH) as daemon:
        yield daemon


def bench(tool: str, call_id: str = "", **arguments: object) -> CallPart:
    """A call of a tool of the server for tests."""
    return CallPart(f"mcp__bench__{tool}", arguments=arguments, call_id=call_id)


def at(gate: Gate) -> str:
    """Where a call of the server waits for this gate."""
    return str(gate.path)


def course(events: list[Event]) -> list[tuple[str, str]]:
    """What became of each call, in order: its id by the provider, and its state."""
    ids = {
        event.body.item.id: event.body.item.call_id
        for event in events
        if isinstance(event.body, ItemCompleted) and isinstance(event.body.item, ToolCall)
    }
    updates = [event.body for event in events if isinstance(event.body, ToolCallUpdated)]
    return [(ids[update.item_id], update.state) for update in updates]


async def test_b35_tools_that_only_read_run_beside_each_other_and_others_alone(
    frontend: Frontend, workspace: Path
) -> None:
    """A tool with readOnlyHint runs in parallel; one without runs alone."""
    one, two, three, four = (Gate(workspace, name) for name in "1234")
    session_id = await frontend.session(
        workspace,
        calls(
            bench("look", "a", gate=at(one)),
            bench("look", "b", gate=at(two)),
            bench("change", "c", gate=at(three)),
            bench("look", "d", gate=at(four)),
        ),
        text("done"),
    )
    await frontend.say(session_id)
    await one.reached()
    await two.reached()
    two.open("second")
    one.open("first")
    await three.pass_one("third")
    await four.pass_one("fourth")
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    found = calls_in(frontend.requests(session_id)[1].items)
    assert [call.output for call in found] == ["first", "second", "third", "fourth"]
    assert [call.effect for call in found] == ["read", "read", "write", "read"]
    order = course(frontend.events(session_id))
    alone = order.index(("c", "running"))
    assert {("a", "completed"), ("b", "completed")} <= set(order[:alone])
    assert order[alone:] == [
        ("c", "running"),
        ("c", "completed"),
        ("d", "running"),
        ("d", "completed"),
    ]


async def test_b35_a_server_that_dies_in_mid_call_yields_an_error_and_is_started_again(
    frontend: Frontend, workspace: Path
) -> None:
    """A server that dies in mid-call yields an error result and is restarted for the next call."""
    gate = Gate(workspace)
    session_id = await frontend.session(
        workspace,
        calls(bench("pid"), bench("die", status=7)),
        calls(bench("look", gate=at(gate)), bench("pid")),
        text("done"),
    )
    await frontend.say(session_id)
    await gate.pass_one("lives")
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    before, died, looked, after = calls_in(frontend.requests(session_id)[-1].items)
    assert (died.state, died.error_kind) == ("error", "failed")
    assert "bench was lost before it had answered: it ended with status 7" in died.output
    assert "about to die" in died.output
    assert "started again for the next call" in died.output
    assert (looked.state, looked.output) == ("completed", "lives")
    assert before.output != after.output
