"""`resume = "auto"`: a turn that the daemon's death cut short continues after its restart (B50)."""

from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest
import trio

from e2e.gates import Gate
from e2e.words import always, bash, calls, calls_in, hang, said_in
from support.daemon import CONFIG, Daemon, gone, marked
from support.frontend import Frontend
from tiller_daemon.models.scripted import CallPart, HangPart, ScriptStep
from tiller_protocol.answers import Started
from tiller_protocol.events import (
    ItemDelta,
    StepEnded,
    StepStarted,
    ToolCallUpdated,
    TurnEnded,
    TurnStarted,
)
from tiller_protocol.items import AssistantMessage, Notice
from tiller_protocol.ops import Answer, Compact, Shell, Shutdown
from tiller_protocol.settings import TurnOverrides

AUTO = 'resume = "auto"\n' + CONFIG
HANG_FOR_EVER = ScriptStep(parts=(HangPart(),), repeat=True)


@pytest.fixture
async def daemon(new_daemon: Callable[..., Daemon]) -> Daemon:
    """Make a daemon for this test alone, since it is going to die."""
    daemon = new_daemon(AUTO)
    daemon.start()
    return daemon


@pytest.fixture
async def frontend(daemon: Daemon, nursery: trio.Nursery) -> AsyncGenerator[Frontend]:
    frontend = await Frontend.connect(daemon, nursery)
    yield frontend
    await frontend.close()


def turns(frontend: Frontend, session_id: str) -> list[str]:
    """Return the beginnings and ends of turns and steps, as words."""
    words: list[str] = []
    for event in frontend.events(session_id):
        match event.body:
            case TurnStarted():
                words.append("turn")
            case StepStarted() as step:
                words.append(f"step {step.step}")
            case StepEnded() as step:
                words.append(step.finish_reason)
            case TurnEnded() as turn:
                words.append(turn.outcome)
            case _:
                pass
    return words


def notices(frontend: Frontend, session_id: str) -> list[str]:
    """Return the codes of the notices in the last request."""
    items = frontend.requests(session_id)[-1].items
    return [item.code for item in items if isinstance(item, Notice)]


