"""Background commands outlive their call and turn, and end with their session."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from e2e.test_interrupt import STUBBORN
from e2e.words import bash, calls, hang, text
from support.daemon import Daemon, gone
from support.frontend import Frontend
from tiller_daemon.models.scripted import CallPart
from tiller_protocol.events import BackgroundChanged, Event, ItemDelta
from tiller_protocol.items import BackgroundCommand, ToolCall
from tiller_protocol.ops import Interrupt, SessionArchive, SessionDelete, Shutdown
from tiller_protocol.settings import Rule

SERVER = "echo pid $$; touch served; read -r line; echo got $line; sleep 1000"


def start(command: str, **more: Any) -> CallPart:
    return bash(command, background=True, **more)


def look(command_id: str = "b1", wait_s: float = 20.0) -> CallPart:
    return CallPart("bash_output", arguments={"id": command_id, "wait_s": wait_s})


def kill(command_id: str = "b1") -> CallPart:
    return CallPart("bash_kill", arguments={"id": command_id})


def type_in(words: str) -> CallPart:
    return CallPart("bash_input", arguments={"id": "b1", "text": words, "wait_s": 20.0})


async def state(frontend: Frontend, session_id: str, wanted: str) -> BackgroundCommand:
    """Wait until the newest background command is in a state."""

    def is_it(event: Event) -> bool:
        body = event.body
        return isinstance(body, BackgroundChanged) and body.background[-1].state == wanted

    event = await frontend.until(session_id, is_it)
    assert isinstance(event.body, BackgroundChanged)
    return event.body.background[-1]


def pids(call: ToolCall) -> list[int]:
    lines = call.output.splitlines()
    return [int(line.removeprefix("pid ")) for line in lines if line.startswith("pid ")]


async def test_a_background_command_goes_on_when_its_turn_has_ended_and_is_looked_at_later(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(
        workspace, calls(start(SERVER)), text("it runs"), calls(type_in("hello\n")), text("done")
    )
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    (started,) = frontend.completed_calls(session_id)
    (pid,) = pids(started)
    assert "b1 runs in the background" in started.output
    assert not gone(pid)
    await frontend.say(session_id)
    await frontend.turn_ended(session_id, 2)
    typed = frontend.completed_calls(session_id)[-1]
    assert "got hello" in typed.output
    assert f"pid {pid}" not in typed.output
    await frontend.must(Interrupt(session_id, background_id="b1"))
    assert (await state(frontend, session_id, "killed")).ended_at is not None
    assert gone(pid)


async def test_an_interrupt_lets_it_live_and_bash_kill_ends_all_of_its_processes(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(
        workspace, calls(start(STUBBORN)), hang("working"), calls(kill()), text("ended")
    )
    await frontend.say(session_id)
    await frontend.until(
        session_id, lambda e: isinstance(e.body, ItemDelta) and e.body.delta == "working"
    )
    await frontend.must(Interrupt(session_id))
    assert (await frontend.turn_ended(session_id)).outcome == "interrupted"
    (started,) = frontend.completed_calls(session_id)
    assert len(pids(started)) == 3
    assert not any(gone(pid) for pid in pids(started))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id, 2)
    assert all(gone(pid) for pid in pids(started))
    assert "b1 was ended" in frontend.completed_calls(session_id)[-1].output


async def test_its_end_is_told_to_frontends_and_its_output_is_there_until_somebody_looks(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(
        workspace, calls(start("sleep 1.2; echo late; exit 3")), calls(look()), text("I see")
    )
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    ended = await state(frontend, session_id, "exited")
    assert ended.exit_status == 3
    assert await trio.Path(ended.output_path).read_text() == "late\n"
    snapshot = await frontend.snapshot(session_id)
    assert snapshot.background == (ended,)


async def test_a_mistake_shows_in_the_call_that_starts_it(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(workspace, calls(start("nosuchthing")), text("oh"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    (call,) = frontend.completed_calls(session_id)
    assert call.error_kind == "failed"
    assert "not found" in call.output
    assert "b1 exited with status 127" in call.output


async def test_a_terminal_is_there_for_those_who_want_one(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(
        workspace,
        calls(bash("test -t 0 && test -t 1 && tty && stty size", pty=True)),
        calls(
            start(
                "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.1; done", pty=True
            )
        ),
        calls(type_in("\x03")),
        calls(look()),
        text("done"),
    )
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    plain, _, typed, looked = frontend.completed_calls(session_id)
    assert plain.state == "completed"
    assert "/dev/" in plain.output
    assert "40 120" in plain.output
    assert "\r" not in plain.output
    # The terminal shows the key at once; the program's output about it may come later.
    assert "caught" in typed.output + looked.output
    assert (await state(frontend, session_id, "exited")).exit_status == 7


async def test_an_unknown_one_is_an_error_that_names_those_there_are(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(
        workspace, calls(start("sleep 100")), calls(look("b7", 0.0)), text("oh")
    )
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    call = frontend.completed_calls(session_id)[-1]
    assert call.error_kind == "failed"
    assert "Yours: b1" in call.output
    await frontend.must(Interrupt(session_id, background_id="b1"))
    await state(frontend, session_id, "killed")
    refused = await frontend.refused(Interrupt(session_id, background_id="b1"))
    assert refused.code == "not_found"


async def test_it_ends_when_its_session_is_put_away(frontend: Frontend, workspace: Path) -> None:
    session_id = await frontend.session(workspace, calls(start(STUBBORN)), text("it runs"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    await frontend.must(SessionArchive(session_id))
    await state(frontend, session_id, "killed")
    (started,) = frontend.completed_calls(session_id)
    assert all(gone(pid) for pid in pids(started))


async def test_it_ends_with_its_session(frontend: Frontend, workspace: Path) -> None:
    session_id = await frontend.session(workspace, calls(start(STUBBORN)), text("it runs"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    (started,) = frontend.completed_calls(session_id)
    assert not any(gone(pid) for pid in pids(started))
    await frontend.must(SessionDelete(session_id))
    frontend.forget(session_id)
    assert all(gone(pid) for pid in pids(started))


@pytest.mark.nightly
async def test_it_ends_with_the_daemon_whether_that_is_stopped_or_killed(
    new_daemon: Callable[..., Daemon], nursery, workspace: Path
) -> None:
    """If stopped, the daemon ends them and logs it. If killed, the next start ends them."""
    daemon = new_daemon()
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    session_id = await frontend.session(
        workspace, calls(start(STUBBORN)), text("one"), calls(start(STUBBORN)), text("two")
    )
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    await frontend.must(Shutdown("now"))
    await daemon.ended()
    first = frontend.completed_calls(session_id)[0]
    assert all(gone(pid) for pid in pids(first))
    daemon.start()
    await frontend.reconnect()
    assert [one.state for one in (await frontend.snapshot(session_id)).background] == ["killed"]
    await frontend.say(session_id)
    await frontend.turn_ended(session_id, 2)
    daemon.kill9()
    daemon.start()
    await frontend.reconnect()
    second = frontend.completed_calls(session_id)[-1]
    assert all(gone(pid) for pid in pids(second))
    states = [one.state for one in (await frontend.snapshot(session_id)).background]
    assert states == ["killed", "lost"]
    await frontend.close()


async def test_looking_again_and_again_is_no_doom_loop(frontend: Frontend, workspace: Path) -> None:
    session_id = await frontend.session(
        workspace,
        calls(start("for n in 1 2 3 4 5; do echo $n; sleep 0.6; done")),
        *(calls(look(wait_s=5.0)) for _ in range(4)),
        text("done"),
        approve="ask",
        permissions=(Rule("bash", "*", "allow"),),
    )
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    await state(frontend, session_id, "exited")
