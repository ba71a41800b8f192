"""Servers start when needed, are started again after they end, and never outlive the daemon."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from mcp_servers.conftest import TINY, McpTestbed
from support.tiny_mcp import ODD_USABLE
from tiller_daemon.config import McpServer
from tiller_daemon.mcp.listing import DESCRIPTION_CHARS_MAX
from tiller_daemon.session.calls.arguments import parameters
from tiller_daemon.tools.base import ToolFailure
from tiller_protocol.catalog import ServerSummary


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_a_server_is_started_when_needed_and_its_tools_are_offered(
    testbed: McpTestbed,
) -> None:
    await testbed.start(t=McpServer(command=TINY), off=McpServer(command=TINY, enabled=False))
    assert testbed.servers.tools() == {}
    assert testbed.servers.summaries() == (
        ServerSummary("t", "idle"),
        ServerSummary("off", "disabled"),
    )
    await testbed.servers.ready()
    assert testbed.servers.summaries()[0] == ServerSummary("t", "up", 11)
    tools = testbed.servers.tools()
    echo, hang = tools["mcp__t__echo"], tools["mcp__t__hang"]
    assert (echo.effect, hang.effect) == ("read", "write")
    assert (echo.repeatable({}), hang.repeatable({})) == (True, False)
    assert (echo.description, echo.server, echo.timeout_s) == ("Says it again.", "t", math.inf)
    assert isinstance(echo.arguments, dict)
    assert echo.arguments["required"] == ["text"]
    assert tools["mcp__t__pid"].description == "Which process"
    (requirement,) = echo.requirements({"text": "hi"}, Path("/"))
    assert (requirement.permission, requirement.subjects, requirement.always) == (
        "mcp",
        ("t/echo",),
        ("t/echo",),
    )
    assert '"text": "hi"' in requirement.detail
    assert (await testbed.call("echo", text="hi\u2028there")).output == "hi\u2028there"
    assert testbed.servers.tools()["mcp__t__echo"] is echo


async def test_servers_end_with_the_daemon(testbed: McpTestbed) -> None:
    await testbed.start_tiny()
    pid = int((await testbed.call("pid")).output)
    assert lives(pid)
    await testbed.close()
    assert not lives(pid)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("no-such-program",), "The program no-such-program was not found"),
        (
            (*TINY, "refuse"),
            "It ended with status 1. Its standard error ends with `no configuration found`.",
        ),
        (("true",), "It ended with status 0."),
        (("sh", "-c", "kill -9 $$"), "It was killed by SIGKILL"),
        pytest.param(
            ("sh", "-c", "kill -40 $$"),
            "It was killed by signal 40",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="real-time signals"),
        ),
        ((*TINY, "garbled"), "It sent an invalid MCP message: "),
        ((*TINY, "toolless"), "It answered: no such method"),
    ],
)
async def test_a_server_that_can_not_be_started_says_why(
    testbed: McpTestbed, command: tuple[str, ...], expected: str
) -> None:
    await testbed.start(t=McpServer(command=command))
    await testbed.servers.ready()
    assert testbed.servers.tools() == {}
    (summary,) = testbed.servers.summaries()
    assert (summary.state, summary.tools) == ("failed", 0)
    assert expected in summary.problem
    assert testbed.servers.problems() == {"t": summary.problem}


async def test_a_silent_server_fails_after_its_start_timeout(testbed: McpTestbed) -> None:
    await testbed.start_tiny("mute", start_timeout_s=0.2)
    (summary,) = testbed.servers.summaries()
    assert summary.state == "failed"
    assert summary.problem == "It was not ready after 0.2 s (`start_timeout_s`)."


async def test_a_failed_server_is_retried_later_without_waiting(
    testbed: McpTestbed,
) -> None:
    marker = testbed.directory / "good"
    script = f"test -e {marker} && exec {' '.join(TINY)}"
    await testbed.start(t=McpServer(command=("sh", "-c", script)))
    await testbed.servers.ready()
    assert testbed.servers.summaries()[0].state == "failed"
    marker.touch()
    await testbed.servers.ready()
    assert testbed.servers.summaries()[0].state == "failed"
    await testbed.servers.ready(every=True)
    assert testbed.servers.summaries()[0].state == "up"
    assert (await testbed.call("echo", text="well")).output == "well"


async def test_a_server_that_died_is_started_again_by_the_next_call(
    testbed: McpTestbed,
) -> None:
    await testbed.start_tiny()
    echo = testbed.servers.tools()["mcp__t__echo"]
    pid = int((await testbed.call("pid")).output)
    with pytest.raises(ToolFailure, match=r"killed by SIGKILL.*The next call connects again"):
        await testbed.call("die")
    while testbed.servers.summaries()[0].state != "ended":
        await trio.lowlevel.checkpoint()
    assert testbed.servers.problems() == {}
    assert testbed.servers.tools()["mcp__t__echo"] is echo
    assert int((await testbed.call("pid")).output) != pid


async def test_all_calls_that_a_dying_server_was_in_fail_and_the_next_ones_share_a_start(
    testbed: McpTestbed,
) -> None:
    await testbed.start_tiny()
    failed: list[str] = []

    async def call(name: str) -> None:
        try:
            await testbed.call(name)
        except ToolFailure as failure:
            failed.append(str(failure))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(call, "hang")
        await testbed.wait_for_output("[1]\n[1]\n[1]\n")
        nursery.start_soon(call, "die")
    assert len(failed) == 4
    assert all("It was killed by SIGKILL" in one for one in failed)
    pids: set[str] = set()

    async def note_pid() -> None:
        pids.add((await testbed.call("pid")).output)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(note_pid)
    assert len(pids) == 1


async def test_a_call_over_its_time_limit_fails_and_the_server_is_notified(
    testbed: McpTestbed,
) -> None:
    await testbed.start_tiny(timeout_s=1.0)
    with pytest.raises(ToolFailure, match=r"t/hang was stopped after its time limit of 1 s"):
        await testbed.call("hang")
    assert (await testbed.call("cancelled")).output == "1"


async def test_the_server_is_notified_of_a_cancelled_call_and_stays_usable(
    testbed: McpTestbed,
) -> None:
    await testbed.start_tiny()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(testbed.call, "hang")
        await testbed.wait_for_output("[1]\n")
        nursery.cancel_scope.cancel()
    with trio.fail_after(10):
        while (await testbed.call("cancelled")).output != "1":
            pass


async def test_an_interrupt_does_not_wait_for_a_server_that_does_nothing(
    testbed: McpTestbed,
) -> None:
    await testbed.start_tiny()
    pid = int((await testbed.call("pid")).output)
    with trio.move_on_after(0.2):
        await testbed.call("stop")
    for _ in range(100):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(testbed.call, "echo")
                await trio.testing.wait_all_tasks_blocked(0.001)
                scope.cancel()
    await testbed.close()
    assert not lives(pid)


async def test_a_changed_tool_list_applies_from_then_on(testbed: McpTestbed) -> None:
    await testbed.start_tiny()
    before = testbed.servers.tools()
    await testbed.call("grow", text="extra")
    with trio.fail_after(10):
        while "mcp__t__extra" not in testbed.servers.tools():
            await trio.lowlevel.checkpoint()
    assert "mcp__t__extra" not in before
    assert (await testbed.call("extra")).output == "I am extra"
    assert (await before["mcp__t__echo"].run({"text": "x"}, testbed.environment())).output == "x"


async def test_an_endless_tool_list_is_cut(testbed: McpTestbed) -> None:
    await testbed.start_tiny("endless")
    assert testbed.servers.summaries()[0] == ServerSummary("t", "up", 256)


async def test_tools_that_no_provider_takes_are_left_out_or_renamed(testbed: McpTestbed) -> None:
    await testbed.start_tiny("odd")
    tools = testbed.servers.tools()
    assert "mcp__t__read_file" in tools
    assert len([name for name in tools if name.startswith("mcp__t__read_file_")]) == 1
    assert all(len(name) <= 64 for name in tools)
    assert [name for name in tools if "bad" in name or "task" in name] == []
    assert len(tools["mcp__t__long"].description) == DESCRIPTION_CHARS_MAX
    assert testbed.servers.summaries()[0].tools == 15 + 1 + len(ODD_USABLE)


async def test_one_odd_tool_takes_no_other_tool_away(testbed: McpTestbed) -> None:
    await testbed.start_tiny("odd")
    tools = testbed.servers.tools()
    assert {name.removeprefix("mcp__t__") for name in tools} >= {"echo", "wrong", *ODD_USABLE}
    assert "mcp__t__listing" not in tools
    (left_out,) = testbed.servers.left_out().values()
    assert [reason.partition(":")[0] for reason in left_out] == ["bad", "task", "listing"]
    assert "its type is 'array' instead of 'object'" in left_out[-1]
    schemas = {name.removeprefix("mcp__t__"): parameters(tool) for name, tool in tools.items()}
    assert schemas["choice"]["properties"].keys() == {"a", "b"}
    assert schemas["required_inside"]["properties"] == {"coin": {"type": "string"}}
    assert schemas["dollar"]["properties"]["rows"] == {"type": "array", "items": {}}


async def test_a_server_gets_its_own_names_of_properties(testbed: McpTestbed) -> None:
    await testbed.start_tiny("odd")
    schema = parameters(testbed.servers.tools()["mcp__t__dollar"])
    assert list(schema["properties"]) == ["_filter", "rows", "x" * 64]
    given = {"_filter": "f", "rows": [{"_filter": 1}], "x" * 64: "y"}
    got = json.loads((await testbed.call("dollar", **given)).output)
    assert got == {"$filter": "f", "rows": [{"$filter": 1}], "x" * 80: "y"}


async def test_no_schema_of_a_server_keeps_the_daemon_busy(testbed: McpTestbed) -> None:
    await testbed.start_tiny("hostile")
    assert testbed.servers.summaries()[0] == ServerSummary("t", "up", 12)
    offered = testbed.servers.tools()
    (left_out,) = testbed.servers.left_out().values()
    assert [reason.split(":")[0] for reason in left_out] == ["laughs", "all from huge on"]
    assert "mcp__t__heavy" in offered
    assert not [name for name in offered if "laughs" in name or "huge" in name or "behind" in name]
    assert (await testbed.call("heavy")).output.startswith("heavy")


async def test_a_server_without_the_legacy_handshake_gets_the_new_one(
    testbed: McpTestbed,
) -> None:
    await testbed.start_tiny("modern")
    assert testbed.servers.summaries()[0] == ServerSummary("t", "up", 11)
    assert (await testbed.call("echo", text="new")).output == "new"


async def test_other_output_is_logged_up_to_a_limit(
    testbed: McpTestbed,
) -> None:
    with capture_logs() as logged:
        await testbed.start_tiny("chatty")
        assert (await testbed.call("echo", text="still here")).output == "still here"
        with trio.fail_after(20):
            # Its complaints come by another pipe than its answers, and so perhaps later.
            while sum(entry["event"] == "mcp_server_output" for entry in logged) < 501:
                await trio.lowlevel.checkpoint()
        await testbed.close()
    expected = [entry["text"] for entry in logged if entry["event"] == "mcp_server_output"]
    assert "Welcome!" in expected
    assert "a complaint" in expected
    assert "… further output is not logged" in expected
    assert len(expected) == 501
    assert max(map(len, expected)) <= 500


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (r'{"jsonrpc": "2.0", "id": ID, "result": {"content": "no"}}', "an invalid result"),
        (r'{"jsonrpc": "2.0", "id": ID, "result": 7}', "time limit"),
        (r'{"jsonrpc": "2.0", "id": ID, "error": {"code": 1, "message": "N\ud800"}}', "N?"),
        ("[" * 100_000, "time limit"),
    ],
)
async def test_an_invalid_answer_fails_only_its_call(
    testbed: McpTestbed, line: str, expected: str
) -> None:
    await testbed.start_tiny(timeout_s=1.0)
    with pytest.raises(ToolFailure) as failure:
        await testbed.call("raw", text=line)
    assert expected in str(failure.value)
    assert (await testbed.call("echo", text="still here")).output == "still here"


async def test_an_error_of_the_server_is_quoted(testbed: McpTestbed) -> None:
    await testbed.start_tiny()
    with pytest.raises(ToolFailure, match=r"t/refuse failed\. It answered: Not today\."):
        await testbed.call("refuse")


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc": "2.0", "id": ID, "result": {"content": [{"type": "text", "text": "HUGE"}]}}',
        '{"result":{"content":[{"type":"text","text":"HUGE"}],"id":0},"jsonrpc":"2.0","id":ID}',
    ],
)
async def test_a_result_that_is_too_long_fails_only_its_call(
    testbed: McpTestbed, line: str
) -> None:
    """The server goes on with the calls of other sessions, wherever it writes the call's id."""
    await testbed.start_tiny()
    pid = (await testbed.call("pid")).output
    with pytest.raises(ToolFailure, match="a message of more than 33554432 bytes"):
        await testbed.call("oversized", text=line)
    assert (await testbed.call("pid")).output == pid


async def test_a_message_without_end_ends_the_server_in_bounded_memory(testbed: McpTestbed) -> None:
    await testbed.start_tiny()
    with pytest.raises(ToolFailure, match="a message of more than 33554432 bytes"):
        await testbed.call("flood")
    assert (await testbed.call("echo", text="again")).output == "again"


def test_the_mcp_package_is_imported_with_the_first_server_only() -> None:
    code = (
        "import sys, tiller_daemon.app; "
        "sys.exit(any(name.partition('.')[0] in ('mcp', 'mcp_types') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
