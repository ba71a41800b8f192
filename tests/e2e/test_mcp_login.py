"""Logins at a third-party MCP server: by browser, by paste, refreshed, rejected, ended."""

import json
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
import trio

from e2e.words import calls, text
from support.daemon import CONFIG, Daemon
from support.frontend import Frontend
from support.oauth_peer import guarded_server
from tiller_daemon.models.scripted import CallPart, ScriptStep
from tiller_protocol.answers import CatalogResult, McpLoginResult
from tiller_protocol.catalog import ServerSummary
from tiller_protocol.items import ToolCall
from tiller_protocol.ops import Catalog, McpLogin

__all__ = ["guarded_server"]

pytestmark = pytest.mark.peer


@pytest.fixture
def daemon(new_daemon: Callable[..., Daemon], guarded_server: str) -> Daemon:
    config = f'[mcp.guarded]\nurl = "{guarded_server}"\n[mcp.program]\ncommand = ["true"]\n'
    daemon = new_daemon(CONFIG + config)
    daemon.start()
    return daemon


def tool(name: str, **arguments: object) -> ScriptStep:
    return calls(CallPart(f"mcp__guarded__{name}", arguments=arguments))


async def server(frontend: Frontend) -> ServerSummary:
    catalog = await frontend.must(Catalog(start_servers=True))
    assert isinstance(catalog, CatalogResult)
    return next(one for one in catalog.servers if one.name == "guarded")


async def visit(url: str) -> httpx2.Response:
    """Open an address as a browser does, and follow redirects."""
    async with httpx2.AsyncClient(follow_redirects=True, timeout=20) as browser:
        return await browser.get(url)


async def last_address(url: str) -> str:
    """The address to which a login would send the browser."""
    async with httpx2.AsyncClient(timeout=20) as browser:
        return (await browser.get(url)).headers["location"]


async def begin(frontend: Frontend) -> str:
    begun = await frontend.must(McpLogin("guarded"))
    assert isinstance(begun, McpLoginResult)
    assert begun.state == "waiting"
    return begun.url


async def until_done(frontend: Frontend) -> None:
    with trio.fail_after(20):
        while True:
            result = await frontend.must(McpLogin("guarded", "check"))
            assert isinstance(result, McpLoginResult)
            if result.state == "done":
                return
            await trio.sleep(0.02)


async def log_in(frontend: Frontend) -> None:
    assert "You can close this page" in (await visit(await begin(frontend))).text
    await until_done(frontend)


