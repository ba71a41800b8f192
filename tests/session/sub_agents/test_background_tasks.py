"""Background sub-agents: the turn goes on, the report comes once, and nothing is left behind."""

import pytest
import trio
from msgspec import structs

from support.delegating import (
    SCOUT,
    WORKER,
    calls,
    says,
    snapshot,
    sub_agents,
    task,
    task_calls,
)
from support.narrowing import of_kind
from support.world import World
from tiller_daemon.config import Agent
from tiller_daemon.models.scripted import CallPart, HangPart, Script, ScriptStep, WaitPart
from tiller_daemon.session.background.delivering import TURNS_MAX
from tiller_daemon.session.sub_agents.background_tasks import RUNNING_MAX
from tiller_daemon.turn.history import for_request
from tiller_protocol.events import (
    BackgroundChanged,
    RequestOpened,
    SessionConfigured,
    TurnEnded,
    TurnStarted,
    WarningRaised,
)
from tiller_protocol.items import BackgroundCommand, Notice, SubAgent, UserMessage
from tiller_protocol.ops import Answer, Interrupt, SessionArchive, TurnContinue, UserInput
from tiller_protocol.settings import Budget, Rule, TurnOverrides


def later(prompt: str = "look", agent: str = "scout", **more) -> CallPart:
    return CallPart(
        "task", arguments={"prompt": prompt, "agent": agent, "background": True, **more}
    )


def entry(snapshot, name: str = "t1") -> BackgroundCommand:
    (found,) = [one for one in snapshot.background if one.id == name]
    return found


def reports(snapshot) -> list[UserMessage]:
    messages = [item for item in snapshot.items if isinstance(item, UserMessage)]
    return [message for message in messages if message.client == "task"]


async def ended_in_background(world: World, boss: str, name: str = "t1") -> None:
    await world.until(
        boss,
        lambda e: (
            isinstance(e.body, BackgroundChanged)
            and any(one.id == name and one.state != "running" for one in e.body.background)
        ),
    )


SLOW = says("seen", WaitPart(50.0))
HANGS = ScriptStep(parts=(HangPart(),))


async def test_the_call_returns_at_once_and_the_report_starts_a_turn(autojump_clock, start):
    world, boss = await start(calls(later("count")), says("later"), says("thanks"), scout=(SLOW,))
    await world.say(boss, "go")
    first = await world.ended(boss)
    assert (first.last_message, trio.current_time() < 10) == ("later", True)
    (call,) = task_calls(world, boss)
    assert (call.state, call.output.split(" ")[0]) == ("completed", "t1")
    (child,) = await sub_agents(world, boss)
    assert of_kind(SubAgent, call.sub_agent) == SubAgent(child, "scout")
    running = entry(await snapshot(world, boss))
    assert (running.state, running.command) == ("running", "scout: count")
    assert (await world.ended(boss, 2)).last_message == "thanks"
    now = await snapshot(world, boss)
    (report,) = reports(now)
    assert (report.delivery, "\nseen\n" in report.text) == ("start", True)
    assert "not from the user" in report.text
    ended = entry(now)
    assert (ended.state, ended.exit_status) == ("exited", 0)
    assert of_kind(SubAgent, ended.sub_agent).session_id == child


async def test_the_end_and_its_report_are_one_commit(autojump_clock, start):
    world, boss = await start(calls(later()), says("later"), says("thanks"), scout=(SLOW,))
    await world.say(boss, "go")
    await world.ended(boss, 2)
    log = await world.events(boss)
    listed = [event for event in log if isinstance(event.body, BackgroundChanged)]
    end = next(one for one in listed if one.body.background[0].state != "running")
    (_, begun) = [event for event in log if isinstance(event.body, TurnStarted)]
    heads = [head for session_id, head in world.log.commits if session_id == boss]
    assert not [head for head in heads if end.seq <= head < begun.seq]


async def test_the_report_steers_a_turn_that_runs_and_skips_none_of_its_calls(
    autojump_clock, start
):
    change = CallPart("change", arguments={"seconds": 30.0, "say": "x"})
    second = CallPart("change", arguments={"say": "y"})
    world, boss = await start(
        calls(later()), calls(change, second), says("all"), scout=(says("seen", WaitPart(10.0)),)
    )
    await world.say(boss, "go")
    ended = await world.ended(boss)
    assert (ended.last_message, ended.steps) == ("all", 3)
    now = await snapshot(world, boss)
    assert [item.delivery for item in reports(now)] == ["steer"]
    assert len(world.usage.begun) == 2
    assert now.turns == 1


