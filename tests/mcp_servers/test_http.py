"""Servers that are reached by streamable HTTP: headers, keys, refusals, a server started anew."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from mcp_servers.conftest import Room
from support import mcp_server
from support.http_server import hanging, raw, serving, status
from tiller_daemon.config import McpServer
from tiller_daemon.mcp import http
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


async def test_tools_are_listed_and_called_with_headers(room: Room, peer: Peer) -> None:
    await room.start(t=McpServer(url=peer.url, headers={"X-Team": "tools"}))
    await room.servers.ready()
    assert room.servers.summaries()[0].state == "up"
    assert "x-team: tools" in (await room.call("headers")).output
    await room.call("count", steps=3)
    assert room.live == "[1/3] step 1\n[2/3] step 2\n[3/3] step 3\n"
    assert len((await room.call("picture")).images) == 1


async def test_a_cancelled_call_is_told_to_the_server_and_leaves_it_usable(
    room: Room, peer: Peer
) -> None:
    await room.start(t=McpServer(url=peer.url))
    await room.servers.ready()
    note = room.directory / "note"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: room.call("hang", note=str(note)))
        await noted(note, "began")
        nursery.cancel_scope.cancel()
    await noted(note, "cancelled")
    assert (await room.call("pid")).output.isdigit()


async def test_a_change_of_its_list_is_heard(room: Room, peer: Peer) -> None:
    await room.start(t=McpServer(url=peer.url))
    await room.servers.ready()
    await room.call("grow", name="more")
    with trio.fail_after(10):
        while "mcp__t__more" not in room.servers.tools():
            await trio.lowlevel.checkpoint()


async def test_a_question_reaches_the_user_of_the_call(room: Room, peer: Peer) -> None:
    await room.start(t=McpServer(url=peer.url))
    await room.servers.ready()
    room.say("small", "2", "yes", "")
    assert "accept: size='small' amount=2 gift=True" in (await room.call("order")).output


async def test_a_server_that_was_started_anew_is_greeted_again_and_the_call_made(
    room: Room, start: Start
) -> None:
    peer = start()
    await room.start(t=McpServer(url=peer.url))
    await room.servers.ready()
    before = (await room.call("pid")).output
    peer.close()
    start(peer.port)
    assert (await room.call("pid")).output != before


async def test_a_server_is_told_that_its_session_is_over(room: Room, start: Start) -> None:
    note = room.directory / "note"
    peer = start(GOODBYES=str(note))
    await room.start(t=McpServer(url=peer.url))
    await room.servers.ready()
    sent = dict(line.split(": ") for line in (await room.call("headers")).output.splitlines())
    await room.close()
    assert note.read_text() == f"{sent['mcp-session-id']} {sent['mcp-protocol-version']}"


async def test_a_server_that_is_slow_to_hear_of_its_end_keeps_nobody_for_long(
    room: Room, start: Start
) -> None:
    note = room.directory / "note"
    peer = start(GOODBYES=str(note), GOODBYE_S="1000")
    await room.start(t=McpServer(url=peer.url))
    await room.servers.ready()
    with trio.fail_after(2 * http.END_SESSION_S):
        await room.close()
    assert note.exists()


async def test_a_server_that_is_gone_is_told_nothing(room: Room, start: Start) -> None:
    peer = start()
    await room.start(t=McpServer(url=peer.url))
    await room.servers.ready()
    peer.close()
    with trio.fail_after(http.END_SESSION_S):
        await room.close()


async def test_g13_a_key_that_is_not_accepted_is_got_once_more(room: Room, start: Start) -> None:
    theirs, ours = room.directory / "theirs", room.directory / "ours"
    for file in (theirs, ours):
        file.write_text(CANARY)
        file.chmod(0o600)
    peer = start(KEY_FILE=str(theirs))
    await room.start(t=McpServer(url=peer.url, api_key_file=str(ours)))
    await room.servers.ready()
    assert room.servers.summaries()[0].state == "up"
    assert room.servers.secrets() == {CANARY}
    for file in (theirs, ours):
        file.write_text("another-1234567890")
    assert (await room.call("pid")).output.isdigit()
    theirs.write_text("yet-another-1234567890")
    with pytest.raises(ToolFailure, match=r"status 401; check the file .*ours"):
        await room.call("pid")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "it answered with status 401; it requires a key: set `api_key_env`"),
        ({"api_key_env": "NOWHERE"}, "its key is expected in the variable NOWHERE"),
        ({"api_key_env": "MINE"}, "it answered with status 401; check the variable MINE"),
        ({"headers": {"Authorization": f"Bearer {CANARY}"}}, "it answered with status 401"),
    ],
)
async def test_g13_a_refusal_says_what_to_do(room: Room, settings: dict, said: str) -> None:
    async with serving(status(401, CANARY.encode())) as refusing:
        await room.start({"MINE": CANARY}, t=McpServer(url=refusing.base_url, **settings))
        await room.servers.ready()
    (summary,) = room.servers.summaries()
    assert summary.state == "failed"
    assert said in summary.problem
    assert CANARY not in summary.problem


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (status(500), "it answered with status 500"),
        (status(404), "it answered: Not Found"),
        (status(200, b"{}", Content_Type="text/html"), "it answered: Unexpected content type"),
        (status(200, b"[1", Content_Type="application/json"), "Failed to parse JSON response"),
        (
            status(302, Location="http://elsewhere.invalid/"),
            "Redirect to http://elsewhere.invalid/",
        ),
        (raw(b"what?"), "it can't be reached: "),
        (raw(b""), "it can't be reached: "),
        (hanging(), "it was not ready after 0.5 s"),
    ],
)
async def test_an_address_that_is_no_server_says_why(room: Room, answer, said: str) -> None:
    async with serving(answer) as odd:
        await room.start(t=McpServer(url=odd.base_url, start_timeout_s=0.5))
        await room.servers.ready()
        (summary,) = room.servers.summaries()
        assert summary.state == "failed"
        assert said in summary.problem


async def test_nobody_there_says_so(room: Room) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    await room.start(t=McpServer(url=f"http://127.0.0.1:{port}/mcp"))
    await room.servers.ready()
    assert "it can't be reached: " in room.servers.summaries()[0].problem


async def test_an_answer_without_end_is_not_read_to_its_end(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "BODY_BYTES_MAX", 100_000)
    endless = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + b" " * 1_000_000
    async with serving(raw(endless)) as odd:
        await room.start(t=McpServer(url=odd.base_url))
        await room.servers.ready()
    assert "its response is larger than 100000 bytes" in room.servers.summaries()[0].problem


async def noted(note: Path, words: str) -> None:
    with trio.fail_after(30):
        while not (note.exists() and note.read_text() == words):  # noqa: ASYNC110, ASYNC240
            await trio.sleep(0.01)
