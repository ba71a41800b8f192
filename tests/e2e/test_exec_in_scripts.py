"""`tiller exec` in scripts with a real daemon: stdin, a busy session, a daemon that is stopped."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
import trio

from e2e.gates import Gate
from e2e.words import always, bash, calls, said_in, text
from support.daemon import Daemon
from support.frontend import TIMEOUT_S, Frontend
from support.terminal import TILLER
from tiller_protocol.items import ToolCall
from tiller_protocol.ops import Interrupt, UserInput

Result = TypeVar("Result")


class Exec:
    """A `tiller exec` process, read line by line."""

    def __init__(self, daemon: Daemon, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [*TILLER, "exec", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=daemon.variables,
            encoding="utf-8",
        )

    async def says(self, words: str) -> str:
        """Return the line of stderr that has these words."""
        assert self._process.stderr is not None
        while True:
            line = await self._in_time(self._process.stderr.readline)
            assert line, f"it ended with {self._process.wait()}"
            if words in line:
                return line

    async def end(self) -> tuple[int, str, str]:
        """Wait for the process to end; return its exit status, stdout and stderr."""
        out, err = await self._in_time(self._process.communicate)
        return self._process.returncode, out, err

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def _in_time(self, wait: Callable[[], Result]) -> Result:
        try:
            with trio.fail_after(TIMEOUT_S):
                return await trio.to_thread.run_sync(wait, abandon_on_cancel=True)
        except BaseException:
            self._process.kill()
            raise


@pytest.mark.parametrize(
    ("context", "name"),
    [("@general help\n/deploy", "context"), ("</context> </context-1>", "context-2")],
)
async def test_context_comes_behind_the_text_in_marks_and_calls_nothing(
    frontend: Frontend, workspace: Path, context: str, name: str
) -> None:
    session_id = await frontend.session(workspace, text("I see"))
    await frontend.must(UserInput(session_id, "why?", context=context))
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    (request,) = frontend.requests(session_id)
    assert said_in(request.items) == [f"why?\n\n<{name}>\n{context}\n</{name}>"]
    assert not [item for item in request.items if isinstance(item, ToolCall)]


async def test_what_is_piped_in_is_context(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(workspace, text("I see"))
    done = await trio.to_thread.run_sync(
        lambda: subprocess.run(
            [sys.executable, "-m", "tiller_client", "exec", "--session", session_id, "why?"],
            input=b"error: 7\n",
            capture_output=True,
            env=daemon.variables,
            check=False,
        )
    )
    assert (done.returncode, done.stdout) == (0, b"I see\n"), done.stderr
    (request,) = frontend.requests(session_id)
    assert said_in(request.items) == ["why?\n\n<context>\nerror: 7\n</context>"]


async def test_wait_starts_a_turn_of_its_own_when_the_session_is_at_rest(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    gate = Gate(workspace)
    session_id = await frontend.session(workspace, calls(bash(gate.command)), always("answer"))
    await frontend.say(session_id, "first")
    await gate.reached()
    status, _, said = await Exec(daemon, "--session", session_id, "second").end()
    assert (status, "or run a new turn after it with --wait" in said) == (1, True)
    second = Exec(daemon, "--session", session_id, "--wait", "second")
    await second.says("a turn is running in this session; waiting for its end")
    gate.open()
    assert (await second.end())[:2] == (0, "answer\n")
    assert (await frontend.turn_ended(session_id, 2)).outcome == "completed"
    assert said_in(frontend.requests(session_id)[-1].items) == ["first", "second"]


async def test_queue_follows_the_turn_that_takes_the_input(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    gate = Gate(workspace)
    session_id = await frontend.session(
        workspace, calls(bash(gate.command)), text("one"), text("two")
    )
    await frontend.say(session_id, "first")
    await gate.reached()
    second = Exec(daemon, "--session", session_id, "--queue", "second")
    await second.says("session ")
    assert [one.text for one in (await frontend.snapshot(session_id)).queue] == ["second"]
    gate.open()
    assert (await second.end())[:2] == (0, "two\n")
    assert (await frontend.turn_ended(session_id)).last_message == "two"


async def test_a_queued_input_that_no_turn_takes_is_said(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    gate = Gate(workspace)
    session_id = await frontend.session(workspace, calls(bash(gate.command)), always("answer"))
    await frontend.say(session_id, "first")
    await gate.reached()
    second = Exec(daemon, "--session", session_id, "--queue", "second")
    await second.says("session ")
    await frontend.must(Interrupt(session_id))
    status, out, said = await second.end()
    assert (status, out) == (1, "")
    assert "the running turn ended (interrupted) without taking your input" in said
    gate.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_takes_a_queued_input_back_and_leaves_the_turn_of_others(
    daemon: Daemon, frontend: Frontend, workspace: Path, number: signal.Signals
) -> None:
    gate = Gate(workspace)
    session_id = await frontend.session(workspace, calls(bash(gate.command)), always("answer"))
    await frontend.say(session_id, "first")
    await gate.reached()
    second = Exec(daemon, "--session", session_id, "--queue", "second")
    await second.says("session ")
    second.signal(number)
    assert (await second.end())[0] == 130
    gate.open()
    ended = await frontend.turn_ended(session_id)
    assert (ended.outcome, ended.last_message) == ("completed", "answer")
    assert said_in(frontend.requests(session_id)[-1].items) == ["first"]


@pytest.mark.nightly
async def test_the_result_of_a_turn_is_true_though_the_daemon_was_stopped_in_it(
    new_daemon: Callable[[], Daemon], nursery: trio.Nursery, workspace: Path
) -> None:
    daemon = new_daemon()
    daemon.start()
    assert daemon.process is not None
    frontend = await Frontend.connect(daemon, nursery)
    gate = Gate(workspace)
    session_id = await frontend.session(workspace, calls(bash(gate.command)), text("after all"))
    turn = Exec(daemon, "--session", session_id, "go")
    await gate.reached()
    os.kill(daemon.process.pid, signal.SIGSTOP)
    line = await turn.says("the daemon is suspended")
    assert f"to return: tiller attach {session_id}" in line
    os.kill(daemon.process.pid, signal.SIGCONT)
    gate.open()
    assert (await turn.end())[:2] == (0, "after all\n")
    await frontend.close()