async def test_an_interrupt_of_the_turn_leaves_it_alone(autojump_clock, start):
    world, boss = await start(calls(later()), HANGS, says("thanks"), scout=(SLOW,))
    await world.say(boss, "go")
    await world.until_body(boss, TurnStarted)
    await trio.sleep(5)
    await world.must(Interrupt(boss))
    assert (await world.ended(boss)).outcome == "interrupted"
    assert entry(await snapshot(world, boss)).state == "running"
    assert (await world.ended(boss, 2)).last_message == "thanks"


async def test_its_user_ends_it_like_a_background_command(autojump_clock, start):
    world, boss = await start(calls(later()), says("later"), scout=(HANGS,))
    await world.say(boss, "go")
    await world.ended(boss)
    (child,) = await sub_agents(world, boss)
    await world.must(Interrupt(boss, background_id="t1"))
    await ended_in_background(world, boss)
    now = await snapshot(world, boss)
    assert (entry(now).state, entry(now).exit_status) == ("killed", None)
    # The report starts no turn, but the next turn has it.
    notice = of_kind(Notice, now.items[-1])
    assert (notice.code, child in notice.text) == ("background_ended", True)
    assert now.turn is None
    assert (await snapshot(world, child)).turn is None
    refused = await world.refused(Interrupt(boss, background_id="t1"))
    assert refused.code == "not_found"


async def test_in_a_turn_the_model_is_told_that_the_user_ended_it(autojump_clock, start):
    wait = says("waited", WaitPart(20.0))
    world, boss = await start(calls(later()), wait, says("I see"), scout=(HANGS,))
    await world.say(boss, "go")
    await world.until_body(boss, BackgroundChanged, 2)
    await trio.sleep(1)
    await world.must(Interrupt(boss, background_id="t1"))
    assert (await world.ended(boss)).last_message == "I see"
    (report,) = reports(await snapshot(world, boss))
    assert "was ended before it had finished" in report.text


async def test_after_a_kill_it_is_lost_and_the_model_is_told_once(autojump_clock, start, nursery):
    world, boss = await start(calls(later()), says("later"), says("I see"), scout=(HANGS,))
    await world.say(boss, "go")
    await world.ended(boss)
    (child,) = await sub_agents(world, boss)
    for _ in range(2):
        await world.kill()
        await world.boot(nursery)
        now = await snapshot(world, boss)
        assert entry(now).state == "lost"
        (notice,) = [item for item in now.items if isinstance(item, Notice)]
        assert (notice.code, child in notice.text) == ("background_lost", True)
    assert (await snapshot(world, child)).turn is None
    await world.say(boss, "and?")
    await world.ended(boss, 2)
    assert notice in world.model.requests[-1].items


async def test_when_the_session_is_put_away_it_ends(autojump_clock, start):
    world, boss = await start(calls(later()), says("later"), scout=(HANGS,))
    await world.say(boss, "go")
    await world.ended(boss)
    await world.must(SessionArchive(boss))
    await ended_in_background(world, boss)
    now = await snapshot(world, boss)
    assert (entry(now).state, now.turn) == ("killed", None)


async def test_when_the_daemon_stops_in_order_it_ends_and_starts_no_turn(autojump_clock, start):
    world, boss = await start(calls(later()), says("later"), scout=(HANGS,))
    await world.say(boss, "go")
    await world.ended(boss)
    await world.supervisor.shut_down()
    now = (await world.events(boss))[-1]
    assert all(not isinstance(e.body, TurnStarted) for e in (await world.events(boss))[-4:])
    assert now.body is not None
    states = [
        e.body.background[0].state
        for e in await world.events(boss)
        if isinstance(e.body, BackgroundChanged)
    ]
    assert states[-1] in ("killed", "exited")


async def test_only_agents_that_read_work_there_and_a_sub_agent_starts_none(autojump_clock, start):
    nested = calls(later())
    world, boss = await start(
        calls(later(agent="worker")), calls(task()), says("ok"), worker=(nested, says("done"))
    )
    await world.say(boss, "go")
    await world.ended(boss)
    refused, _ = task_calls(world, boss)
    assert (refused.error_kind, "read-only" in refused.output) == ("failed", True)
    assert "scout" in refused.output
    (child,) = await sub_agents(world, boss)
    (inner,) = task_calls(world, child)
    assert (inner.error_kind, "Leave out `background`" in inner.output) == ("failed", True)
    assert (await snapshot(world, boss)).background == ()


