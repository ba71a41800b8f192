"""One session on three screens at once: the chat on a terminal, an editor with ACP, and Neovim."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from e2e.gates import Gate
from e2e.words import bash, calls, read, said_in, text
from editors.conftest import Opening
from editors.neovim import Neovim
from support.chat import ChatTerminal
from support.daemon import Daemon
from support.editor import Editor, an_editor, words
from support.frontend import Frontend
from tiller_daemon.models.scripted import CallPart
from tiller_protocol.events import RequestResolved
from tiller_protocol.items import AssistantMessage, ToolCall, UserMessage

pytestmark = pytest.mark.skipif(not shutil.which("nvim"), reason="no nvim: apt install neovim")

EDIT = CallPart("edit", arguments={"path": "greeting.txt", "old": "hello", "new": "hi"})

READY, BUSY = "write a message", "steer with Enter"
ANSWERABLE = "a letter chooses, Enter answers"

STEERED = ("from the terminal", "from the editor", "from neovim")


def places(shown: str, wanted: Sequence[str]) -> list[int]:
    """Where each text stands the first time."""
    missing = [one for one in wanted if one not in shown]
    assert not missing, f"{missing}\n{shown}"
    return [shown.index(one) for one in wanted]


async def steer_from_each(
    chat: ChatTerminal, editor: Editor, neovim: Neovim, session_id: str
) -> None:
    """Each screen shows what the others have sent before the next one sends."""
    terminal, from_editor, from_neovim = STEERED
    chat.press(f"{terminal}\r")
    await neovim.until_shown(f"⇢ {terminal}")
    await editor.ask("_tiller/steer", sessionId=session_id, prompt=words(from_editor))
    await chat.shows(from_editor)
    await neovim.command(f"TillerSteer {from_neovim}")
    await chat.shows(from_neovim)
    await neovim.until_shown(f"⇢ {from_neovim}")


async def test_the_three_show_the_same_and_each_of_them_steers_and_answers(
    open_neovim: Opening,
    daemon: Daemon,
    frontend: Frontend,
    workspace: Path,
    nursery: trio.Nursery,
) -> None:
    gate = Gate(workspace)
    steps = (calls(read("greeting.txt"), bash(gate.command)), calls(EDIT), text("heard them all"))
    session_id = await frontend.session(workspace, *steps, approve="ask")
    frontend.follow(session_id)
    neovim = await open_neovim(daemon, workspace)
    await neovim.command(f"TillerAttach {session_id}")
    await neovim.until("require('tiller').is_live")
    chat = ChatTerminal.start(daemon, "chat", session_id, size=(80, 40))
    try:
        async with an_editor(daemon, nursery) as editor:
            opened = {"sessionId": session_id, "cwd": str(workspace), "mcpServers": []}
            await editor.ask("session/load", **opened)
            await chat.shows(READY)
            turn = await editor.request(
                "session/prompt", sessionId=session_id, prompt=words("begin it")
            )
            await gate.reached()
            await chat.shows("begin it", gate.command, BUSY)
            await steer_from_each(chat, editor, neovim, session_id)
            gate.open("passed")
            await editor.asked()
            await chat.shows("yes, once", ANSWERABLE)
            await neovim.until_shown("+hi")
            await neovim.command("TillerAnswer once")
            assert (await editor.answer(turn))["stopReason"] == "end_turn"
            await editor.until(lambda one: one.get("method") == "$/cancel_request")
            await chat.shows("heard them all")
            await neovim.until_shown("heard them all\n── completed")
            await frontend.turn_ended(session_id)
            await assert_the_same(frontend, session_id, chat, editor, neovim)
    finally:
        chat.close()
    assert (workspace / "greeting.txt").read_text() == "hi\n"
    assert said_in(daemon.requests(session_id)[-1].items) == ["begin it", *STEERED]


async def assert_the_same(
    frontend: Frontend, session_id: str, chat: ChatTerminal, editor: Editor, neovim: Neovim
) -> None:
    """Each screen has every item of the session once, in the order of the log."""
    items = (await frontend.snapshot(session_id)).items
    said = [one.text for one in items if isinstance(one, UserMessage | AssistantMessage)]
    assert said == ["begin it", *STEERED, "heard them all"]
    in_order = [said[0], "cat gate", *said[1:4], "edit greeting.txt", said[4]]
    for shown in (chat.text, await neovim.chat()):
        assert places(shown, in_order) == sorted(places(shown, in_order))
        assert [shown.count(one) for one in (*STEERED, said[4])] == [1] * 4
    calls_of = [one.id for one in items if isinstance(one, ToolCall)]
    assert [one["toolCallId"] for one in editor.updates("tool_call")] == calls_of
    chunks = [one["content"]["text"] for one in editor.updates("user_message_chunk")]
    assert [*said[:1], *chunks, editor.said()] == said, "an editor shows its own prompt itself"
    resolved = [e for e in await frontend.log(session_id) if isinstance(e.body, RequestResolved)]
    assert len(resolved) == 1
