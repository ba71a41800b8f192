"""`tiller` tells a real terminal what it does (OSC 7501), and nothing else gets these bytes."""

import re
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import trio

from e2e.chat.conftest import opens as opens
from e2e.gates import Gate
from e2e.words import bash, calls, text
from support.chat import ChatTerminal
from support.daemon import Daemon
from support.frontend import Frontend
from support.tmux import TMUX, Tmux
from tiller_daemon.models.scripted import CallPart

REPORT = re.compile(r"\x1b\]7501;([^\x1b\x07]*)\x1b\\")

CLEAR = {"state": "clear"}

Opens = Callable[..., ChatTerminal]


def reports(written: str) -> list[dict[str, str]]:
    """All reports in the output of a program, with plain texts."""
    found = [dict(pair.split("=", 1) for pair in one.split(":")) for one in REPORT.findall(written)]
    for one in found:
        one.update({key: b64decode(one[key]).decode() for key in ("msg", "title") if key in one})
    return found


@pytest.fixture
def runs(daemon: Daemon, workspace: Path) -> Generator[Opens]:
    """Yield a function that runs a verb in the workspace on a terminal."""
    with ExitStack() as stack:

        def start(*arguments: str, **more: Any) -> ChatTerminal:
            terminal = ChatTerminal.start(daemon, *arguments, workspace=workspace, **more)
            stack.callback(terminal.close)
            return terminal

        yield start


async def test_a_chat_tells_what_it_does_and_leaves_nothing(opens: Opens, daemon: Daemon) -> None:
    question = CallPart("question", arguments={"text": "Which colour?"})
    chat = opens("-m", daemon.script(calls(question), text("Blue it is.")))
    await chat.shows("write a message")
    chat.press("paint\r")
    await chat.shows("Which colour?")
    await chat.until(lambda: reports(chat.written)[-1]["state"] == "blocked")
    blocked = reports(chat.written)[-1]
    assert (blocked["kind"], blocked["app"]) == ("question", "tiller")
    assert "Which colour?" in blocked["msg"]
    chat.press("blue\r")
    await chat.shows("Blue it is.", "write a message")
    await chat.until(lambda: reports(chat.written)[-1]["state"] == "done")
    states = [one["state"] for one in reports(chat.written)]
    assert states[0] == "idle"
    assert [one for one in states if one != "working"] == ["idle", "blocked", "done"]
    assert reports(chat.written)[-1]["msg"] == "Blue it is."
    chat.press("\x04")  # Ctrl-D
    assert await chat.end() == 0
    assert reports(chat.written)[-1] == CLEAR


async def test_exec_leaves_its_result(runs: Opens, daemon: Daemon) -> None:
    terminal = runs("exec", "-m", daemon.script(text("Fixed.")), "mend it")
    assert await terminal.end() == 0
    told = reports(terminal.written)
    assert [one["state"] for one in told] == ["working", "done"]
    assert told[-1]["msg"] == "Fixed."


async def test_a_sub_agent_has_a_record_as_long_as_it_works(
    runs: Opens, daemon: Daemon, workspace: Path
) -> None:
    gate = Gate(workspace)  # what begins and ends between two frames is not told
    daemon.make_agent("helper", calls(bash(gate.command)), text("Helped."))
    task = CallPart("task", arguments={"prompt": "read it", "agent": "helper"})
    model = daemon.script(calls(task), text("Done."))
    terminal = runs("exec", "--approve", "always", "-m", model, "go")
    await terminal.until(lambda: any("id" in one for one in reports(terminal.written)))
    await gate.pass_one()
    assert await terminal.end() == 0
    children = [one for one in reports(terminal.written) if "id" in one]
    assert children[0] | {"id": ""} == {"state": "working", "id": "", "title": "helper: read it"}
    assert children[-1] == {"state": "clear", "id": children[0]["id"]}
    assert reports(terminal.written)[-1]["state"] == "done"


async def test_attach_leaves_nothing(runs: Opens, daemon: Daemon) -> None:
    await runs("exec", "-m", daemon.script(text("Fixed.")), "mend it").end()
    terminal = runs("attach", "last", "--until-idle")
    assert await terminal.end() == 0
    assert reports(terminal.written)[-1] == CLEAR


async def test_a_board_tells_what_its_sessions_do_and_leaves_nothing(
    new_daemon: Callable[..., Daemon], nursery: trio.Nursery, workspace: Path
) -> None:
    """A board has all sessions of its daemon, so this daemon has those of no other test."""
    daemon = new_daemon()
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    asks = calls(CallPart("question", arguments={"text": "Which colour?"}))
    session_id = await frontend.session(workspace, asks, text("Blue it is."))
    arguments = ("board", "-C", str(workspace))
    with closing(
        ChatTerminal.start(daemon, *arguments, workspace=workspace, size=(99, 9))
    ) as board:
        await board.until(lambda: [one["state"] for one in reports(board.written)] == ["idle"])
        await frontend.say(session_id)
        await board.until(lambda: reports(board.written)[-1].get("kind") == "question")
        by_id = {one.get("id", ""): one for one in reports(board.written)}
        assert len(by_id) == 2
        assert {one["state"] for one in by_id.values()} == {"blocked"}
        board.press("q")
        assert await board.end() == 0
        assert reports(board.written)[-1] == CLEAR
    await frontend.close()


@pytest.mark.parametrize(
    "variables", [{"TILLER_STATUS": "none"}, {"term": "dumb"}, {"term": "linux"}]
)
async def test_who_does_not_want_reports_gets_none(
    runs: Opens, daemon: Daemon, variables: dict[str, str]
) -> None:
    terminal = runs("exec", "-m", daemon.script(text("Fixed.")), "mend it", **variables)
    assert await terminal.end() == 0
    assert "Fixed." in terminal.text
    assert "\x1b]7501" not in terminal.written


async def test_json_on_a_terminal_has_no_report(runs: Opens, daemon: Daemon) -> None:
    terminal = runs("exec", "--json", "-m", daemon.script(text("Fixed.")), "mend it")
    assert await terminal.end() == 0
    assert "Fixed." in terminal.text
    assert "\x1b]7501" not in terminal.written


@pytest.mark.parametrize("options", [(), ("--json",), ("--quiet",)])
def test_a_pipe_gets_no_report(daemon: Daemon, workspace: Path, options: tuple[str, ...]) -> None:
    model = daemon.script(text("Fixed."))
    ran = subprocess.run(
        [sys.executable, "-m", "tiller_client", "exec", *options, "-m", model, "mend it"],
        cwd=workspace,
        env={**daemon.variables, "TERM": "xterm-256color"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    assert b"\x1b]7501" not in ran.stdout + ran.stderr


@pytest.mark.skipif(TMUX is None, reason="needs tmux")
def test_tmux_shows_nothing_of_a_report(daemon: Daemon, workspace: Path) -> None:
    command = [sys.executable, "-m", "tiller_client", "exec", "-m"]
    command += [daemon.script(text("Fixed.")), "mend it"]
    with Tmux() as tmux:
        channel = "ended"
        script = f'cd "{workspace}"; {" ".join(map(repr, command))}; tmux wait-for -S {channel}'
        variables = {name: value for name, value in daemon.variables.items() if name != "PATH"}
        tmux.run("new-session", "-d", "-x", "80", "-y", "24", script, **variables)
        tmux.run("wait-for", channel)
        shown = tmux.run("capture-pane", "-p", "-S", "-100")
    assert "Fixed." in shown
    assert "7501" not in shown
