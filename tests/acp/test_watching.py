"""One session on three screens: a terminal, an editor, and a program such as the Neovim plugin."""

import sys
from pathlib import Path

import trio

from e2e.clients import Tillers
from e2e.gates import Gate
from e2e.words import bash, calls, said_in, text
from support.daemon import Daemon
from support.editor import Editor, words
from support.frontend import Frontend
from support.rpc import Rpc
from support.watching import assert_all_see_the_same
from tiller_protocol.answers import ReplayResult
from tiller_protocol.ops import Replay


async def test_a_terminal_an_editor_and_a_plugin_see_the_same_and_steer_one_turn(
    editor: Editor, daemon: Daemon, workspace: Path, tillers: Tillers
) -> None:
    await editor.start()
    gate = Gate(workspace)
    daemon.play("main", calls(bash(gate.command)), text("heard them all"))
    rpc = await Rpc.start(daemon, "--name", "plugin")
    try:
        session_id = await rpc.session(workspace, "scripted/main")
        await rpc.send({"follow": session_id})
        attached = await tillers(daemon, "attach", "--json", session_id)
        opened = {"sessionId": session_id, "cwd": str(workspace), "mcpServers": []}
        await editor.ask("session/load", **opened)
        await rpc.submit("begin", "user_input", session_id=session_id, text="go")
        await gate.reached()
        terminal = [sys.executable, "-m", "tiller_client", "steer", session_id, "from the terminal"]
        await trio.run_process(terminal, env=daemon.variables, capture_stdout=True)
        await editor.ask("_tiller/steer", sessionId=session_id, prompt=words("from the editor"))
        steering = {"session_id": session_id, "text": "from the plugin", "delivery": "steer"}
        await rpc.submit("steer", "user_input", **steering)
        gate.open("passed")
        await assert_all_see_the_same(session_id, attached, rpc, editor)
        assert said_in(daemon.requests(session_id)[-1].items) == [
            *("go", "from the terminal", "from the editor", "from the plugin")
        ]
    finally:
        await rpc.close()


async def test_a_frontend_that_has_closed_the_session_is_seen_no_longer(
    editor: Editor, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    session_id = await editor.new(workspace)
    rpc = await Rpc.start(daemon, "--name", "plugin")

    async def followers() -> tuple[str, ...]:
        result = await frontend.must(Replay(session_id))
        assert isinstance(result, ReplayResult)
        return result.followers

    try:
        await editor.until_update("available_commands_update")
        for number in (1, 2):
            await rpc.send({"follow": session_id})
            await rpc.until(lambda line: "caught_up" in line, number)
            assert "plugin" in await followers()
            if number == 1:
                await rpc.send({"unfollow": session_id})
                await rpc.until(lambda line: "unfollowed" in line)
            else:
                assert await rpc.end() == 0
            assert "plugin" not in await followers()
        await editor.ask("session/close", sessionId=session_id)
        assert await followers() == ()
    finally:
        await rpc.close()
