"""The real daemon tells a user who looks elsewhere: over HTTP, on a D-Bus, and by a command."""

import json
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from e2e.chat.conftest import opens as opens
from e2e.words import bash, calls, failing, text
from support.chat import ChatTerminal
from support.daemon import CONFIG, Daemon
from support.dbus import DBUS_DAEMON, Notifications, bus, service
from support.frontend import TIMEOUT_S, Frontend
from support.http_server import LocalServer, serving, status
from tiller_client.chat.app import NAME
from tiller_daemon.models.scripted import CallPart, Failure
from tiller_protocol.answers import ReplayResult
from tiller_protocol.ops import Answer, Replay

TOKEN = "tk_0123456789abcdefghij"
ASKED = calls(bash(f"touch {TOKEN}"))

Opens = Callable[..., ChatTerminal]


@asynccontextmanager
async def at_work(
    daemon: Daemon, nursery: trio.Nursery, rules: str, **variables: str
) -> AsyncGenerator[Frontend]:
    """Run the daemon with these rules, and connect to it."""
    daemon.configure(f"{CONFIG}\n{rules}")
    daemon.start(**variables)
    frontend = await Frontend.connect(daemon, nursery)
    yield frontend
    await frontend.close()


async def received(server: LocalServer, count: int) -> None:
    with trio.fail_after(TIMEOUT_S):
        await server.until_received(count)


async def followers(frontend: Frontend, session_id: str) -> Sequence[str]:
    """The frontends that have the session open."""
    result = await frontend.must(Replay(session_id, limit=1))
    assert isinstance(result, ReplayResult)
    return result.followers


async def test_ntfy_is_told_of_a_request_and_deletes_it_after_the_answer(
    new_daemon: Callable[..., Daemon], nursery: trio.Nursery, workspace: Path
) -> None:
    async with serving(status(200, {})) as server:
        rule = f"""
            [[notify]]
            to = "ntfy"
            url = "http://127.0.0.1:{server.port}/topic"
            api_key_env = "NTFY_TOKEN"
            after_s = 0
            on = ["needs_answer"]
        """
        async with at_work(new_daemon(), nursery, rule, NTFY_TOKEN=TOKEN) as frontend:
            session_id = await frontend.session(workspace, ASKED, text("Done."), approve="ask")
            await frontend.say(session_id, "go")
            request = await frontend.request_opened(session_id)
            await received(server, 1)
            told = server.received[0]
            assert told.headers["authorization"] == f"Bearer {TOKEN}"
            assert "touch [secret]" in told.body["message"], "the token is nowhere else"
            assert told.body["title"].startswith("Needs an answer: ")
            await frontend.must(Answer(request.id, "once"))
            await frontend.turn_ended(session_id)
            await received(server, 2)
            deleted = server.received[1]
            assert (deleted.method, deleted.path) == (
                "DELETE",
                f"/topic/{told.body['sequence_id']}",
            )


async def test_a_dead_target_slows_no_turn_and_a_failure_is_told_elsewhere(
    new_daemon: Callable[..., Daemon], nursery: trio.Nursery, workspace: Path, tmp_path: Path
) -> None:
    async def silent(stream: trio.abc.Stream) -> None:
        await trio.sleep_forever()

    os.mkfifo(told := tmp_path / "told")
    async with serving(silent) as server:
        rules = f"""
            [[notify]]
            to = "webhook"
            url = "http://127.0.0.1:{server.port}/hook"
            after_s = 0

            [[notify]]
            to = "command"
            command = ["/bin/sh", "-c", "cat > {told}"]
            after_s = 0
            on = ["failed"]
        """
        async with at_work(new_daemon(), nursery, rules) as frontend:
            broken = Failure("authentication", "The key was refused.")
            session_id = await frontend.session(workspace, failing(broken))
            await frontend.say(session_id, "go")
            await frontend.turn_ended(session_id)
            with trio.fail_after(TIMEOUT_S):
                message = json.loads(
                    await trio.to_thread.run_sync(told.read_text, abandon_on_cancel=True)
                )
            assert (message["moment"], message["session_id"]) == ("failed", session_id)
            assert message["workspace"] == str(workspace)
            assert "The key was refused." in message["text"]
            await received(server, 1)
            again = await frontend.session(workspace, failing(broken))
            await frontend.say(again, "go")
            await frontend.turn_ended(again)
            assert len(server.received) == 1, "the first message still waits for its answer"


@pytest.mark.skipif(DBUS_DAEMON is None, reason="needs dbus-daemon")
async def test_a_desktop_shows_a_request_until_it_is_answered_in_a_chat_that_nobody_saw_before(
    new_daemon: Callable[..., Daemon], opens: Opens, nursery: trio.Nursery, workspace: Path
) -> None:
    daemon, desktop = new_daemon(), Notifications()
    with bus() as address:
        async with service(address, Notifications.NAME, desktop.answer):
            rule = '[[notify]]\nto = "desktop"\nafter_s = 0\n'
            variables = {"DBUS_SESSION_BUS_ADDRESS": address}
            async with at_work(daemon, nursery, rule, **variables) as frontend:
                question = CallPart("question", arguments={"text": "Which colour?"})
                session_id = await frontend.session(workspace, calls(question), text("Done."))
                await frontend.say(session_id, "go")
                with trio.fail_after(TIMEOUT_S):
                    await desktop.until(lambda: desktop.shown)
                (shown,) = desktop.shown.values()
                assert "Which colour?" in shown[4]
                chat = opens(session_id, daemon=daemon)
                await chat.sees("? Which colour?", "type your answer")
                chat.press("blue\r")
                with trio.fail_after(TIMEOUT_S):
                    await desktop.until(lambda: not desktop.shown)
                await chat.shows("Done.")
                assert desktop.notified == 1


@pytest.mark.skipif(DBUS_DAEMON is None, reason="needs dbus-daemon")
async def test_nothing_is_told_while_a_chat_has_the_focus(
    new_daemon: Callable[..., Daemon], opens: Opens, nursery: trio.Nursery, workspace: Path
) -> None:
    daemon, desktop = new_daemon(), Notifications()
    with bus() as address:
        async with service(address, Notifications.NAME, desktop.answer):
            rule = '[[notify]]\nto = "desktop"\nafter_s = 0\n'
            variables = {"DBUS_SESSION_BUS_ADDRESS": address}
            async with at_work(daemon, nursery, rule, **variables) as frontend:
                question = CallPart("question", arguments={"text": "Which colour?"})
                session_id = await frontend.session(workspace, calls(question), text("Done."))
                chat = opens(session_id, daemon=daemon)
                await chat.shows("write a message")
                with trio.fail_after(TIMEOUT_S):
                    while NAME not in await followers(frontend, session_id):
                        pass  # the chat has drawn its first frame before it follows
                chat.press("go\r")
                await chat.shows("Which colour?")
                assert not desktop.shown, "somebody looks"
                chat.press("\x1b[O")  # the window loses the focus
                with trio.fail_after(TIMEOUT_S):
                    await desktop.until(lambda: desktop.shown)
