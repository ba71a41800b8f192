"""A login with a ChatGPT plan from an editor: it opens the browser, and an open editor goes on."""

import json
import os
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest
import trio

from e2e.test_init import ports
from login.conftest import peer, peer_process
from login.test_sessions import Plan, running_plan
from support.daemon import Daemon
from support.editor import NODE, Editor, Json, RpcError, an_editor, needs_node
from support.frontend import TIMEOUT_S, Frontend
from support.login_service import LoginPeer, browse, message, visit
from tiller_client.acp.rpc import AUTH_REQUIRED, INVALID_PARAMS, REQUEST_CANCELLED
from tiller_protocol.catalog import Accounts

__all__ = ["peer", "peer_process", "ports"]

pytestmark = pytest.mark.peer

HURRIED = """
import tiller_client.browser_login
tiller_client.browser_login.LOGIN_S_MAX = 0.2
from tiller_client.__main__ import main
main()
"""
"""`tiller`, with little patience."""

ACP = (sys.executable, "-m", "tiller_client", "acp")


class Browser:
    """A browser that only tells which addresses it is to open; it also reads and writes."""

    def __init__(self, directory: Path) -> None:
        self.fifo = directory / "addresses"
        os.mkfifo(self.fifo)
        self.program = directory / "browser"
        self.program.write_text(f'#!/bin/sh\ncat\nprintf %s "$1" | tee {self.fifo}\n')
        self.program.chmod(0o700)

    async def opened(self) -> str:
        """Wait for the next address."""
        with trio.fail_after(TIMEOUT_S):
            return await trio.to_thread.run_sync(self.fifo.read_text, abandon_on_cancel=True)


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    return Browser(tmp_path)


@pytest.fixture
async def plan(
    ports: None, peer: LoginPeer, new_daemon: Callable[..., Daemon], browser: Browser
) -> AsyncGenerator[Plan]:
    """A daemon without any model, and the plan that it could use."""
    async with running_plan(peer, new_daemon(), "") as plan:
        plan.daemon.variables["BROWSER"] = str(browser.program)
        yield plan


@pytest.fixture
async def editor(plan: Plan, nursery: trio.Nursery) -> AsyncGenerator[Editor]:
    async with an_editor(plan.daemon, nursery) as editor:
        yield editor


async def test_the_client_of_the_typescript_sdk_logs_in_and_goes_on(
    plan: Plan, browser: Browser, workspace: Path
) -> None:
    needs_node()
    plan.answer((message("hi"),), (message("a title"),))
    command = ("node", NODE / "login.mjs", workspace, plan.peer.url, browser.fifo, *ACP)
    with trio.fail_after(2 * TIMEOUT_S):
        done = await trio.run_process(
            [str(word) for word in command],
            env={**plan.daemon.variables, "RESOURCE": plan.peer.resource},
            capture_stdout=True,
        )
    report: Json = json.loads(done.stdout)
    assert report["methods"][0]["name"] == "Continue with ChatGPT"
    assert report["before"]["code"] == AUTH_REQUIRED
    assert "no model can be used" in report["before"]["message"]
    assert report["refused"]["code"] == AUTH_REQUIRED
    assert "was declined in the browser" in report["refused"]["message"]
    assert report["refusedPage"] == report["refused"]["message"]
    for name, why in (("cancelled", "was cancelled"), ("first", "another login")):
        assert report[name]["code"] == REQUEST_CANCELLED
        assert why in report[name]["message"]
    assert report["abandonedPage"] == "nobody listens"
    assert report["page"] == "You are logged in. You can close this page."
    assert report["second"] == report["again"] == {"result": {}}
    assert report["after"]["result"]["configOptions"][1]["currentValue"] == "chatgpt/gpt-6-sol"
    assert (report["turn"]["stopReason"], report["said"], report["status"]) == ("end_turn", "hi", 0)
    stored = plan.stored()
    for name in ("access_token", "refresh_token"):
        assert stored[name].encode() not in done.stdout
    assert plan.tokens()[0] == stored["access_token"]


async def test_a_login_that_does_not_permit_the_plan_says_so(
    plan: Plan, editor: Editor, browser: Browser, workspace: Path
) -> None:
    plan.peer.behave(plan=False)
    number = await editor.request("authenticate", methodId="chatgpt")
    assert "without the permission" in (await visit(await browse(await browser.opened())))[1]
    with pytest.raises(RpcError, match="without the permission") as failed:
        await editor.answer(number)
    assert failed.value.code == AUTH_REQUIRED
    with pytest.raises(RpcError, match="Authentication required") as failed:
        await editor.new(workspace)
    assert failed.value.code == AUTH_REQUIRED


async def test_while_a_login_waits_the_editor_can_go_on_and_leave(
    plan: Plan, editor: Editor, browser: Browser, nursery: trio.Nursery
) -> None:
    await editor.request("authenticate", methodId="chatgpt")
    address = await browse(await browser.opened())
    assert (await editor.ask("session/list"))["sessions"] == []
    assert await editor.leave() == 0
    frontend = await Frontend.connect(plan.daemon, nursery)
    late = await frontend.refused(Accounts("finish", redirect=address))
    assert "No login is in progress" in late.message
    await frontend.close()


async def test_a_login_that_nobody_completes_ends(
    plan: Plan, browser: Browser, nursery: trio.Nursery
) -> None:
    async with an_editor(plan.daemon, nursery, program=("-c", HURRIED)) as editor:
        number = await editor.request("authenticate", methodId="chatgpt")
        await browser.opened()
        with pytest.raises(RpcError, match="nobody has completed the login") as failed:
            await editor.answer(number)
        assert failed.value.code == AUTH_REQUIRED


@pytest.mark.parametrize("program", ["", "false"])
async def test_without_a_browser_the_login_names_the_command(
    plan: Plan, nursery: trio.Nursery, program: str
) -> None:
    plan.daemon.variables["BROWSER"] = program
    async with an_editor(plan.daemon, nursery) as editor:
        with pytest.raises(RpcError, match="in a terminal instead: tiller login") as failed:
            await editor.ask("authenticate", methodId="chatgpt")
        assert failed.value.code == AUTH_REQUIRED


@pytest.mark.parametrize("method", ["init", "any"])
async def test_other_methods_are_refused(editor: Editor, method: str) -> None:
    """A client runs the set-up itself, in a terminal."""
    with pytest.raises(RpcError, match=f"'{method}' is no login") as failed:
        await editor.ask("authenticate", methodId=method)
    assert failed.value.code == INVALID_PARAMS