async def test_no_more_than_the_limit_work_at_the_same_time(autojump_clock, start):
    many = [later(str(n)) for n in range(RUNNING_MAX + 1)]
    world, boss = await start(calls(*many), says("ok"), scout=(HANGS,))
    await world.say(boss, "go")
    await world.ended(boss)
    outcomes = sorted(call.state for call in task_calls(world, boss))
    assert outcomes == ["completed"] * RUNNING_MAX + ["error"]
    now = await snapshot(world, boss)
    assert sorted(one.id for one in now.background) == [f"t{n + 1}" for n in range(RUNNING_MAX)]


async def test_what_it_spends_counts_for_the_session_and_the_turn_that_runs(autojump_clock, start):
    world, boss = await start(
        calls(later()),
        says("1", WaitPart(5.0)),
        scout=(calls(CallPart("look", arguments={"say": "x"})), says("seen", WaitPart(60.0))),
    )
    await world.say(boss, "go")
    ended = await world.ended(boss)
    assert ended.usage.input_tokens == 300
    await world.ended(boss, 2)
    now = await snapshot(world, boss)
    assert now.usage.input_tokens == 400
    assert now.delegated_steps == 2
    assert of_kind(SubAgent, entry(now).sub_agent).steps == 2


async def test_its_spending_counts_against_the_budget_of_the_turn(autojump_clock, start):
    looks = tuple(calls(CallPart("look", arguments={"say": str(n)})) for n in range(20))
    wait = calls(CallPart("look", arguments={"seconds": 50.0}))
    world, boss = await start(calls(later()), wait, says("never"), scout=looks)
    await world.must(UserInput(boss, "go", overrides=TurnOverrides(turn_budget=Budget(steps=8))))
    await world.ended(boss)
    now = await snapshot(world, boss)
    assert now.delegated_steps <= 8
    assert now.steps + now.delegated_steps <= 8 + 2


async def test_it_asks_in_its_own_session_and_the_users_is_told(autojump_clock, start):
    peek = calls(CallPart("peek", arguments={"say": "far"}))
    world, boss = await start(calls(later()), says("later"), scout=(peek, says("seen")))
    await world.say(boss, "go")
    await world.ended(boss)
    (child,) = await sub_agents(world, boss)
    opened = await world.until_body(child, RequestOpened)
    warned = await world.until_body(boss, WarningRaised)
    assert opened.body.request.id in warned.body.message
    assert (await snapshot(world, boss)).requests == []
    await world.must(Answer(opened.body.request.id, "always"))
    configured = await world.until_body(boss, SessionConfigured)
    granted = Rule("external_directory", "far", "allow", granted=True)
    assert granted in (configured.body.settings.permissions or ())
    await world.ended(boss, 2)
    assert "seen" in reports(await snapshot(world, boss))[0].text


async def test_what_is_granted_to_the_session_counts_for_it(autojump_clock, start):
    peek = calls(CallPart("peek", arguments={"say": "far"}))
    world, boss = await start(calls(later()), peek, says("ok"), scout=(peek, says("seen")))
    await world.say(boss, "go")
    opened = await world.until_body(boss, RequestOpened)
    (child,) = await sub_agents(world, boss)
    await world.until_body(child, RequestOpened)
    await world.must(Answer(opened.body.request.id, "always"))
    await world.ended(boss)
    await ended_in_background(world, boss)
    assert (await snapshot(world, child)).requests == []


async def test_what_is_granted_to_another_sub_agent_counts_for_it(autojump_clock, start):
    peek = calls(CallPart("peek", arguments={"say": "far"}))
    in_foreground = CallPart("task", arguments={"prompt": "look", "agent": "scout"})
    world, boss = await start(
        calls(later()), calls(in_foreground), says("ok"), scout=(peek, says("seen"))
    )
    await world.say(boss, "go")
    opened = await world.until_body(boss, RequestOpened)
    child, _ = await sub_agents(world, boss)
    await world.until_body(child, RequestOpened)
    await world.must(Answer(opened.body.request.id, "always"))
    await world.ended(boss)
    await ended_in_background(world, boss)
    assert (await snapshot(world, child)).requests == []


async def test_a_failure_is_reported_too(autojump_clock, start):
    world, boss = await start(calls(later()), says("later"), says("I see"), scout=(HANGS,))
    await world.say(boss, "go")
    await world.ended(boss)
    (child,) = await sub_agents(world, boss)
    await world.must(Interrupt(child))
    assert (await world.ended(boss, 2)).last_message == "I see"
    now = await snapshot(world, boss)
    assert (entry(now).state, entry(now).exit_status) == ("exited", 1)
    assert "interrupted" in reports(now)[0].text


