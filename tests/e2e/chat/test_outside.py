"""Other programs that `tiller chat` starts have the terminal to themselves."""

import time
from collections.abc import Callable
from pathlib import Path

from e2e.chat.test_chat import READY, newest
from e2e.gates import Gate
from e2e.words import bash, calls
from support.chat import ChatTerminal
from support.daemon import Daemon
from support.frontend import Frontend
from tiller_client.chat.terminal.pace import ANSWER_TIMEOUT_S, FRAMES_IN_FLIGHT_MAX
from tiller_client.chat.terminal.painter import ASK
from tiller_daemon.models.scripted import ScriptStep, TextPart, WaitPart

SPOKEN = "Said in the meantime."
PIECES_APART = WaitPart(0.1)
"""Time in which the chat could draw, but must not."""


async def test_a_slow_terminal_gets_the_newest_frame_and_no_queue_of_them(
    opens: Callable[..., ChatTerminal], daemon: Daemon, frontend: Frontend
) -> None:
    pieces = [part for number in range(20) for part in (TextPart(f"word {number} "), PIECES_APART)]
    chat = opens("-m", daemon.script(ScriptStep(parts=tuple(pieces))))
    await chat.shows(READY)
    session = await newest(frontend)
    frontend.follow(session.session_id)
    began, before = time.monotonic(), len(chat.written)
    chat.is_slow = True
    chat.press("go\r")
    await frontend.turn_ended(session.session_id)
    chat.press("typed")
    await chat.until(lambda: "typed" in chat.rows[chat.cursor[0]])
    given_up = (time.monotonic() - began) / ANSWER_TIMEOUT_S
    assert chat.written[before:].count(ASK) <= FRAMES_IN_FLIGHT_MAX + given_up
    chat.is_slow = False
    chat.answer()
    await chat.shows("word 19", "■ completed", "typed")


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


async def test_an_editor_whose_command_has_an_open_quote_is_named_and_the_text_stays(
    opens: Callable[..., ChatTerminal], daemon: Daemon
) -> None:
    chat = opens("-m", daemon.script(), VISUAL="vim 'x", size=(160, 24))
    await chat.shows(READY)
    chat.press("half a text\x07")
    await chat.sees("the text is unchanged: the variable VISUAL does not hold a valid command")
    assert "half a text" in chat.rows[chat.cursor[0]]
    assert "Traceback" not in chat.text