@pytest.mark.promise("B50")
async def test_the_turn_goes_on_and_a_call_that_was_in_flight_is_lost(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """`kill -9` in a call of step 2 → step 3 of the same turn, the call `lost`, not repeated."""
    gate = Gate(workspace)
    first, second = calls(bash("echo one")), calls(bash(f"echo x >> effects; {gate.command}"))
    session_id = await frontend.session(workspace, first, second, always("I see"))
    started = await frontend.say(session_id)
    await gate.reached()
    before = marked(f"TILLER_DAEMON={frontend.log_id}")
    daemon.restart()
    await frontend.reconnect()
    ended = await frontend.turn_ended(session_id)
    assert (ended.outcome, ended.last_message, ended.steps) == ("completed", "I see", 3)
    assert isinstance(started, Started)
    assert {e.turn_id for e in frontend.events(session_id) if e.turn_id} == {started.turn_id}
    assert turns(frontend, session_id) == [
        "turn", "step 1", "tool_calls", "step 2", "interrupted", "step 3", "stop", "completed",
    ]  # fmt: skip
    done, lost = calls_in(frontend.requests(session_id)[-1].items)
    assert (done.output, lost.error_kind) == ("one\n", "lost")
    assert notices(frontend, session_id) == ["resumed"]
    assert (workspace / "effects").read_text() == "x\n"
    assert all(gone(pid) for pid in before)


@pytest.mark.promise("B50")
async def test_a_turn_that_goes_on_does_not_start_again_for_hooks(
    new_daemon: Callable[..., Daemon], nursery: trio.Nursery, workspace: Path
) -> None:
    hooks = "".join(
        f'[[hooks]]\non = "{moment}"\ncommand = "echo {moment} >> moments"\n'
        for moment in ("turn_start", "session_start", "turn_done")
    )
    daemon = new_daemon(AUTO + hooks)
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    gate = Gate(workspace)
    # A call that may write begins when it is in the log, and so is not made again.
    command = bash(f"{gate.command}; touch x")
    session_id = await frontend.session(workspace, calls(command), always("I see"))
    await frontend.say(session_id)
    await gate.reached()
    daemon.restart()
    await frontend.reconnect()
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    moments = (workspace / "moments").read_text().split()
    assert moments == ["turn_start", "session_start", "turn_done"]
    await frontend.close()


@pytest.mark.promise("B50")
async def test_a_turn_is_resumed_three_times_at_the_most(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    session_id = await frontend.session(workspace, HANG_FOR_EVER)
    await frontend.say(session_id)
    for step in (1, 2, 3, 4):
        await frontend.until_body(session_id, StepStarted, step)
        daemon.restart()
        await frontend.reconnect()
    ended = await frontend.turn_ended(session_id)
    assert ended.outcome == "interrupted"
    assert ended.error
    assert ended.error.code == "daemon_stopped"
    assert "stopped 4 times during this turn" in ended.error.message
    assert ended.steps == 4


@pytest.mark.promise("B50")
async def test_what_was_said_is_kept_and_steering_arrives_after_the_restart(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    session_id = await frontend.session(workspace, hang("half a thought"), always("I see"))
    await frontend.say(session_id)
    await frontend.until_body(session_id, ItemDelta)
    await frontend.say(session_id, "use pathlib")
    daemon.restart()
    await frontend.reconnect()
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    request = frontend.requests(session_id)[-1]
    assert said_in(request.items) == ["go", "use pathlib"]
    halves = [item for item in request.items if isinstance(item, AssistantMessage)]
    assert [(item.text, item.state) for item in halves] == [("half a thought", "interrupted")]


@pytest.mark.promise("B50")
async def test_an_open_approval_is_cancelled_and_asked_anew_if_the_model_still_wants_it(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    touch = calls(bash("touch asked"))
    session_id = await frontend.session(workspace, touch, touch, always("done"), approve="ask")
    await frontend.say(session_id)
    first = await frontend.request_opened(session_id)
    daemon.restart()
    await frontend.reconnect()
    second = await frontend.request_opened(session_id, 2)
    assert second.id != first.id
    assert (await frontend.snapshot(session_id)).requests == [second]
    await frontend.must(Answer(second.id, "once"))
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    aborted, ran = calls_in(frontend.requests(session_id)[-1].items)
    assert (aborted.error_kind, ran.state) == ("aborted", "completed")


@pytest.mark.promise("B50")
async def test_limits_count_over_the_restart_and_the_turn_is_what_it_was(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    gate = Gate(workspace)
    wait = calls(bash(gate.command))
    session_id = await frontend.session(workspace, wait, wait, always("enough"))
    overrides = TurnOverrides(max_steps=2, tools=("bash", "read"), sandbox="full_access")
    await frontend.say(session_id, overrides=overrides)
    await gate.reached()
    await frontend.until_body(session_id, StepStarted)
    prompt = frontend.requests(session_id)[0].system
    (workspace / "AGENTS.md").write_text("Speak French.\n")
    daemon.restart()
    await frontend.reconnect()
    ended = await frontend.turn_ended(session_id)
    assert (ended.outcome, ended.steps) == ("limit_reached", 2)
    last = frontend.requests(session_id)[-1]
    assert last.system == prompt, "frozen"
    assert last.tools == ()


@pytest.mark.parametrize("mode", ["shutdown", "SIGTERM"])
@pytest.mark.promise("B52")
async def test_a_turn_that_is_stopped_goes_on_after_the_restart(
    frontend: Frontend, workspace: Path, daemon: Daemon, mode: str
) -> None:
    gate = Gate(workspace)
    session_id = await frontend.session(workspace, calls(bash(gate.command)), always("I see"))
    await frontend.say(session_id)
    await gate.reached()
    before = marked(f"TILLER_DAEMON={frontend.log_id}")
    if mode == "SIGTERM":
        assert await daemon.terminate() == 0
    else:
        await frontend.must(Shutdown("now"))
        assert await daemon.ended() == 0
    assert all(gone(pid) for pid in before)
    daemon.start()
    await frontend.reconnect()
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    assert turns(frontend, session_id).count("turn") == 1
    assert notices(frontend, session_id) == ["resumed"]


@pytest.mark.promise("B50")
async def test_an_own_command_and_a_compaction_are_closed(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    gate = Gate(workspace)
    own = await frontend.session(workspace, always("x"))
    await frontend.must(Shell(own, gate.command))
    await gate.reached()
    summary = await frontend.session(
        workspace, model=daemon.script(always("x"), compaction=HANG_FOR_EVER)
    )
    await frontend.say(summary)
    await frontend.turn_ended(summary)
    await frontend.must(Compact(summary))
    daemon.restart()
    await frontend.reconnect()
    assert (await frontend.turn_ended(own)).outcome == "interrupted"
    assert (await frontend.turn_ended(summary, 2)).outcome == "interrupted"


@pytest.mark.parametrize("mode", ["kill -9", "SIGTERM"])
@pytest.mark.promise("B50")
async def test_a_sub_agents_turn_is_closed_and_its_owner_goes_on(
    frontend: Frontend, workspace: Path, daemon: Daemon, mode: str
) -> None:
    helper = {"model": daemon.script(HANG_FOR_EVER), "description": "helps"}
    head = "\n".join(f"{key}: {value}" for key, value in helper.items())
    agents = daemon.places.config / "agents"
    agents.mkdir()
    (agents / "helper.md").write_text(f"---\n{head}\n---\nYou help.\n")
    task = CallPart("task", arguments={"prompt": "go", "agent": "helper"})
    owner = await frontend.session(workspace, calls(task), always("I see"))
    await frontend.say(owner)
    event = await frontend.until(owner, lambda e: bool(getattr(e.body, "sub_agent", None)))
    assert isinstance(event.body, ToolCallUpdated)
    assert event.body.sub_agent
    child = event.body.sub_agent.session_id
    frontend.follow(child)
    await frontend.until_body(child, StepStarted)
    if mode == "kill -9":
        daemon.kill9()
    else:
        assert await daemon.terminate() == 0
    daemon.start()
    await frontend.reconnect()
    assert (await frontend.turn_ended(child)).outcome == "interrupted"
    assert (await frontend.turn_ended(owner)).outcome == "completed"
    (call,) = calls_in(frontend.requests(owner)[-1].items)
    assert call.error_kind == "lost"
    assert f"session is {child}. To continue from there, `resume` it." in call.output


@pytest.mark.promise("B50")
async def test_a_turn_whose_model_is_gone_is_closed_and_says_why(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    session_id = await frontend.session(workspace, HANG_FOR_EVER)
    await frontend.say(session_id)
    await frontend.until_body(session_id, StepStarted)
    daemon.kill9()
    daemon.configure(
        AUTO.replace("scripted/", "other/").replace("providers.scripted", "providers.other")
    )
    daemon.start()
    await frontend.reconnect()
    ended = await frontend.turn_ended(session_id)
    assert ended.outcome == "interrupted"
    assert ended.error
    assert "can't be resumed" in ended.error.message
    assert "scripted" in ended.error.message
