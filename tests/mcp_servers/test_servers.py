"""The lives of servers: started at need, found out when they have gone, never left behind."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from mcp_servers.conftest import TINY, Room
from tiller_daemon.config import McpServer
from tiller_daemon.tools.base import ToolFailure
from tiller_protocol.answers import ServerSummary


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_a_server_is_started_at_need_and_its_tools_are_offered(room: Room) -> None:
    await room.start(t=McpServer(command=TINY), off=McpServer(command=TINY, enabled=False))
    assert room.servers.tools() == {}
    assert room.servers.summaries() == (
        ServerSummary("t", "idle"),
        ServerSummary("off", "disabled"),
    )
    await room.servers.ready()
    assert room.servers.summaries()[0] == ServerSummary("t", "up", 10)
    tools = room.servers.tools()
    echo, hang = tools["mcp__t__echo"], tools["mcp__t__hang"]
    assert (echo.effect, hang.effect) == ("read", "write")
    assert (echo.repeatable({}), hang.repeatable({})) == (True, False)
    assert (echo.description, echo.server, echo.timeout_s) == ("Says it again.", "t", math.inf)
    assert echo.schema is not None
    assert echo.schema["required"] == ["text"]
    assert tools["mcp__t__pid"].description == "Which process"
    (need,) = echo.requirements({"text": "hi"}, Path("/"))
    assert (need.permission, need.subjects, need.always) == (
        "mcp",
        ("t/echo",),
        ("t/echo",),
    )
    assert '"text": "hi"' in need.detail
    assert (await room.call("echo", text="hi\u2028there")).output == "hi\u2028there"
    assert room.servers.tools()["mcp__t__echo"] is echo


async def test_servers_end_with_the_daemon(room: Room) -> None:
    await room.start_tiny()
    pid = int((await room.call("pid")).output)
    assert lives(pid)
    await room.close()
    assert not lives(pid)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("no-such-program",), "The program no-such-program is not found"),
        ((*TINY, "refuse"), "it ended with status 1; its last words were: no configuration found"),
        (("true",), "it ended with status 0"),
        (("sh", "-c", "kill -9 $$"), "it was killed by SIGKILL"),
        ((*TINY, "garbled"), "it does not speak MCP as it should: "),
        ((*TINY, "toolless"), "it answered: no such method"),
    ],
)
async def test_a_server_that_can_not_be_started_says_why(
    room: Room, command: tuple[str, ...], said: str
) -> None:
    await room.start(t=McpServer(command=command))
    await room.servers.ready()
    assert room.servers.tools() == {}
    (summary,) = room.servers.summaries()
    assert (summary.state, summary.tools) == ("failed", 0)
    assert said in summary.problem
    assert room.servers.problems() == {"t": summary.problem}


async def test_a_server_that_says_nothing_has_its_time_and_no_more(room: Room) -> None:
    await room.start_tiny("mute", start_timeout_s=0.2)
    (summary,) = room.servers.summaries()
    assert summary.state == "failed"
    assert summary.problem == "it was not ready after 0.2 s (`start_timeout_s`)"


async def test_a_failed_server_is_tried_again_later_and_nobody_waits_for_it(room: Room) -> None:
    marker = room.directory / "good"
    script = f"test -e {marker} && exec {' '.join(TINY)}"
    await room.start(t=McpServer(command=("sh", "-c", script)))
    await room.servers.ready()
    assert room.servers.summaries()[0].state == "failed"
    marker.touch()
    await room.servers.ready()
    assert room.servers.summaries()[0].state == "failed"
    await room.servers.ready(every=True)
    assert room.servers.summaries()[0].state == "up"
    assert (await room.call("echo", text="well")).output == "well"


async def test_a_server_that_died_at_rest_is_started_again_by_the_next_call(room: Room) -> None:
    await room.start_tiny()
    echo = room.servers.tools()["mcp__t__echo"]
    pid = int((await room.call("pid")).output)
    with pytest.raises(ToolFailure, match=r"it was killed by SIGKILL.*started again for the next"):
        await room.call("die")
    while room.servers.summaries()[0].state != "ended":
        await trio.lowlevel.checkpoint()
    assert room.servers.problems() == {}
    assert room.servers.tools()["mcp__t__echo"] is echo
    assert int((await room.call("pid")).output) != pid


async def test_all_calls_that_a_dying_server_was_in_fail_and_the_next_ones_share_a_start(
    room: Room,
) -> None:
    await room.start_tiny()
    failed: list[str] = []

    async def call(name: str) -> None:
        try:
            await room.call(name)
        except ToolFailure as failure:
            failed.append(str(failure))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(call, "hang")
        await room.until_live("[1]\n[1]\n[1]\n")
        nursery.start_soon(call, "die")
    assert len(failed) == 4
    assert all("it was killed by SIGKILL" in one for one in failed)
    pids: set[str] = set()

    async def note_pid() -> None:
        pids.add((await room.call("pid")).output)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(note_pid)
    assert len(pids) == 1


async def test_a_call_has_its_time_limit_and_the_server_is_told(room: Room) -> None:
    await room.start_tiny(timeout_s=0.3)
    with pytest.raises(ToolFailure, match=r"t/hang was stopped after its time limit of 0\.3 s"):
        await room.call("hang")
    assert (await room.call("cancelled")).output == "1"


async def test_a_cancelled_call_is_told_to_the_server_and_leaves_it_usable(room: Room) -> None:
    await room.start_tiny()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(room.call, "hang")
        await room.until_live("[1]\n")
        nursery.cancel_scope.cancel()
    with trio.fail_after(10):
        while (await room.call("cancelled")).output != "1":
            pass


async def test_an_interrupt_does_not_wait_for_a_server_that_does_nothing(room: Room) -> None:
    await room.start_tiny()
    pid = int((await room.call("pid")).output)
    with trio.move_on_after(0.2):
        await room.call("stop")
    for _ in range(100):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(room.call, "echo")
                await trio.testing.wait_all_tasks_blocked(0.001)
                scope.cancel()
    await room.close()
    assert not lives(pid)


async def test_a_change_of_its_list_counts_from_then_on(room: Room) -> None:
    await room.start_tiny()
    before = room.servers.tools()
    await room.call("grow", text="extra")
    with trio.fail_after(10):
        while "mcp__t__extra" not in room.servers.tools():
            await trio.lowlevel.checkpoint()
    assert "mcp__t__extra" not in before
    assert (await room.call("extra")).output == "I am extra"
    assert (await before["mcp__t__echo"].run({"text": "x"}, room.environment())).output == "x"


async def test_a_list_that_never_ends_is_cut(room: Room) -> None:
    await room.start_tiny("endless")
    assert room.servers.summaries()[0] == ServerSummary("t", "up", 256)


async def test_tools_that_no_provider_takes_are_left_out_or_renamed(room: Room) -> None:
    await room.start_tiny("odd")
    tools = room.servers.tools()
    assert "mcp__t__read_file" in tools
    assert len([name for name in tools if name.startswith("mcp__t__read_file_")]) == 1
    assert all(len(name) <= 64 for name in tools)
    assert [name for name in tools if "bad" in name or "task" in name] == []
    assert len(tools["mcp__t__long"].description) == 4_000
    assert room.servers.summaries()[0].tools == 14


async def test_a_server_that_knows_no_old_handshake_is_greeted_in_the_new_way(room: Room) -> None:
    await room.start_tiny("modern")
    assert room.servers.summaries()[0] == ServerSummary("t", "up", 10)
    assert (await room.call("echo", text="new")).output == "new"


async def test_what_is_no_message_goes_into_the_log_up_to_a_bound(
    room: Room,
) -> None:
    with capture_logs() as logged:
        await room.start_tiny("chatty")
        assert (await room.call("echo", text="still here")).output == "still here"
        with trio.fail_after(20):
            # Its complaints come by another pipe than its answers, and so perhaps later.
            while sum(entry["event"] == "mcp_server_said" for entry in logged) < 501:
                await trio.lowlevel.checkpoint()
        await room.close()
    said = [entry["said"] for entry in logged if entry["event"] == "mcp_server_said"]
    assert "Welcome!" in said
    assert "a complaint" in said
    assert "… more, which is not logged" in said
    assert len(said) == 501
    assert max(map(len, said)) <= 500


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (r'{"jsonrpc": "2.0", "id": ID, "result": {"content": "no"}}', "that is no result"),
        (r'{"jsonrpc": "2.0", "id": ID, "result": 7}', "time limit"),
        (r'{"jsonrpc": "2.0", "id": ID, "error": {"code": 1, "message": "N\ud800"}}', "N?"),
        ("[" * 100_000, "time limit"),
    ],
)
async def test_an_answer_that_is_none_fails_the_call_alone(
    room: Room, line: str, said: str
) -> None:
    await room.start_tiny(timeout_s=0.5)
    with pytest.raises(ToolFailure) as failure:
        await room.call("raw", text=line)
    assert said in str(failure.value)
    assert (await room.call("echo", text="still here")).output == "still here"


async def test_an_error_of_the_server_is_told_in_its_words(room: Room) -> None:
    await room.start_tiny()
    with pytest.raises(ToolFailure, match=r"t/refuse failed: it answered: Not today\."):
        await room.call("refuse")


async def test_a_message_without_end_ends_the_server_in_bounded_memory(room: Room) -> None:
    await room.start_tiny()
    with pytest.raises(ToolFailure, match="a message of more than 33554432 bytes"):
        await room.call("flood")
    assert (await room.call("echo", text="again")).output == "again"


def test_the_mcp_package_is_imported_with_the_first_server_only() -> None:
    code = (
        "import sys, tiller_daemon.app; "
        "sys.exit(any(name.partition('.')[0] in ('mcp', 'mcp_types') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
