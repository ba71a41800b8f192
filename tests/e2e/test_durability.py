"""Durability: the daemon is killed or stopped at the worst moments, then started again.

`_check_recovered` checks the state after every case. When a frontend leaves, it checks the rules
for every session: numbers without a gap, the life cycle, valid requests.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from e2e.gates import Gate
from e2e.words import always, bash, calls, calls_in, hang, said_in
from support.daemon import STOP_S, Daemon, gone, guards, marked
from support.frontend import Frontend, new_id
from tiller_daemon.models.scripted import ScriptStep, TextPart, WaitPart
from tiller_protocol.answers import (
    Accepted,
    Queued,
    Rejected,
    SessionListResult,
    Started,
    Steered,
)
from tiller_protocol.events import ItemCompleted, ItemDelta, RequestResolved, TurnEnded, TurnStarted
from tiller_protocol.items import (
    AssistantMessage,
    Notice,
)
from tiller_protocol.ops import Answer, SessionList, Shutdown, UserInput

STUBBORN = """
(trap '' TERM; echo > ready1; while :; do sleep 100; done) &
setsid bash -c 'echo > ready2; exec sleep 100' &
cat gate
sleep 100
"""


NIGHTLY = [pytest.mark.nightly]

KILLED_AFTER = [pytest.param(seen, marks=[] if seen % 8 == 1 else NIGHTLY) for seen in range(1, 32)]
"""After how many events: each in a nightly run, every eighth in others."""


@pytest.fixture
def daemon(new_daemon: Callable[[], Daemon]) -> Daemon:
    """Make a daemon for this test alone, since it is going to die."""
    daemon = new_daemon()
    daemon.start()
    return daemon


@pytest.mark.promise("B49")
async def test_kill_during_a_call_leaves_it_lost_and_no_process(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """`kill -9` during a call → the turn is closed, the call is `lost`, its processes are dead."""
    gate = Gate(workspace)
    command = f"echo once >> effects; {STUBBORN}"
    session_id = await frontend.session(workspace, calls(bash(command)), always("I see"))
    await frontend.say(session_id)
    await gate.reached()
    before = marked(f"TILLER_DAEMON={frontend.log_id}")
    assert len(before) >= 3
    daemon.restart()
    assert [pid for pid in before if not gone(pid)] == []
    await _check_recovered(frontend, session_id)
    (call,) = calls_in(frontend.requests(session_id)[-1].items)
    assert call.error_kind == "lost"
    assert (workspace / "effects").read_text() == "once\n"


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.promise("B49")
async def test_what_outlives_daemon_and_reapers_is_swept_at_the_next_start(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """Daemon and reapers killed together → their commands live on until the next start."""
    gate = Gate(workspace)
    session_id = await frontend.session(workspace, calls(bash(STUBBORN)), always("I see"))
    await frontend.say(session_id)
    await gate.reached()
    commands = marked(f"TILLER_DAEMON={frontend.log_id}")
    helpers = guards(frontend.log_id)
    # The fork server first, as it ends reapers that are stopped.
    for pid in sorted(helpers, key=lambda pid: _parent(pid) in helpers):
        # Each of these processes would end a command when it sees that another one has died.
        os.kill(pid, signal.SIGSTOP)
    daemon.kill9()
    for pid in helpers:
        os.kill(pid, signal.SIGKILL)
    assert [pid for pid in commands if gone(pid)] == []
    daemon.start()
    assert [pid for pid in commands if not gone(pid)] == []
    await _check_recovered(frontend, session_id)


@pytest.mark.promise("B49")
async def test_kill_in_mid_stream_keeps_what_was_said(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """`kill -9` in mid-stream → what was seen of the answer is there, as `interrupted`."""
    session_id = await frontend.session(workspace, hang("half a thought"), always("I see"))
    await frontend.say(session_id)
    await frontend.until_body(session_id, ItemDelta)
    daemon.restart()
    await _check_recovered(frontend, session_id)
    bodies = [event.body for event in frontend.events(session_id)]
    items = [body.item for body in bodies if isinstance(body, ItemCompleted)]
    states = {i.text: i.state for i in items if isinstance(i, AssistantMessage)}
    assert states["half a thought"] == "interrupted"


@pytest.mark.promise("B49")
async def test_kill_while_an_approval_is_open_cancels_it(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """`kill -9` while an approval is open → `cancelled`; the call never ran; nobody can answer."""
    session_id = await frontend.session(
        workspace, calls(bash("touch asked")), always("I see"), approve="ask"
    )
    await frontend.say(session_id)
    request = await frontend.request_opened(session_id)
    daemon.restart()
    await _check_recovered(frontend, session_id)
    resolved = (await frontend.until_body(session_id, RequestResolved)).body
    assert isinstance(resolved, RequestResolved)
    assert (resolved.request_id, resolved.resolution) == (request.id, "cancelled")
    (call,) = calls_in(frontend.requests(session_id)[-1].items)
    assert call.error_kind == "aborted"
    late = await frontend.refused(Answer(request.id, "once"))
    assert (late.code, late.data) == ("already_resolved", {"resolution": "cancelled", "by": ""})
    assert not (workspace / "asked").exists()


@pytest.mark.parametrize("seen", KILLED_AFTER)
@pytest.mark.promise("B49")
async def test_kill_after_any_event_loses_nothing_that_was_seen(
    frontend: Frontend, workspace: Path, daemon: Daemon, seen: int
) -> None:
    """`kill -9` between the ack and the end, after each event → what was seen is still there.

    The model is slow, so that the daemon is not far beyond the event that the kill follows.
    """
    pause = WaitPart(0.03)
    slow = (TextPart("I"), pause, TextPart(" look"), pause, bash("echo x >> effects"), pause)
    session_id = await frontend.session(
        workspace,
        ScriptStep(parts=slow),
        calls(bash("cat effects")),
        ScriptStep(parts=(pause, TextPart("so it"), pause, TextPart(" is"), pause)),
        always("I see"),
    )
    before = len(frontend.events(session_id))
    await frontend.say(session_id)
    await frontend.until(session_id, lambda _: True, before + seen)
    daemon.restart()
    await _check_recovered(frontend, session_id)
    effects = workspace / "effects"
    assert not effects.exists() or effects.read_text() == "x\n"


@pytest.mark.promise("B49")
async def test_kill_with_several_sessions_at_work_closes_all_of_them(
    frontend: Frontend, workspace: Path, daemon: Daemon, nursery: trio.Nursery
) -> None:
    """`kill -9` with five sessions in mid-turn → all closed before anyone asks; each goes on."""
    steps = (calls(bash("sleep 100")), always("I see"))
    session_ids = [await frontend.session(workspace, *steps) for _ in range(5)]
    for session_id in session_ids:
        await frontend.say(session_id)
        await frontend.until_call(session_id, "running")
    daemon.restart()
    assert marked(f"TILLER_DAEMON={frontend.log_id}") == set()
    second = await Frontend.connect(daemon, nursery, "second")
    listed = await second.must(SessionList(str(workspace)))
    assert isinstance(listed, SessionListResult)
    heads = {session.session_id: session.head for session in listed.sessions}
    for session_id in session_ids:
        await _check_recovered(frontend, session_id)
        ended = await frontend.until_body(session_id, TurnEnded)
        assert ended.seq <= heads[session_id]
    await second.close()


@pytest.mark.promise("B22")
async def test_the_same_submission_has_the_same_answer_after_a_restart(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """The same submission id, also across a daemon restart → one effect, the same ack."""
    session_id = await frontend.session(workspace, always("once"))
    accepted = UserInput(session_id, "go"), new_id()
    rejected = UserInput(session_id, "left", delivery="steer"), new_id()
    answers = [await frontend.ask(*rejected), await frontend.ask(*accepted)]
    assert isinstance(answers[0], Rejected)
    assert isinstance(answers[1], Accepted)
    await frontend.turn_ended(session_id)
    # The first one after a start must be looked up, whichever it is.
    for order in (1, -1):
        daemon.restart()
        await frontend.reconnect()
        again = [await frontend.ask(*one) for one in (rejected, accepted)[::order]]
        assert again == answers[::order]
    assert len(frontend.requests(session_id)) == 1
    assert said_in(frontend.requests(session_id)[0].items) == ["go"]


@pytest.mark.parametrize(
    "number", [0, pytest.param(1, marks=NIGHTLY), 2, pytest.param(3, marks=NIGHTLY)]
)
@pytest.mark.promise("G3")
async def test_a_submission_whose_answer_was_lost_takes_effect_once(
    frontend: Frontend, workspace: Path, daemon: Daemon, number: int
) -> None:
    """The daemon is killed before the ack arrives; sent again → one effect, and a true ack."""
    session_id = await frontend.session(workspace, always("once"))
    op, submission_id = UserInput(session_id, "go"), new_id()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(frontend.ask, op, submission_id)
        for _ in range(3 * number):
            await trio.lowlevel.checkpoint()
        daemon.restart()
        nursery.cancel_scope.cancel()
    await frontend.reconnect()
    answer = await frontend.ask(op, submission_id)
    assert isinstance(answer, Accepted)
    assert isinstance(answer.result, Started)
    await frontend.turn_ended(session_id)
    assert await frontend.ask(op, submission_id) == answer
    turns = [e.turn_id for e in frontend.events(session_id) if isinstance(e.body, TurnStarted)]
    assert turns == [answer.result.turn_id]


@pytest.mark.promise("G10")
async def test_input_that_was_acked_and_not_delivered_survives_a_kill(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """`kill -9` with a steer and a follow-up waiting → both are in the queue and delivered."""
    gate = Gate(workspace)
    session_id = await frontend.session(
        workspace, calls(bash(f"{gate.command}; touch x")), always("I see"), follow_ups="all"
    )
    await frontend.say(session_id)
    await gate.reached()
    assert isinstance(await frontend.say(session_id, "steer", delivery="steer"), Steered)
    assert isinstance(await frontend.say(session_id, "later", delivery="queue"), Queued)
    daemon.restart()
    await frontend.reconnect()
    await frontend.turn_ended(session_id)
    queue = (await frontend.snapshot(session_id)).queue
    assert [(i.text, i.delivery) for i in queue] == [("steer", "queue"), ("later", "queue")]
    await frontend.say(session_id, "go on")
    await frontend.turn_ended(session_id, 2)
    said = said_in(frontend.requests(session_id)[-1].items)
    assert said == ["go", "steer", "later", "go on"]
    assert (await frontend.snapshot(session_id)).queue == ()


@pytest.mark.parametrize("moment", ["call", "stream", "approval"])
@pytest.mark.promise("B52")
async def test_sigterm_in_mid_turn_interrupts_it_and_leaves_in_time(
    frontend: Frontend, workspace: Path, daemon: Daemon, moment: str
) -> None:
    """SIGTERM in mid-turn → it is interrupted as `shutting_down`; exit within 5 s, status 0."""
    gate = Gate(workspace)
    step = hang("well") if moment == "stream" else calls(bash(STUBBORN))
    approve = "ask" if moment == "approval" else "always"
    session_id = await frontend.session(workspace, step, always("I see"), approve=approve)
    await frontend.say(session_id)
    match moment:
        case "call":
            await gate.reached()
        case "stream":
            await frontend.until_body(session_id, ItemDelta)
        case _:
            await frontend.request_opened(session_id)
    began = time.monotonic()
    assert await daemon.terminate() == 0
    assert time.monotonic() - began < STOP_S
    ended = await frontend.turn_ended(session_id)
    assert ended.outcome == "interrupted"
    assert ended.error is not None
    assert ended.error.code == "shutting_down"
    assert marked(f"TILLER_DAEMON={frontend.log_id}") == set()
    daemon.start()
    await _check_recovered(frontend, session_id)


async def test_shutdown_drain_lets_the_turn_end_and_takes_no_new_one(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """`shutdown(drain)` → the turn completes, new input is `shutting_down`, then status 0."""
    gate = Gate(workspace)
    session_id = await frontend.session(workspace, calls(bash(gate.command)), always("done"))
    other_id = await frontend.session(workspace, always("never"))
    await frontend.say(session_id)
    await gate.reached()
    await frontend.must(Shutdown("drain"))
    assert (await frontend.refused(UserInput(other_id, "go"))).code == "shutting_down"
    gate.open("through")
    assert await daemon.ended() == 0
    ended = (await frontend.until_body(session_id, TurnEnded)).body  # what follows may be lost
    assert isinstance(ended, TurnEnded)
    assert ended.outcome == "completed"
    assert frontend.requests(other_id) == []


async def test_a_drain_is_cut_short_by_sigterm(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """SIGTERM while draining → the turn is interrupted, exit within 5 s."""
    session_id = await frontend.session(workspace, hang("well"), always("I see"))
    await frontend.say(session_id)
    await frontend.until_body(session_id, ItemDelta)
    await frontend.must(Shutdown("drain"))
    assert await daemon.terminate() == 0
    assert (await frontend.turn_ended(session_id)).outcome == "interrupted"


async def _check_recovered(frontend: Frontend, session_id: str) -> None:
    """The session opens, its turn is closed, and the next turn works.

    The turn is interrupted unless it had completed before the kill.
    """
    await frontend.reconnect()
    ended = await frontend.turn_ended(session_id)
    assert ended.outcome in ("interrupted", "completed")
    snapshot = await frontend.snapshot(session_id)
    assert (snapshot.status, snapshot.turn, snapshot.requests) == ("idle", None, [])
    await frontend.say(session_id, "go on")
    again = await frontend.turn_ended(session_id, 2)
    assert again.outcome == "completed"
    request = frontend.requests(session_id)[-1]
    assert said_in(request.items) == ["go", "go on"]
    notices = [item.code for item in request.items if isinstance(item, Notice)]
    assert notices == (["interrupted"] if ended.outcome == "interrupted" else [])
