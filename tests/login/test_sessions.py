"""Whole sessions on a plan: the real daemon and `tiller`, a login in a browser, a strict API."""

import json
import re
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from e2e.conftest import new_daemon, workspace
from e2e.test_remote import Far, far, listening
from support.daemon import Daemon
from support.frontend import Frontend
from support.http_server import Answer, LocalServer, serving, status
from support.login_service import (
    LISTING,
    LoginPeer,
    browse,
    call,
    message,
    plan_answer,
    visit,
)
from support.terminal import Terminal
from tiller_protocol.catalog import Accounts, AccountsResult

__all__ = ["far", "new_daemon", "workspace"]

pytestmark = pytest.mark.peer

CONFIG = """\
small_model = "scripted/untitled"
sandbox = { mode = "full_access" }
record = "../recordings"

[providers.scripted]
api = "scripted"
scripts = "../scripts"
"""

PROGRAM = """
import json, sys
import tiller_daemon.app
from tiller_daemon.models.accounts.chatgpt import LoginService
tiller_daemon.app.CHATGPT = LoginService(*json.loads(sys.argv.pop(1)))
from tiller_daemon.__main__ import main
main()
"""
"""The daemon, whose login service and API are those of the test."""


class Plan:
    """A daemon, and the API that a plan pays for, which takes only what OpenAI takes."""

    def __init__(self, peer: LoginPeer, server: LocalServer, daemon: Daemon) -> None:
        self.peer, self.server, self.daemon = peer, server, daemon

    def answer(self, *answers: Answer | tuple[dict[str, Any], ...]) -> None:
        """Set the next answers: items, or an answer as it is."""
        self.server.answers[:] = [
            plan_answer(self.peer, self.server, *one) if isinstance(one, tuple) else one
            for one in answers
        ]

    def stored(self, name: str = "chatgpt") -> dict[str, Any]:
        return json.loads((self.daemon.places.state / "accounts" / f"{name}.json").read_bytes())

    def tokens(self) -> list[str]:
        """Return the tokens with which the API was asked."""
        return [
            one.headers["authorization"].removeprefix("Bearer ") for one in self.server.received
        ]

    async def log_in(self, frontend: Frontend, **behaviour: Any) -> None:
        """Log in as frontends do, while the service behaves in some way."""
        self.peer.behave(**behaviour)
        begun = await frontend.must(Accounts("begin", port=5555))
        assert isinstance(begun, AccountsResult)
        await frontend.must(Accounts("finish", redirect=await browse(begun.url)))
        self.peer.behave()


@asynccontextmanager
async def running_plan(
    peer: LoginPeer, daemon: Daemon, config: str = CONFIG
) -> AsyncGenerator[Plan]:
    """Start the daemon, whose login service and API are those of the test."""
    async with serving(status(500)) as server:
        server.listing = LISTING
        peer.resource = server.base_url
        peer.behave()
        daemon.configure(config)
        daemon.program = ("-c", PROGRAM, json.dumps(msgspec.structs.astuple(peer.service)))
        daemon.start()
        yield Plan(peer, server, daemon)


@pytest.fixture
async def plan(peer: LoginPeer, new_daemon: Callable[..., Daemon]) -> AsyncGenerator[Plan]:
    async with running_plan(peer, new_daemon()) as plan:
        yield plan


@pytest.fixture
async def frontend(plan: Plan, nursery: trio.Nursery) -> AsyncGenerator[Frontend]:
    frontend = await Frontend.connect(plan.daemon, nursery)
    yield frontend
    await frontend.close()


async def tiller(plan: Plan, *words: str) -> "subprocess.CompletedProcess[bytes]":
    return await trio.run_process(
        [sys.executable, "-m", "tiller_client", *words],
        env=plan.daemon.variables, capture_stdout=True, capture_stderr=True, check=False,
    )  # fmt: skip


