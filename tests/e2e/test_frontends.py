"""Frontends come and go; sessions stay, and every frontend sees all events once, in order."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from e2e.clients import Tillers
from e2e.gates import Gate
from e2e.words import bash, calls, text
from support.daemon import Daemon
from support.frontend import TIMEOUT_S, Frontend
from tiller_daemon.models.scripted import ScriptStep, TextPart
from tiller_protocol.answers import SessionListResult
from tiller_protocol.codec import encode_event
from tiller_protocol.ops import SessionList


async def test_two_attached_frontends_see_the_same_list_byte_for_byte(
    frontend: Frontend, workspace: Path, daemon: Daemon, nursery: trio.Nursery
) -> None:
    """Two attached followers, one of them late → the same events, byte for byte."""
    gate = Gate(workspace)
    session_id = await frontend.session(
        workspace,
        text("many words " * 50, 50),
        calls(bash(gate.command), bash("seq 300")),
        text("done"),
    )
    early = await Frontend.connect(daemon, nursery, "early")
    early.follow(session_id)
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    await frontend.say(session_id)
    await gate.reached()
    late = await Frontend.connect(daemon, nursery, "late")
    late.follow(session_id)
    gate.open("on\n")
    for one in (frontend, early, late):
        await one.turn_ended(session_id, 2)
    seen = [[encode_event(e) for e in one.events(session_id)] for one in (frontend, early, late)]
    assert seen[0] == seen[1] == seen[2]
    for one in (early, late):
        await one.close()


@pytest.mark.promise("B30")
async def test_a_turn_goes_on_when_its_frontend_dies(
    frontend: Frontend, workspace: Path, daemon: Daemon, tillers: Tillers
) -> None:
    """The frontend dies in mid-turn → the turn goes on to its end."""
    gate = Gate(workspace)
    model = daemon.script(calls(bash(f"{gate.command}; touch after")), text("done"))
    where = ("-C", str(workspace), "-m", model, "--approve", "always")
    client = await tillers(daemon, "exec", "--json", *where, "go")
    await gate.reached()
    listed = await frontend.must(SessionList(str(workspace)))
    assert isinstance(listed, SessionListResult)
    (session,) = listed.sessions
    assert session.status == "busy"
    frontend.follow(session.session_id)
    client.process.kill()
    await client.process.wait()
    gate.open()
    ended = await frontend.turn_ended(session.session_id)
    assert (ended.outcome, ended.last_message) == ("completed", "done")
    assert (workspace / "after").exists()


@pytest.mark.parametrize("restarts", [False, True], ids=["daemon stays", "daemon restarts"])
@pytest.mark.promise("B53")
async def test_a_stopped_frontend_gets_every_event_once_in_order(
    new_daemon: Callable[[], Daemon],
    workspace: Path,
    nursery: trio.Nursery,
    tillers: Tillers,
    *,
    restarts: bool,
) -> None:
    """A frontend attaches with `after = n`, is stopped for a while, goes on → all, in order.

    Also when the daemon was killed and restarted meanwhile, so that the sent events are lost.
    """
    daemon = new_daemon()
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    noisy = ScriptStep(parts=(TextPart("words " * 100, 100), bash("seq 100"), bash("echo x")))
    session_id = await frontend.session(workspace, *[noisy, text("done", 4)] * 4)
    await _turn(frontend, session_id, 1)
    after = 7
    client = await tillers(daemon, "attach", "--json", "--after", str(after), session_id)
    await client.until(frontend.events(session_id)[-1].seq)
    client.stop()
    await _turn(frontend, session_id, 2)
    if restarts:
        daemon.restart()
        await frontend.reconnect()
    await _turn(frontend, session_id, 3)
    client.go_on()
    await _turn(frontend, session_id, 4)
    await client.until(frontend.events(session_id)[-1].seq)
    assert client.seen == (await frontend.log(session_id))[after:]
    client.process.send_signal(signal.SIGINT)
    with trio.fail_after(TIMEOUT_S):
        assert await client.process.wait() == 0
    await frontend.close()


async def _turn(frontend: Frontend, session_id: str, number: int) -> None:
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id, number)).outcome == "completed"
