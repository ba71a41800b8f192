"""`tiller chat --plain` prints whole lines, each once, and is controlled by typed commands."""

from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.gates import Gate
from e2e.words import always, bash, calls, text
from support.chat import ChatTerminal
from support.daemon import Daemon
from tiller_daemon.models.scripted import CallPart

Opens = Callable[..., ChatTerminal]

READY = "type the next task"


@pytest.mark.parametrize(("option", "term"), [(["--plain"], "xterm-256color"), ([], "dumb")])
async def test_a_turn_with_an_approval_is_typed_and_read_in_lines(
    opens: Opens, daemon: Daemon, option: list[str], term: str
) -> None:
    model = daemon.script(calls(bash("echo out > /var/tmp/never && false")), text("So be it. ", 9))
    ask = ("--sandbox", "workspace_write", "--approve", "ask")
    chat = opens("-m", model, *ask, *option, term=term)
    await chat.shows("type /help for help", READY)
    chat.press("do it\n")
    await chat.shows("? Run echo out > /var/tmp/never && false", "y once")
    chat.press("n use another directory\n")
    await chat.shows("So be it.", "use another directory")
    await chat.until(lambda: chat.text.count(READY) == 2)
    assert "\x1b" not in chat.written, "nothing moves, and nothing is coloured"
    assert chat.text.count("y once") == 1
    chat.press("/quit\n")
    assert await chat.end() == 0


async def test_a_running_turn_is_steered_queued_behind_and_interrupted(
    opens: Opens, daemon: Daemon, workspace: Path
) -> None:
    gates = [Gate(workspace, "one"), Gate(workspace, "two")]
    model = daemon.script(
        *(calls(bash(gates[0].command)), text("First done."), calls(bash(gates[1].command)))
    )
    chat = opens("-m", model, "--approve", "always", "--plain")
    await chat.shows(READY)
    chat.press("begin\n")
    await gates[0].reached()
    chat.press("also this\n/queue and then that\n")
    await chat.shows("for the next step: also this", "queued: and then that")
    gates[0].open()
    await chat.shows("First done.")
    await gates[1].reached()
    chat.press("/queue and at last\n")
    await chat.shows("queued: and at last")
    chat.press("/interrupt\n")
    await chat.shows("interrupted", "1 input waits; continue with: /continue")
    gates[1].close()


async def test_a_command_answers_no_question(opens: Opens, daemon: Daemon) -> None:
    question = CallPart("question", arguments={"text": "Which name?"})
    chat = opens("-m", daemon.script(calls(question), always("Fine.")), "--plain")
    await chat.shows(READY)
    chat.press("begin\n")
    await chat.shows("Which name?", "your answer")
    chat.press("/interrupt\n")
    await chat.shows("■ interrupted")
    assert "answered" not in chat.text


async def test_commands_set_help_and_say_what_is_wrong(opens: Opens, daemon: Daemon) -> None:
    other = daemon.script(always("I am the other."))
    chat = opens("-m", daemon.script(always("I am the first.")), "--plain")
    await chat.shows(READY)
    chat.press("/help\n")
    await chat.shows("runs your own\ncommand.", "/rename TITLE   give the session a title")
    chat.press("/model\n")
    await chat.shows("not sent: /model needs a value; see /help")
    chat.press(f"/model {other}\n")
    chat.press("a text that\\\n")
    chat.press("goes on\n")
    await chat.shows("I am the other.", "goes on")
    chat.press("!cat greeting.txt\n")
    await chat.shows("hello")