async def one_call(frontend: Frontend, workspace: Path, step: ScriptStep) -> ToolCall:
    session_id = await frontend.session(workspace, step, text("done"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    (call,) = frontend.completed_calls(session_id)
    return call


def stored(daemon: Daemon) -> Path:
    return daemon.places.state / "mcp-logins" / "guarded.json"


@pytest.mark.nightly
async def test_a_server_that_wants_a_login_says_so_and_works_after_it(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    before = await server(frontend)
    assert before.state == "needs_login"
    assert "run `tiller mcp login guarded`" in before.problem
    await log_in(frontend)
    assert (await server(frontend)).state == "up"
    call = await one_call(frontend, workspace, tool("whoami"))
    assert call.output.startswith("client ")
    assert stat.S_IMODE(stored(daemon).stat().st_mode) == 0o600
    assert stat.S_IMODE(stored(daemon).parent.stat().st_mode) == 0o700


@pytest.mark.promise("G13")
async def test_no_token_of_a_login_gets_into_the_log(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    await log_in(frontend)
    await server(frontend)
    call = await one_call(frontend, workspace, tool("whoami"))
    token = json.loads(stored(daemon).read_bytes())["tokens"]["access_token"]
    assert "with" in call.output
    assert token not in call.output
    state = daemon.places.state
    for file in (path for path in state.rglob("*") if path.is_file() and path != stored(daemon)):
        assert token.encode() not in file.read_bytes(), file


async def test_a_login_outlives_the_daemon_and_an_expired_token_is_refreshed(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    await log_in(frontend)
    await frontend.disconnect()
    await daemon.terminate()
    login = json.loads(stored(daemon).read_bytes())
    old = login["tokens"]["access_token"]
    stored(daemon).write_text(json.dumps({**login, "expires_at": 1.0}))
    daemon.start()
    await frontend.reconnect()
    assert (await server(frontend)).state == "up"
    assert (await one_call(frontend, workspace, tool("whoami"))).state == "completed"
    renewed = json.loads(stored(daemon).read_bytes())
    assert renewed["tokens"]["access_token"] != old
    assert renewed["expires_at"] > 1.0


@pytest.mark.nightly
async def test_a_token_that_the_server_rejects_is_refreshed_without_anyone_noticing(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    await log_in(frontend)
    await server(frontend)
    old = json.loads(stored(daemon).read_bytes())["tokens"]["access_token"]
    assert (await one_call(frontend, workspace, tool("revoke"))).output == "revoked"
    assert (await one_call(frontend, workspace, tool("whoami"))).state == "completed"
    assert json.loads(stored(daemon).read_bytes())["tokens"]["access_token"] != old


@pytest.mark.nightly
async def test_a_login_that_can_not_be_refreshed_is_needed_again(
    frontend: Frontend, workspace: Path
) -> None:
    await log_in(frontend)
    await server(frontend)
    await one_call(frontend, workspace, tool("revoke", refresh=True))
    call = await one_call(frontend, workspace, tool("whoami"))
    assert call.state == "error"
    assert "tiller mcp login guarded" in call.output
    with trio.fail_after(20):  # the lost connection is still being closed
        while (await server(frontend)).state != "needs_login":  # noqa: ASYNC110
            await trio.sleep(0.02)
    await log_in(frontend)
    assert (await one_call(frontend, workspace, tool("whoami"))).state == "completed"


@pytest.mark.nightly
async def test_what_a_browser_elsewhere_was_sent_to_can_be_pasted(frontend: Frontend) -> None:
    address = await last_address(await begin(frontend))
    wrong = re.sub("state=[^&]*", "state=of-another", address)
    refused = await frontend.refused(McpLogin("guarded", "finish", wrong))
    assert refused.code == "bad_message"
    await frontend.must(McpLogin("guarded", "finish", address))
    await until_done(frontend)
    assert (await server(frontend)).state == "up"
    code = re.search("code=([^&]*)", await last_address(await begin(frontend)))
    assert code
    await frontend.must(McpLogin("guarded", "finish", code[1]))
    await until_done(frontend)


@pytest.mark.promise("G14")
async def test_a_page_that_does_not_know_the_login_has_no_effect(frontend: Frontend) -> None:
    url = await begin(frontend)
    address = await last_address(url)
    for wrong in (re.sub("state=[^&]*", "state=guessed", address), address.split("?")[0]):
        assert (await visit(wrong)).status_code == 404
    result = await frontend.must(McpLogin("guarded", "check"))
    assert isinstance(result, McpLoginResult)
    assert result.state == "waiting"
    await frontend.must(McpLogin("guarded", "cancel"))
    with pytest.raises(httpx2.ConnectError):
        await visit(address)


async def test_after_a_logout_the_token_is_gone(frontend: Frontend, daemon: Daemon) -> None:
    await log_in(frontend)
    await frontend.must(McpLogin("guarded", "logout"))
    assert not stored(daemon).exists()
    assert (await server(frontend)).state == "needs_login"
    assert (await frontend.refused(McpLogin("guarded", "logout"))).code == "not_found"


async def test_logins_that_can_not_be_are_refused_with_the_reason(frontend: Frontend) -> None:
    assert "has no login" in (await frontend.refused(McpLogin("program"))).message
    assert "Configured: guarded, program" in (await frontend.refused(McpLogin("other"))).message
    assert (await frontend.refused(McpLogin("guarded", "check"))).code == "not_found"


def begun_login(daemon: Daemon) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tiller_client", "mcp", "login", "guarded", "--no-browser"],
        env=daemon.variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.nightly
async def test_the_command_line_logs_in_lists_and_logs_out(daemon: Daemon) -> None:
    def tiller(*words: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "tiller_client", "mcp", *words],
            env=daemon.variables, capture_output=True, text=True, timeout=60,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    status, listed = await trio.to_thread.run_sync(tiller)
    assert status == 0
    assert "guarded MCP server · needs_login · 0 tools" in listed
    process = begun_login(daemon)
    assert process.stdin
    assert process.stdout
    shown = ""
    while "Paste the address" not in shown:
        shown += await trio.to_thread.run_sync(process.stdout.readline)
    (url,) = re.findall(r"^http\S+", shown, re.MULTILINE)
    address = await last_address(url)
    process.stdin.write(f"{address}\n")
    process.stdin.flush()
    rest, _ = await trio.to_thread.run_sync(lambda: process.communicate(timeout=60))
    assert process.returncode == 0
    assert "Logged in to guarded." in rest
    assert "2 tools" in (await trio.to_thread.run_sync(tiller))[1]
    assert "Logged out" in (await trio.to_thread.run_sync(lambda: tiller("logout", "guarded")))[1]
