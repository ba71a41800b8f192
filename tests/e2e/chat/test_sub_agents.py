"""In `tiller chat` a sub-agent's current work is shown below the call that started it."""

from collections.abc import Callable
from pathlib import Path

from e2e.gates import Gate
from e2e.words import bash, calls, read, text
from support.chat import ChatTerminal
from support.daemon import Daemon
from tiller_daemon.models.scripted import CallPart

Opens = Callable[..., ChatTerminal]

READY = "write a message"


def task(agent: str, prompt: str = "help", **more: object) -> CallPart:
    return CallPart("task", arguments={"prompt": prompt, "agent": agent, **more})


async def test_a_sub_agent_shows_its_calls_below_its_own_and_opens(
    opens: Opens, daemon: Daemon, workspace: Path
) -> None:
    gate = Gate(workspace)
    daemon.make_agent(
        "helper", calls(read("greeting.txt")), calls(bash(gate.command)), text("Helped.")
    )
    chat = opens("-m", daemon.script(calls(task("helper")), text("Done.")), "--approve", "always")
    await chat.shows(READY)
    chat.press("go\r")
    await gate.reached()
    await chat.shows("○ task", "helper · 1 step")
    await chat.until(lambda: below(chat, "    ● read greeting.txt ok"))
    await chat.until(lambda: below(chat, f"    ○ bash {gate.command} running"))
    assert chat.text.count("read greeting.txt") == 1
    chat.press("\x0f")  # Ctrl-O
    gate.open("let through")
    await chat.shows("Done.", READY)
    # In the opened view, all calls of the sub-agent stay below the finished call.
    assert "    ● read greeting.txt ok" in chat.text
    assert f"    ● bash {gate.command}" in chat.text


async def test_a_finished_sub_agent_is_folded_to_what_it_has_spent(
    opens: Opens, daemon: Daemon, workspace: Path
) -> None:
    daemon.make_agent("helper", calls(read("greeting.txt")), text("Helped."))
    chat = opens("-m", daemon.script(calls(task("helper")), text("Done.")), "--approve", "always")
    await chat.shows(READY)
    chat.press("go\r")
    await chat.shows("Done.", "● task", "helper · 2 steps", READY)
    assert "read greeting.txt" not in chat.text


async def test_a_background_sub_agent_is_shown_while_the_session_is_idle(
    opens: Opens, daemon: Daemon, workspace: Path
) -> None:
    gate = Gate(workspace)
    daemon.make_agent("helper", calls(bash(gate.command)), text("Helped."), read_only=True)
    model = daemon.script(calls(task("helper", background=True)), text("Go on."), text("Heard."))
    chat = opens("-m", model, "--approve", "always")
    await chat.shows(READY)
    chat.press("go\r")
    await gate.reached()
    await chat.shows("Go on.", "in the background", READY)
    await chat.until(lambda: below(chat, f"    ○ bash {gate.command} running"))
    gate.open()
    await chat.shows("Heard.")
    await chat.until(lambda: not below(chat, f"    ○ bash {gate.command}"))


async def test_the_question_of_a_background_sub_agent_is_answered_in_the_chat(
    opens: Opens, daemon: Daemon, workspace: Path
) -> None:
    question = CallPart("question", arguments={"text": "Which colour?"})
    daemon.make_agent("helper", calls(question), text("Painted."), read_only=True)
    model = daemon.script(calls(task("helper", background=True)), text("Go on."), text("Heard."))
    chat = opens("-m", model)
    await chat.shows(READY)
    chat.press("go\r")
    await chat.sees("? helper: Which colour?", "type your answer; Enter answers")
    chat.press("blue\r")
    await chat.shows("Painted.", "Heard.", READY)
    assert "· [This is not from the user." in chat.text


async def test_the_sub_agent_of_a_sub_agent_is_shown_below_it(
    opens: Opens, daemon: Daemon, workspace: Path
) -> None:
    gate = Gate(workspace)
    daemon.make_agent("inner", calls(bash(gate.command)), text("Helped."))
    daemon.make_agent("outer", calls(task("inner")), text("Helped."))
    chat = opens("-m", daemon.script(calls(task("outer")), text("Done.")), "--approve", "always")
    await chat.shows(READY)
    chat.press("go\r")
    await gate.reached()
    await chat.until(lambda: below(chat, "    ○ task"))
    await chat.until(lambda: below(chat, f"        ○ bash {gate.command} running"))
    gate.open()
    await chat.shows("Done.", READY)


def below(chat: ChatTerminal, begin: str) -> bool:
    """Whether a row of the screen begins with this text."""
    return any(row.startswith(begin) for row in chat.rows)
