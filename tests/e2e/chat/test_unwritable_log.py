"""A chat shows that a turn has ended, and why, although its end can't be stored."""

from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.gates import Gate
from e2e.words import always, bash, calls
from support.chat import ChatTerminal
from support.daemon import Daemon

Opens = Callable[..., ChatTerminal]


@pytest.mark.parametrize(
    ("option", "ready", "enter"),
    [((), "write a message", "\r"), (("--plain",), "type the next task", "\n")],
)
async def test_a_turn_whose_end_can_not_be_stored_is_shown_as_ended_and_the_chat_goes_on(
    opens: Opens,
    daemon: Daemon,
    workspace: Path,
    option: tuple[str, ...],
    ready: str,
    enter: str,
) -> None:
    gate = Gate(workspace)
    # A call that may write starts once the log says so.
    model = daemon.script(calls(bash(f"{gate.command} && touch done")), always("I see"))
    chat = opens("-m", model, "--approve", "always", *option)
    await chat.shows(ready)
    chat.press(f"do it{enter}")
    await gate.reached()
    daemon.limit_files(0)
    gate.open()
    await chat.until(lambda: "its end could not be stored" in " ".join(chat.text.split()))
    await chat.until(lambda: ready in chat.screen)
    assert not {"working", "running"} & set(chat.screen.split())
    daemon.limit_files()
    chat.press(f"go on{enter}")
    await chat.shows("could not write its log", "I see", ready)
    await chat.until(lambda: "its end could not be stored" not in chat.screen or option)