@asynccontextmanager
async def login_command(plan: Plan, *words: str) -> AsyncGenerator[tuple[trio.Process, str]]:
    """Run `tiller login`; yield its process and the address that it shows."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "tiller_client", "login", "--no-browser", *words],
        env=plan.daemon.variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    shown = ""
    try:
        with trio.fail_after(20):
            while "Paste the address" not in shown:
                shown += await said(process)
        yield process, re.findall(r"^http\S+", shown, re.MULTILINE)[0]
    finally:
        process.kill()
        await process.wait()


async def said(process: trio.Process) -> str:
    assert process.stdout
    return (await process.stdout.receive_some()).decode()


async def rest(process: trio.Process) -> str:
    text = ""
    with trio.fail_after(20):
        while piece := await said(process):
            text += piece
        assert await process.wait() == 0, text
    return text


async def test_after_a_login_in_a_browser_a_whole_session_runs_on_the_plan(
    plan: Plan, nursery: trio.Nursery, workspace: Path
) -> None:
    assert b"no accounts" in (await tiller(plan, "accounts")).stdout
    async with login_command(plan) as (process, url):
        address = await browse(url)
        assert (await visit(address.replace("state=", "state=x")))[0] == 404
        assert await visit(address) == (200, "You are logged in. You can close this page.\n")
        shown = await rest(process)
    assert "Logged in to chatgpt (user-1@example.com)." in shown
    assert "You're using your ChatGPT plan." in shown
    assert "chatgpt/gpt-6-sol" in (await tiller(plan, "accounts")).stdout.decode()
    plan.answer(
        (call("read", path="greeting.txt"), call("bash", command="env")),
        (message("It says hello."),),
    )
    frontend = await Frontend.connect(plan.daemon, nursery)
    session_id = await frontend.session(workspace, model="chatgpt/gpt-6-sol", variant="high")
    await frontend.say(session_id)
    ended = await frontend.turn_ended(session_id)
    assert (ended.outcome, ended.error) == ("completed", None)
    read, ran = frontend.completed_calls(session_id)
    assert "hello" in read.output
    first, second = [json.loads(one.data) for one in plan.server.received]
    (space,) = first["tools"]
    assert (space["type"], space["name"]) == ("namespace", "tiller")
    assert {"read", "edit", "bash"} <= {tool["name"] for tool in space["tools"]}
    assert (first["store"], first["reasoning"]) == (False, {"effort": "high"})
    assert first["instructions"]
    replayed = [one for one in second["input"] if one["type"] == "function_call"]
    assert [(one["namespace"], one["name"]) for one in replayed] == [
        ("tiller", "read"), ("tiller", "bash"),
    ]  # fmt: skip
    await frontend.close()
    await plan.daemon.terminate()
    check_no_token_left(plan, ran.output)


def check_no_token_left(plan: Plan, output: str) -> None:
    """Check that no token is in a command's output, or in any file but the account's own."""
    stored = plan.stored()
    secrets = [stored["access_token"], stored["refresh_token"]]
    own = plan.daemon.places.state / "accounts" / "chatgpt.json"
    files = [one for one in plan.daemon.home.rglob("*") if one.is_file() and one != own]
    assert any("recordings" in str(one) for one in files)
    for secret in secrets:
        assert secret not in output
        for file in files:
            assert secret.encode() not in file.read_bytes(), file


async def test_the_address_can_be_pasted_and_several_accounts_be_used(plan: Plan) -> None:
    for name, user in (("chatgpt", "user-1"), ("work", "user-2")):
        plan.peer.behave(account=user)
        async with login_command(plan, "--account", name) as (process, url):
            assert process.stdin
            await process.stdin.send_all(b"http://127.0.0.1/auth/callback?state=wrong&code=x\n")
            while "Copy the whole address" not in await said(process):
                pass
            await process.stdin.send_all(f"{await browse(url)}\n".encode())
            assert f"Logged in to {name} ({user}@example.com)" in await rest(process)
    plan.answer((message("from work"),))
    done = await tiller(plan, "exec", "-m", "work/gpt-6-luna", "hello")
    assert done.stdout == b"from work\n", done.stderr
    assert plan.tokens() == [plan.stored("work")["access_token"]]
    done = await tiller(plan, "logout", "--account", "work")
    assert b"Logged out of work" in done.stdout
    done = await tiller(plan, "exec", "-m", "work/gpt-6-luna", "hello")
    assert b"is logged out. Run: tiller login --account work" in done.stderr
    assert b"chatgpt/gpt-6-luna" in (await tiller(plan, "models", "--all")).stdout


async def test_the_token_is_renewed_while_a_session_runs(
    plan: Plan, frontend: Frontend, workspace: Path
) -> None:
    await plan.log_in(frontend, expiresIn=60, earliestIn=-1)
    plan.answer((call("read", path="greeting.txt"),), (message("done"),))
    session_id = await frontend.session(workspace, model="chatgpt/gpt-6-sol")
    await frontend.say(session_id)
    ended = await frontend.turn_ended(session_id)
    assert (ended.outcome, ended.error) == ("completed", None)
    first = plan.tokens()
    assert first[0] == first[1] == plan.stored()["access_token"]
    assert plan.stored()["expires_at"] > time.time() + 600, "renewed, for an hour"


async def test_a_login_that_has_ended_says_what_to_do(
    plan: Plan, frontend: Frontend, workspace: Path
) -> None:
    await plan.log_in(frontend, earliestIn=-1)
    stolen = {"refresh_token": plan.stored()["refresh_token"]}
    plan.peer.post(grant_type="refresh_token", client_id=plan.stored()["client_id"], **stolen)
    session_id = await frontend.session(workspace, model="chatgpt/gpt-6-sol")
    plan.answer(status(401, {"detail": {"error_code": "invalid_token"}}))
    await frontend.say(session_id)
    ended = await frontend.turn_ended(session_id)
    assert ended.error
    assert ended.error.code == "authentication"
    assert "Run: tiller login" in ended.error.message
    assert plan.stored().get("access_token", "") == ""
    done = await tiller(plan, "exec", "-m", "chatgpt/gpt-6-sol", "hello")
    assert b"Run: tiller login" in done.stderr


async def test_the_limit_of_the_plan_ends_the_turn_with_the_time_of_its_end(
    plan: Plan, frontend: Frontend, workspace: Path
) -> None:
    await plan.log_in(frontend)
    code = {"code": "subscription_sharing_usage_limit_exceeded", "message": "limit"}
    plan.answer(status(429, {"error": {**code, "resets_at": time.time() + 7200}}))
    session_id = await frontend.session(workspace, model="chatgpt/gpt-6-sol")
    await frontend.say(session_id)
    ended = await frontend.turn_ended(session_id)
    assert ended.error
    assert ended.error.code == "quota"
    assert "The limit of your ChatGPT plan" in ended.error.message
    assert "https://chatgpt.com/settings/usage" in ended.error.message
    assert re.search(r"It ends at 20\d\d-\d\d-\d\d \d\d:\d\d", ended.error.message)
    assert len(plan.server.received) == 1, "no new request is made"


@pytest.mark.nightly
async def test_with_host_the_browser_here_logs_in_the_daemon_there(
    peer: LoginPeer, far: Far
) -> None:
    async with running_plan(peer, far.daemon) as plan:
        with far.start("login", "--no-browser") as process:
            assert process.stdout
            shown = ""
            while "Paste the address" not in shown:
                shown += await trio.to_thread.run_sync(process.stdout.readline)
            address = await browse(re.findall(r"^http\S+", shown, re.MULTILINE)[0])
            assert (await visit(address))[0] == 200
            rest, errors = await trio.to_thread.run_sync(process.communicate)
        assert "Logged in to chatgpt (user-1@example.com)." in rest, errors
        assert not listening(far.daemon.process.pid if far.daemon.process else 0)
        plan.answer((message("from there"),))
        words = ("exec", "-m", "chatgpt/gpt-6-sol", "hello")
        done = await trio.to_thread.run_sync(lambda: far.tiller(*words))
        assert done.stdout == "from there\n", done.stderr
        assert plan.tokens() == [plan.stored()["access_token"]]


@pytest.mark.nightly
async def test_init_offers_the_plan_first_where_there_is_no_key(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = plan.daemon.places.config / "config.toml"
    config.unlink()
    for name, value in {**plan.daemon.variables, "BROWSER": "true"}.items():
        monkeypatch.setenv(name, value)
    plan.answer((message("ready"),))
    terminal = Terminal("init", columns=4000)

    def begin() -> str:
        terminal.wait_for("1  Continue with ChatGPT")
        terminal.type("1")
        terminal.wait_for("Paste the address")
        return re.findall(r"http://\S+authorize\S+", terminal.screen)[0]

    address = await browse(await trio.to_thread.run_sync(begin))
    assert (await visit(address))[0] == 200
    assert await trio.to_thread.run_sync(terminal.end) == 0, terminal.screen
    assert "tried    chatgpt/gpt-6-sol answers" in terminal.screen
    assert 'account = "chatgpt"' in config.read_text()
    assert 'model = "chatgpt/gpt-6-sol"' in config.read_text()
