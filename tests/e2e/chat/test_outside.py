"""Other programs in the terminal of `tiller chat`, which have it to themselves."""

from collections.abc import Callable
from pathlib import Path

from e2e.chat.test_chat import READY, newest
from e2e.gates import Gate
from e2e.words import bash, calls
from support.chat import ChatTerminal
from support.daemon import Daemon
from support.frontend import Frontend
from tiller_daemon.models.scripted import ScriptStep, TextPart, WaitPart

SPOKEN = "Said in the meantime."
PIECES_APART = WaitPart(0.2)
"""Time for the chat to draw, which it must not."""


async def test_nothing_is_drawn_over_the_users_editor_and_all_of_it_afterwards(
    opens: Callable[..., ChatTerminal], daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    command, editor = Gate(workspace), Gate(workspace, "editor")
    program = daemon.home / "editor"
    program.write_text(f"#!/bin/sh\necho EDITING\ncat {editor.path}\necho written >> $1\n")
    program.chmod(0o755)
    pieces = (TextPart(SPOKEN, 2), PIECES_APART, TextPart(" And more.", 2), PIECES_APART)
    model = daemon.script(calls(bash(command.command)), ScriptStep(parts=pieces))
    chat = opens("-m", model, "--approve", "always", EDITOR=str(program))
    await chat.shows(READY)
    chat.press("go\r")
    await command.reached()
    await chat.shows("steer with Enter")
    chat.press("half a text\x07")
    await chat.shows("EDITING")
    await editor.reached()
    before = len(chat.written)
    session = await newest(frontend)
    frontend.follow(session.session_id)
    command.open()
    await frontend.turn_ended(session.session_id)
    editor.open("EDITED\n")
    await chat.shows(SPOKEN, "And more.", "half a text")
    assert SPOKEN not in chat.written[before:].partition("EDITED")[0]
    assert "written" in chat.text, "what the editor has written is in the chat's own"
