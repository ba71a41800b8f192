"""Sessions whose snapshot does not fit into a message can be opened like any other."""

import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from e2e.words import bash, calls, read, text
from support.daemon import Daemon
from support.editor import Editor
from support.frontend import Frontend, new_id
from tiller_client.connecting.connection import DaemonConnection
from tiller_client.errors import RejectedError
from tiller_client.following.snapshots import read_snapshot
from tiller_protocol.answers import Created, Rejected, SessionResult
from tiller_protocol.ops import SessionCreate, SessionFork, SessionGet, UserInput

LONG = 7 * 1024 * 1024
"""Bytes of one input; three of them fit into no message."""


@pytest.mark.nightly
async def test_a_session_that_fits_into_no_message_is_opened_and_goes_on(
    editor: Editor, daemon: Daemon, workspace: Path
) -> None:
    await editor.start()

    def make() -> tuple[str, str]:
        with DaemonConnection(daemon.places, "test") as connection:
            session_id = connection.ask(SessionCreate(str(workspace)), Created).session_id
            for number in "123":
                connection.submit(UserInput(session_id, number * LONG, no_reply=True))
            forked = connection.ask(SessionFork(session_id), Created).session_id
            for one in (session_id, forked):
                with pytest.raises(RejectedError, match=r"message\. Use `replay`"):
                    connection.submit(SessionGet(one))
            return session_id, forked

    session_id, forked = await trio.to_thread.run_sync(make)
    opened = {"sessionId": forked, "cwd": str(workspace), "mcpServers": []}
    await editor.ask("session/load", **opened)
    shown = list(editor.updates("user_message_chunk"))
    assert [(one["content"]["text"][0], len(one["content"]["text"])) for one in shown] == [
        (number, LONG) for number in "123"
    ]
    for verb in (("shell", forked, "echo still here"), ("show", "--tail", "1", session_id)):
        command = [sys.executable, "-m", "tiller_client", *verb]
        await trio.run_process(command, env=daemon.variables, capture_stdout=True)
    await editor.until_update("tool_call_update", status="completed")


async def test_the_snapshot_that_is_folded_from_pages_is_that_of_the_daemon(
    frontend: Frontend, daemon: Daemon, workspace: Path
) -> None:
    session_id = await frontend.session(
        workspace,
        calls(read("greeting.txt"), bash("echo one > new.txt")),
        text("an answer in pieces", pieces=5),
        text("more"),
    )
    ids = [session_id]
    for number in (1, 2):  # the first fork shares a part of what its parent says in the end
        await frontend.say(session_id)
        await frontend.turn_ended(session_id, number)
        created = await frontend.must(SessionFork(session_id))
        assert isinstance(created, Created)
        ids.append(created.session_id)

    def compare() -> None:
        with DaemonConnection(daemon.places, "test") as connection:

            def small_messages(op: Any, kind: type[Any]) -> Any:
                if isinstance(op, SessionGet):
                    raise RejectedError(Rejected(new_id(), "too_large", "as if"))
                return connection.ask(op, kind)

            for one in ids:
                whole = connection.ask(SessionGet(one), SessionResult).snapshot
                assert read_snapshot(small_messages, one) == whole

    await trio.to_thread.run_sync(compare)
