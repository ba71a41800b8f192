"""MCP servers that an editor hands in with a session: used by it alone, and gone with it."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from e2e.gates import Gate
from e2e.words import always, bash, calls, calls_in, text
from mcp_servers.test_http import Peer
from support import mcp_server, tiny_mcp
from support.daemon import CONFIG, Daemon, gone
from support.editor import Editor, Json, RpcError, an_editor, selected
from support.frontend import TIMEOUT_S, Frontend, new_id
from tiller_daemon.models.scripted import CallPart
from tiller_protocol.answers import CatalogResult, SessionListResult
from tiller_protocol.events import WarningRaised
from tiller_protocol.lending import LentServer, SessionLend
from tiller_protocol.ops import Catalog, SessionList
from tiller_protocol.settings import Rule

SECRET = "ghp_secretOfTheEditor123"

HELPER = "---\ndescription: helps\nmodel: {}\n---\nYou help.\n"


def tiny(name: str = "tiny", *modes: str) -> Json:
    """A server as an editor hands it in."""
    arguments = ["-SEs", tiny_mcp.__file__, *modes]
    return {"name": name, "command": sys.executable, "args": arguments, "env": []}


def call(tool: str, server: str = "tiny", **arguments: object) -> CallPart:
    return CallPart(f"mcp__{server}__{tool}", arguments=arguments)


async def opened(editor: Editor, workspace: Path, *servers: Json) -> str:
    editor.choose = lambda _params: selected("once")
    made = await editor.ask("session/new", cwd=str(workspace), mcpServers=[*servers])
    return made["sessionId"]


async def servers_of(frontend: Frontend, session_id: str | None) -> dict[str, str]:
    """The servers that a session can use, and their states."""
    catalog = await frontend.must(Catalog(session_id=session_id))
    assert isinstance(catalog, CatalogResult)
    return {server.name: server.state for server in catalog.servers}


async def sessions(frontend: Frontend, workspace: Path) -> set[str]:
    listed = await frontend.must(SessionList(str(workspace)))
    assert isinstance(listed, SessionListResult)
    return {one.session_id for one in listed.sessions}


def outputs(daemon: Daemon, session_id: str) -> list[str]:
    return [one.output for one in calls_in(daemon.requests(session_id)[-1].items)]


async def test_a_server_of_the_editor_serves_its_session_and_sub_agents_until_it_is_closed(
    editor: Editor, daemon: Daemon, workspace: Path, frontend: Frontend
) -> None:
    (daemon.places.config / "agents").mkdir()
    helper = daemon.script(calls(call("pid", "my_tiny")), text("it reports"))
    (daemon.places.config / "agents/helper.md").write_text(HELPER.format(helper))
    task = CallPart("task", arguments={"prompt": "look", "agent": "helper"})
    daemon.play(
        "main", calls(call("pid", "my_tiny"), call("pid", "my_tiny_2"), task), always("done")
    )
    session_id = await opened(editor, workspace, tiny("my tiny", "content"), tiny("my/tiny"))
    assert (await editor.prompt(session_id))["stopReason"] == "end_turn"
    first, second, report = outputs(daemon, session_id)
    assert first != second
    assert "it reports" in report
    owned = await frontend.must(SessionList(owner_id=session_id))
    assert isinstance(owned, SessionListResult)
    assert outputs(daemon, owned.sessions[0].session_id) == [first]
    shown = await editor.until_update("available_commands_update", 2)
    assert "mcp:my_tiny:review" in {one["name"] for one in shown["availableCommands"]}
    assert await servers_of(frontend, session_id) == {"my_tiny": "up", "my_tiny_2": "up"}
    assert await servers_of(frontend, None) == {}
    assert await servers_of(frontend, await opened(editor, workspace)) == {}
    await editor.ask("session/close", sessionId=session_id)
    assert gone(int(first), timeout_s=TIMEOUT_S)
    assert gone(int(second), timeout_s=TIMEOUT_S)
    assert await servers_of(frontend, session_id) == {}


async def test_the_secrets_of_an_editor_are_neither_shown_nor_stored(
    editor: Editor, daemon: Daemon, workspace: Path, frontend: Frontend
) -> None:
    server = {
        "name": "bench",
        "command": sys.executable,
        "args": [mcp_server.__file__],
        "env": [{"name": "HUB_TOKEN", "value": SECRET}],
    }
    daemon.play("main", calls(call("environment", "bench")), text("done"))
    session_id = await opened(editor, workspace, server)
    await editor.prompt(session_id)
    assert "HUB_TOKEN=[secret]" in outputs(daemon, session_id)[0]
    assert SECRET not in str(await frontend.log(session_id))
    written = [path for path in daemon.home.rglob("*") if path.is_file()]
    assert [path for path in written if SECRET.encode() in path.read_bytes()] == []


async def test_servers_over_http_get_the_headers_of_the_editor(
    editor: Editor, daemon: Daemon, workspace: Path, frontend: Frontend, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(SECRET)
    peer = Peer(variables={"KEY_FILE": str(tmp_path / "key")})
    good, bad = (
        {
            "type": "http",
            "name": name,
            "url": peer.url,
            "headers": [{"name": "Authorization", "value": f"Bearer {key}"}],
        }
        for name, key in (("good", SECRET), ("bad", "wrong"))
    )
    daemon.play("main", calls(call("environment", "good")), text("done"))
    session_id = await opened(editor, workspace, good, bad)
    await editor.prompt(session_id)
    assert "PATH=" in outputs(daemon, session_id)[0]
    assert await servers_of(frontend, session_id) == {"good": "up", "bad": "failed"}
    warnings = [
        event.body.message
        for event in await frontend.log(session_id)
        if isinstance(event.body, WarningRaised)
    ]
    assert any("status 401. Set its key in the editor that lends this" in w for w in warnings)
    assert SECRET not in str(warnings)
    await editor.ask("session/close", sessionId=session_id)
    peer.close()


async def test_loans_end_with_the_editor_but_survive_a_restart_of_the_daemon(
    new_daemon: Callable[..., Daemon], nursery: trio.Nursery, workspace: Path
) -> None:
    daemon = new_daemon(CONFIG)
    daemon.start()
    daemon.play("main", calls(call("pid")), text("one"), calls(call("pid")), text("two"))
    async with an_editor(daemon, nursery) as editor:
        session_id = await opened(editor, workspace, tiny())
        await editor.prompt(session_id)
        await editor.ask("session/list")  # it asks the daemon nothing more, which would start one
        daemon.kill9()
        daemon.start()
        await editor.prompt(session_id)
        before, after = outputs(daemon, session_id)
        assert before != after
        assert await editor.leave() == 0
    assert gone(int(after), timeout_s=TIMEOUT_S)


async def test_a_running_turn_keeps_a_server_that_a_changed_loan_has_no_more(
    daemon: Daemon, workspace: Path, frontend: Frontend
) -> None:
    gate = Gate(workspace)
    steps = (calls(call("pid")), calls(bash(gate.command)), calls(call("pid")), text("done"))
    session_id = await frontend.session(
        workspace, *steps, permissions=(Rule("mcp", "*", "allow"), Rule("bash", "*", "allow"))
    )
    command = (sys.executable, "-SEs", tiny_mcp.__file__)
    await frontend.must(SessionLend(session_id, "me", (LentServer("tiny", command),)))
    await frontend.say(session_id)
    await gate.reached()
    other = LentServer("other", url="http://127.0.0.1:9/")
    await frontend.must(SessionLend(session_id, "me", (other,)))
    assert set(await servers_of(frontend, session_id)) == {"other"}
    gate.open()
    await frontend.turn_ended(session_id)
    first, _, last = outputs(daemon, session_id)
    assert first == last
    await frontend.must(SessionLend(session_id, "me", (other,)))
    assert gone(int(first), timeout_s=TIMEOUT_S)


@pytest.mark.parametrize(
    ("servers", "problem"),
    [
        (
            [{"type": "sse", "name": "old", "url": "http://h", "headers": []}],
            "old has the transport",
        ),
        ([{"type": "http", "name": "h", "url": "ftp://h", "headers": []}], "'h': `url`: expected"),
        ([{"name": "none", "command": "", "args": [], "env": []}], "either `command` or `url`"),
        ([{**tiny(), "env": [{"name": "a=b", "value": SECRET}]}], "`env`: expected names"),
        (
            [
                {
                    "type": "http",
                    "name": "h",
                    "url": "http://h",
                    "headers": [{"name": "X", "value": f"a\nb{SECRET}"}],
                }
            ],
            "printable",
        ),
        ([tiny(str(number)) for number in range(33)], "length <= 32"),
        ([{**tiny(), "args": ["x" * 300_000]}], "at most 262,144 are allowed"),
    ],
)
async def test_a_server_that_can_not_be_used_is_refused_with_the_reason_and_leaves_no_session(
    editor: Editor, workspace: Path, frontend: Frontend, servers: list[Json], problem: str
) -> None:
    with pytest.raises(RpcError) as raised:
        await opened(editor, workspace, *servers)
    assert problem in raised.value.message
    assert SECRET not in raised.value.message
    assert await sessions(frontend, workspace) == set()


async def test_a_fork_that_can_not_be_opened_leaves_nothing(
    editor: Editor, workspace: Path, frontend: Frontend
) -> None:
    session_id = await opened(editor, workspace)
    fork = {"sessionId": session_id, "cwd": str(workspace)}
    with pytest.raises(RpcError, match="expected names"):
        await editor.ask(
            "session/fork", **fork, mcpServers=[{**tiny(), "env": [{"name": "a=b", "value": ""}]}]
        )
    assert await sessions(frontend, workspace) == {session_id}
    forked = await editor.ask("session/fork", **fork, mcpServers=[tiny()])
    assert await sessions(frontend, workspace) == {session_id, forked["sessionId"]}


async def test_a_loan_needs_a_session_and_a_place_among_the_lenders(
    frontend: Frontend, workspace: Path
) -> None:
    servers = (LentServer("n", url="http://127.0.0.1:9/"),)
    assert (await frontend.refused(SessionLend("none", "me", servers))).code == "not_found"
    session_id = await frontend.session(workspace)
    for number in range(8):
        await frontend.must(SessionLend(session_id, str(number), servers))
    assert (await frontend.refused(SessionLend(session_id, new_id(), servers))).code == "overloaded"
    twice = (*servers, *servers)
    assert (await frontend.refused(SessionLend(session_id, "0", twice))).code == "invalid_settings"
    await frontend.must(SessionLend(session_id, "0"))
    await frontend.must(SessionLend(session_id, new_id(), servers))