async def test_a_report_that_can_start_no_turn_waits_in_the_queue(autojump_clock, start):
    world, boss = await start(calls(later()), says("later"), scout=(SLOW,))
    await world.say(boss, "go")
    await world.ended(boss)
    world.configuration = structs.replace(world.configuration, model="nothing/there")
    await ended_in_background(world, boss)
    now = await snapshot(world, boss)
    (queued,) = now.queue
    assert "seen" in queued.text
    warned = await world.until_body(boss, WarningRaised)
    assert warned.body.code == "report_waits"


async def test_a_report_waits_behind_input_that_an_interrupt_left(autojump_clock, start):
    world, boss = await start(calls(later()), HANGS, says("first"), says("second"), scout=(SLOW,))
    await world.say(boss, "go")
    await world.until_body(boss, BackgroundChanged)
    await world.say(boss, "mine", delivery="queue")
    await world.must(Interrupt(boss))
    assert (await world.ended(boss)).outcome == "interrupted"
    await ended_in_background(world, boss)
    warned = await world.until_body(boss, WarningRaised)
    assert warned.body.code == "report_waits"
    now = await snapshot(world, boss)
    assert [("mine" in one.text, "seen" in one.text) for one in now.queue] == [
        (True, False),
        (False, True),
    ]
    assert (now.turn, now.turns) == (None, 1)
    await world.must(TurnContinue(boss))
    assert (await world.ended(boss, 2)).last_message == "second"
    assert (await snapshot(world, boss)).queue == ()


async def test_reports_do_not_start_turns_for_ever(autojump_clock, start):
    world, boss = await start()
    endless = ScriptStep(parts=(later(),), repeat=True)
    alternating = tuple(step for _ in range(TURNS_MAX + 5) for step in (endless_once(), says("ok")))
    world.scripts["boss"] = Script((*alternating, endless))
    await world.say(boss, "go")
    await world.until_body(boss, WarningRaised)
    now = await snapshot(world, boss)
    assert now.turns == TURNS_MAX + 1
    assert len(now.queue) == 1


def endless_once() -> ScriptStep:
    return calls(later())


async def test_it_is_resumed_in_the_background(autojump_clock, start):
    world, boss = await start(calls(task("one", "scout")), says("1"), scout=(says("a"), says("b")))
    await world.say(boss, "go")
    await world.ended(boss)
    (child,) = await sub_agents(world, boss)
    again = later("two", "scout", resume=child)
    world.scripts["boss"] = Script((says("0"), says("0"), calls(again), says("2"), says("3")))
    await world.say(boss, "on")
    await world.ended(boss, 3)
    assert await sub_agents(world, boss) == [child]
    assert "\nb\n" in reports(await snapshot(world, boss))[0].text


async def test_an_owner_that_reads_only_may_send_any_agent(autojump_clock, start):
    world, boss = await start(calls(later(agent="worker")), says("1"), says("2"))
    world.configuration = structs.replace(
        world.configuration,
        agents={"worker": WORKER, "scout": SCOUT, "reader": Agent(read_only=True)},
    )
    await world.must(UserInput(boss, "go", overrides=TurnOverrides(agent="reader")))
    await world.ended(boss)
    assert task_calls(world, boss)[0].state == "completed"
    await world.until_body(boss, TurnEnded, 2)
    assert for_request((await snapshot(world, boss)).items)


@pytest.mark.parametrize("wait_s", [0.0, 60.0])
async def test_its_model_asks_how_far_it_is_and_ends_it(autojump_clock, start, wait_s):
    from tiller_daemon.tools.commands.bash_kill import BASH_KILL
    from tiller_daemon.tools.commands.bash_output import BASH_OUTPUT

    look = CallPart("bash_output", arguments={"id": "t1", "wait_s": wait_s})
    kill = CallPart("bash_kill", arguments={"id": "t1"})
    world, boss = await start(calls(later()), calls(look), calls(kill), says("ok"), scout=(HANGS,))
    world.tools.update({tool.name: tool for tool in (BASH_OUTPUT, BASH_KILL)})
    await world.say(boss, "go")
    await world.ended(boss)
    now = await snapshot(world, boss)
    outputs = [getattr(item, "output", "") for item in now.items]
    assert any("t1 is still working, after 0 steps" in output for output in outputs)
    assert any("t1 was ended" in output for output in outputs)
    assert entry(now).state == "killed"
    # The result has the report already, so no notice repeats it.
    assert reports(now) == []
    assert not any(isinstance(item, Notice) for item in now.items)
