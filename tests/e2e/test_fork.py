"""Forks: sessions that continue from any event of another session."""

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from e2e.gates import Gate
from e2e.words import always, bash, calls, calls_in, said_in, text
from support.daemon import Daemon
from support.frontend import Frontend
from support.terminal import TILLER, Terminal
from tiller_protocol.answers import Created
from tiller_protocol.codec import encode_event
from tiller_protocol.events import SessionCreated, TurnEnded
from tiller_protocol.ids import ULID_CHARS
from tiller_protocol.ops import SessionDelete, SessionFork
from tiller_protocol.settings import TurnOverrides


async def _fork(frontend: Frontend, session_id: str, at: int | None = None) -> str:
    created = await frontend.must(SessionFork(session_id, at))
    assert isinstance(created, Created)
    frontend.follow(created.session_id)
    return created.session_id


@pytest.mark.promise("B56")
async def test_parent_and_fork_go_on_independently_and_nothing_is_copied(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """Fork in the middle of history → both go on at the same time, and neither sees the other."""
    long = "w" * 100_000
    gates = [Gate(workspace, name) for name in ("of-parent", "of-fork")]
    steps = (text(long), text("two"), calls(bash(gates[0].command)), always("of the parent"))
    parent = await frontend.session(workspace, *steps)
    await frontend.say(parent, "one")
    first = await frontend.until_body(parent, TurnEnded)
    await frontend.turn_ended(parent)
    await frontend.say(parent, "two")
    await frontend.turn_ended(parent, 2)
    events_of_parent = await frontend.log(parent)
    fork = await _fork(frontend, parent, first.seq)
    (created,) = await frontend.log(fork)
    assert isinstance(created.body, SessionCreated)
    assert (created.body.parent_id, created.body.parent_seq) == (parent, first.seq)
    assert len(encode_event(created)) < 1_000
    assert await frontend.log(parent) == events_of_parent
    of_fork = daemon.script(text("before"), calls(bash(gates[1].command)), text("of the fork"))
    await frontend.say(parent, "three")
    await frontend.say(fork, "other", overrides=TurnOverrides(model=of_fork))
    for gate in gates:
        await gate.reached()
    for gate in reversed(gates):
        gate.open(gate.command)
    assert (await frontend.turn_ended(parent, 3)).last_message == "of the parent"
    assert (await frontend.turn_ended(fork)).last_message == "of the fork"
    assert said_in(frontend.requests(parent)[-1].items) == ["one", "two", "three"]
    request = frontend.requests(fork)[-1]
    assert said_in(request.items) == ["one", "other"]
    assert [call.output for call in calls_in(request.items)] == [gates[1].command]


@pytest.mark.promise("B56")
async def test_a_fork_is_whole_after_a_kill_and_keeps_its_parent(
    new_daemon: Callable[[], Daemon], workspace: Path, nursery: trio.Nursery
) -> None:
    """`kill -9` → the fork has the history it shares; the parent can't be deleted before it."""
    daemon = new_daemon()
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    parent = await frontend.session(workspace, calls(bash("echo shared")), always("ok"))
    await frontend.say(parent, "one")
    await frontend.turn_ended(parent)
    fork = await _fork(frontend, parent)
    grandchild = await _fork(frontend, fork)
    before = await frontend.snapshot(grandchild)
    daemon.restart()
    await frontend.reconnect()
    assert await frontend.snapshot(grandchild) == before
    await frontend.say(grandchild, "two")
    await frontend.turn_ended(grandchild)
    request = frontend.requests(grandchild)[-1]
    assert said_in(request.items) == ["one", "two"]
    assert [call.output.strip() for call in calls_in(request.items)] == ["shared"]
    assert (await frontend.refused(SessionDelete(parent))).code == "busy"
    await frontend.close()


async def test_a_person_is_told_what_a_fork_is_and_a_pipe_gets_its_id(
    frontend: Frontend, workspace: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await frontend.session(workspace, always("answer"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    for name, value in daemon.variables.items():
        monkeypatch.setenv(name, value)
    terminal = Terminal("fork", session_id, columns=200)
    end = await trio.to_thread.run_sync(terminal.end)
    assert end == 0
    assert (
        f"is a fork of {session_id[-8:]} at turn 1; continue with: tiller exec" in terminal.screen
    )
    done = await trio.run_process([*TILLER, "fork", session_id], capture_stdout=True)
    assert len(done.stdout) == ULID_CHARS + 1
