"""Servers over streamable HTTP: headers, keys, rejections, a restarted server."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from mcp_servers.conftest import McpTestbed, environment
from support import mcp_server
from support.http_server import hanging, raw, serving, status
from tiller_daemon.config import McpServer
from tiller_daemon.mcp import http
from tiller_daemon.mcp.base import CallNotSent
from tiller_daemon.mcp.client import McpClient
from tiller_daemon.mcp.managed_server import ManagedServer
from tiller_daemon.tools.base import ToolFailure

CANARY = "canary-1234567890"

Start = Callable[..., "Peer"]


class Peer:
    """A server of the MCP package over HTTP, as a process of its own."""

    def __init__(self, port: int = 0, variables: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, mcp_server.__file__, str(port)],
            env={**os.environ, **(variables or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        self.url = self._process.stdout.readline().strip()
        self.port = int(self.url.split(":")[2].split("/")[0])

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


@pytest.fixture(scope="module")
def peer() -> Generator[Peer]:
    peer = Peer()
    yield peer
    peer.close()


@pytest.fixture
def start() -> Generator[Start]:
    with ExitStack() as stack:

        def started(port: int = 0, **variables: str) -> Peer:
            peer = Peer(port, variables)
            stack.callback(peer.close)
            return peer

        yield started


async def test_tools_are_listed_and_called_with_headers(testbed: McpTestbed, peer: Peer) -> None:
    await testbed.start(t=McpServer(url=peer.url, headers={"X-Team": "tools"}))
    await testbed.servers.ready()
    assert testbed.servers.summaries()[0].state == "up"
    assert "x-team: tools" in (await testbed.call("headers")).output
    await testbed.call("count", steps=3)
    assert testbed.output == "[1/3] step 1\n[2/3] step 2\n[3/3] step 3\n"
    assert len((await testbed.call("picture")).images) == 1


async def test_the_server_is_notified_of_a_cancelled_call_and_stays_usable(
    testbed: McpTestbed, peer: Peer
) -> None:
    await testbed.start(t=McpServer(url=peer.url))
    await testbed.servers.ready()
    note = testbed.directory / "note"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: testbed.call("hang", note=str(note)))
        await noted(note, "began")
        nursery.cancel_scope.cancel()
    await noted(note, "cancelled")
    assert (await testbed.call("pid")).output.isdigit()


async def test_a_changed_tool_list_is_noticed(testbed: McpTestbed, peer: Peer) -> None:
    await testbed.start(t=McpServer(url=peer.url))
    await testbed.servers.ready()
    await testbed.call("grow", name="more")
    with trio.fail_after(10):
        while "mcp__t__more" not in testbed.servers.tools():
            await trio.lowlevel.checkpoint()


async def test_a_question_reaches_the_user_of_the_call(testbed: McpTestbed, peer: Peer) -> None:
    await testbed.start(t=McpServer(url=peer.url))
    await testbed.servers.ready()
    testbed.say("small", "2", "yes", "")
    assert "accept: size='small' amount=2 gift=True" in (await testbed.call("order")).output


async def test_after_a_restart_of_the_server_the_call_is_repeated(
    testbed: McpTestbed, start: Start
) -> None:
    peer = start()
    await testbed.start(t=McpServer(url=peer.url))
    await testbed.servers.ready()
    before = (await testbed.call("pid")).output
    peer.close()
    start(peer.port)
    assert (await testbed.call("pid")).output != before


async def test_a_server_is_notified_of_the_end_of_its_session(
    testbed: McpTestbed, start: Start
) -> None:
    note = testbed.directory / "note"
    peer = start(GOODBYES=str(note))
    await testbed.start(t=McpServer(url=peer.url))
    await testbed.servers.ready()
    sent = dict(line.split(": ") for line in (await testbed.call("headers")).output.splitlines())
    await testbed.close()
    assert note.read_text() == f"{sent['mcp-session-id']} {sent['mcp-protocol-version']}"


async def test_a_server_that_is_slow_to_end_its_session_delays_little(
    testbed: McpTestbed, start: Start
) -> None:
    note = testbed.directory / "note"
    peer = start(GOODBYES=str(note), GOODBYE_S="1000")
    await testbed.start(t=McpServer(url=peer.url))
    await testbed.servers.ready()
    with trio.fail_after(2 * http.END_SESSION_S):
        await testbed.close()
    assert note.exists()


async def test_a_server_that_has_gone_is_not_notified(testbed: McpTestbed, start: Start) -> None:
    peer = start()
    await testbed.start(t=McpServer(url=peer.url))
    await testbed.servers.ready()
    peer.close()
    with trio.fail_after(http.END_SESSION_S):
        await testbed.close()


@pytest.mark.promise("G13")
async def test_a_key_that_is_not_accepted_is_got_once_more(
    testbed: McpTestbed, start: Start
) -> None:
    theirs, ours = testbed.directory / "theirs", testbed.directory / "ours"
    for file in (theirs, ours):
        file.write_text(CANARY)
        file.chmod(0o600)
    peer = start(KEY_FILE=str(theirs))
    await testbed.start(t=McpServer(url=peer.url, api_key_file=str(ours)))
    await testbed.servers.ready()
    assert testbed.servers.summaries()[0].state == "up"
    assert testbed.servers.secrets() == {CANARY}
    for file in (theirs, ours):
        file.write_text("another-1234567890")
    assert (await testbed.call("pid")).output.isdigit()
    theirs.write_text("yet-another-1234567890")
    with pytest.raises(ToolFailure, match=r"status 401\. Check the file .*ours"):
        await testbed.call("pid")


@pytest.mark.parametrize(
    ("settings", "expected", "state"),
    [
        (
            {},
            "If it requires a login, run `tiller mcp login t`",
            "needs_login",
        ),
        ({"api_key_env": "NOWHERE"}, "The key is expected in the variable NOWHERE", "failed"),
        ({"api_key_env": "MINE"}, "It answered with status 401. Check the variable MINE", "failed"),
        ({"headers": {"Authorization": f"Bearer {CANARY}"}}, "401. Check the header", "failed"),
    ],
)
@pytest.mark.promise("G13")
async def test_a_refusal_says_what_to_do(
    testbed: McpTestbed, settings: dict, expected: str, state: str
) -> None:
    async with serving(status(401, CANARY.encode())) as refusing:
        await testbed.start({"MINE": CANARY}, t=McpServer(url=refusing.base_url, **settings))
        await testbed.servers.ready()
    (summary,) = testbed.servers.summaries()
    assert summary.state == state
    assert expected in summary.problem
    assert CANARY not in summary.problem


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (status(500), "It answered with status 500"),
        (status(404), "It answered: Not Found"),
        (status(200, b"{}", Content_Type="text/html"), "It answered: Unexpected content type"),
        (status(200, b"[1", Content_Type="application/json"), "Failed to parse JSON response"),
        (
            status(302, Location="http://elsewhere.invalid/"),
            "Redirect to http://elsewhere.invalid/",
        ),
        (raw(b"what?"), "It can't be reached: "),
        (raw(b""), "It can't be reached: "),
        (hanging(), "It was not ready after 0.5 s"),
    ],
)
async def test_an_address_that_is_no_server_says_why(
    testbed: McpTestbed, answer, expected: str
) -> None:
    async with serving(answer) as odd:
        patience_s = 0.5 if "0.5 s" in expected else 30.0
        await testbed.start(t=McpServer(url=odd.base_url, start_timeout_s=patience_s))
        await testbed.servers.ready()
        (summary,) = testbed.servers.summaries()
        assert summary.state == "failed"
        assert expected in summary.problem


async def test_nobody_there_says_so(testbed: McpTestbed) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    await testbed.start(t=McpServer(url=f"http://127.0.0.1:{port}/mcp"))
    await testbed.servers.ready()
    assert "It can't be reached: " in testbed.servers.summaries()[0].problem


async def test_an_answer_without_end_is_not_read_to_its_end(
    testbed: McpTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "BODY_BYTES_MAX", 100_000)
    endless = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + b" " * 1_000_000
    async with serving(raw(endless)) as odd:
        await testbed.start(t=McpServer(url=odd.base_url))
        await testbed.servers.ready()
    assert "Its response is larger than 100000 bytes" in testbed.servers.summaries()[0].problem


async def noted(note: Path, words: str) -> None:
    with trio.fail_after(30):
        while not (note.exists() and note.read_text() == words):  # noqa: ASYNC110, ASYNC240
            await trio.sleep(0.01)


async def test_an_address_that_is_too_long_is_no_bug_of_the_daemon(testbed: McpTestbed) -> None:
    await testbed.start(t=McpServer(url="http://127.0.0.1:9/" + "a" * 70_000))
    await testbed.servers.ready(every=True)
    assert testbed.servers.problems() == {"t": "Its `url` can't be used: URL too long."}


async def test_a_call_after_the_end_of_a_connection_is_said_to_have_had_no_effect(
    testbed: McpTestbed, tmp_path: Path
) -> None:
    owner = ManagedServer("t", McpServer(url="http://h"), environment({}, tmp_path))
    transport = http.HttpTransport(owner.settings)
    client = McpClient(owner, transport.streams(), transport, "legacy")
    transport.ended.set()
    async with transport.client:
        with pytest.raises(CallNotSent, match=r"lost before this call\..*The call had no effect\."):
            await client.call("x", {}, testbed.environment())
        with pytest.raises(CallNotSent, match="lost before this call"):
            await client.resource("file:///x")
