"""Sub-agents in memory: a `task` call has its own session, and the two refer to each other."""

import pytest
import trio
from msgspec import structs

from support.delegating import (
    LOOK,
    SCOUT,
    WORKER,
    calls,
    linked,
    says,
    snapshot,
    sub_agent_of,
    sub_agents,
    task,
    task_calls,
)
from support.narrowing import of_kind
from tiller_daemon.config import Agent
from tiller_daemon.models.scripted import (
    CallPart,
    HangPart,
    Script,
    ScriptStep,
    WaitPart,
)
from tiller_daemon.session.sub_agents.sub_agent_run import DEPTH_MAX
from tiller_protocol.events import (
    ItemDelta,
    RequestOpened,
    RequestResolved,
    SessionCreated,
    SessionTitled,
    ToolCallUpdated,
    TurnEnded,
    TurnStarted,
)
from tiller_protocol.items import (
    ToolCall,
    UserMessage,
)
from tiller_protocol.ops import (
    Answer,
    Interrupt,
    SessionDelete,
    SessionList,
    UserInput,
)
from tiller_protocol.settings import Budget, Rule, TurnOverrides


async def test_a_task_is_done_in_a_session_of_its_own_which_is_linked_both_ways(
    autojump_clock, start
):
    world, boss = await start(calls(task("count the files")), worker=(calls(LOOK), says("three")))
    await world.say(boss, "how many files?")
    ended = await world.ended(boss)
    assert ended.outcome == "completed"
    (child,) = await sub_agents(world, boss)
    (call,) = task_calls(world, boss)
    assert call.state == "completed"
    assert call.output.startswith("three\n")
    assert child in call.output
    assert sub_agent_of(call).session_id == child
    assert sub_agent_of(call).agent == "worker"
    assert call.title == "worker: count the files"
    created = world.published[child][0].body
    assert isinstance(created, SessionCreated)
    assert (created.owner_id, created.owner_item_id) == (boss, call.id)
    first = (await snapshot(world, child)).items[0]
    assert of_kind(UserMessage, first).text == "count the files"
    listed = await world.must(SessionList())
    assert [one.session_id for one in listed.sessions] == [boss]


async def test_a_sub_agent_has_its_own_prompt_and_model_and_no_title_is_asked_for(
    autojump_clock, start
):
    world, boss = await start(calls(task("count the files")), worker=(says("three"),))
    await world.say(boss, "how many files?")
    await world.ended(boss)
    (child,) = await sub_agents(world, boss)
    (asked,) = [request for request in world.model.requests if request.session_id == child]
    assert asked.system.startswith("You work.")
    assert asked.model == "worker"
    assert all(request.session_id == boss for request in world.model.for_titles)
    titled = [e.body for e in world.published[child] if isinstance(e.body, SessionTitled)]
    assert [body.title for body in titled] == ["count the files"]


async def test_an_agent_without_a_model_takes_the_one_of_whom_it_works_for(autojump_clock, start):
    world, boss = await start(calls(task(agent="general")), says("done"))
    await world.say(boss, "go")
    await world.ended(boss)
    (child,) = await sub_agents(world, boss)
    started = await world.until_body(child, TurnStarted)
    assert started.body.context.model == "scripted/boss"


async def test_sub_agents_that_only_look_work_at_the_same_time_and_others_alone(
    autojump_clock, start
):
    slow = says("found", WaitPart(10.0))
    world, boss = await start(
        calls(task("a", "scout"), task("b", "scout"), task("c", "scout")),
        calls(task("a"), task("b")),
        scout=(slow,),
        worker=(slow,),
    )
    began = trio.current_time()
    await world.say(boss, "go")
    await world.until(boss, lambda e: type(e.body).__name__ == "StepEnded")
    assert trio.current_time() - began == pytest.approx(10.0, abs=1)
    await world.ended(boss)
    assert trio.current_time() - began == pytest.approx(30.0, abs=1)
    reports = [i for i in (await snapshot(world, boss)).items if isinstance(i, ToolCall)]
    assert [report.title[-1] for report in reports] == ["a", "b", "c", "a", "b"]


async def test_a_read_only_agent_has_read_only_sub_agents(autojump_clock, start):
    change = calls(CallPart("change", arguments={"say": "x"}))
    world, boss = await start(calls(task("change it", "worker")), worker=(change,))
    world.configuration = structs.replace(
        world.configuration, agents={"worker": WORKER, "boss": structs.replace(SCOUT, model=None)}
    )
    await world.must(UserInput(boss, "go", overrides=TurnOverrides(agent="boss")))
    await world.ended(boss)
    (child,) = await sub_agents(world, boss)
    (call,) = [i for i in (await snapshot(world, child)).items if isinstance(i, ToolCall)]
    assert call.error_kind == "invalid"
    assert "change" not in call.output.partition("Tools:")[2]
    assert world.usage.begun == []


async def test_the_tools_that_the_user_chose_are_those_of_sub_agents_too(autojump_clock, start):
    change = calls(CallPart("change", arguments={"say": "x"}))
    world, boss = await start(calls(task("change it", "worker")), worker=(change,))
    chosen = TurnOverrides(tools=("look", "task"))
    await world.must(UserInput(boss, "go", overrides=chosen))
    await world.ended(boss)
    (child,) = await sub_agents(world, boss)
    (call,) = [i for i in (await snapshot(world, child)).items if isinstance(i, ToolCall)]
    assert call.error_kind == "invalid"
    assert call.output.partition("Tools: ")[2] == "look, task."
    assert world.usage.begun == []


async def test_the_tools_of_an_agent_are_its_own(autojump_clock, start):
    change = calls(CallPart("change", arguments={"say": "x"}))
    world, boss = await start(calls(task("change it", "worker")), worker=(change,))
    lead = structs.replace(WORKER, model=None, tools=("look", "task"))
    world.configuration = structs.replace(
        world.configuration, agents={"worker": WORKER, "lead": lead}
    )
    await world.must(UserInput(boss, "go", overrides=TurnOverrides(agent="lead")))
    await world.ended(boss)
    (child,) = await sub_agents(world, boss)
    (call,) = [i for i in (await snapshot(world, child)).items if isinstance(i, ToolCall)]
    assert call.state == "completed"


async def test_what_a_sub_agent_spends_is_counted_where_it_works_for(autojump_clock, start):
    world, boss = await start(
        calls(task(), CallPart("look", arguments={})), worker=(calls(LOOK), says("three"))
    )
    await world.say(boss, "go")
    ended = await world.ended(boss)
    (child,) = await sub_agents(world, boss)
    assert (await snapshot(world, child)).usage.input_tokens == 200
    (call,) = task_calls(world, boss)
    worked = sub_agent_of(call)
    assert (worked.steps, worked.usage.input_tokens) == (2, 200)
    now = await snapshot(world, boss)
    assert now.usage.input_tokens == 300
    assert ended.usage.input_tokens == 300
    assert now.delegated_steps == 2
    # The content of the parent's own window does not count here.
    assert now.context_tokens <= 110


async def test_a_sub_agent_of_a_sub_agent_is_counted_once_at_each_level(autojump_clock, start):
    world, boss = await start(
        calls(task()), worker=(calls(task(agent="scout")), says("ok")), scout=(says("seen"),)
    )
    await world.say(boss, "go")
    await world.ended(boss)
    (child,) = await sub_agents(world, boss)
    assert (await snapshot(world, child)).usage.input_tokens == 300
    assert (await snapshot(world, boss)).usage.input_tokens == 400


async def test_sub_agents_are_not_offered_beyond_the_greatest_depth(autojump_clock, start):
    deeper = calls(task())
    world, boss = await start(calls(task()), worker=(deeper, says("ok")))
    await world.say(boss, "go")
    await world.ended(boss)
    depths = [
        any(tool.name == "task" for tool in request.tools)
        for request in world.model.requests
        if request.ordinal == 0
    ]
    assert depths == [True] * DEPTH_MAX + [False]


async def test_the_request_of_a_sub_agent_is_seen_where_the_user_is_at_any_depth(
    autojump_clock, start
):
    guarded = calls(CallPart("guarded", arguments={"say": "x"}))
    world, boss = await start(
        calls(task()), worker=(calls(task(agent="deep")), says("ok")), scout=()
    )
    world.scripts["deep"] = Script((guarded, says("changed")))
    deep = Agent(description="d", model="scripted/deep")
    world.configuration = structs.replace(
        world.configuration, agents={"worker": WORKER, "deep": deep}
    )
    await world.say(boss, "go")
    opened = await world.until_body(boss, RequestOpened)
    now = await snapshot(world, boss)
    assert now.status == "waiting"
    assert now.requests == [opened.body.request]
    assert "deep" in opened.body.request.title
    assert opened.body.request.item_id == now.open_items[0]
    await world.must(Answer(opened.body.request.id, "once"))
    resolved = await world.until_body(boss, RequestResolved)
    assert (resolved.body.resolution, resolved.body.by) == ("once", "t")
    assert (await world.ended(boss)).outcome == "completed"
    late = await world.refused(Answer(opened.body.request.id, "once"))
    assert late.code == "already_resolved"


async def test_a_no_to_a_sub_agent_ends_its_turn_and_that_of_whom_it_works_for(
    autojump_clock, start
):
    guarded = calls(CallPart("guarded", arguments={"say": "x"}))
    world, boss = await start(calls(task(), task("b")), worker=(guarded, says("never")))
    await world.say(boss, "go")
    opened = await world.until_body(boss, RequestOpened)
    await world.must(Answer(opened.body.request.id, "reject"))
    assert (await world.ended(boss)).outcome == "blocked"
    child = await linked(world, boss)
    assert (await world.until_body(child, TurnEnded)).body.outcome == "blocked"
    first, second = task_calls(world, boss)
    assert (first.error_kind, second.error_kind) == ("denied", "skipped")
    assert sub_agent_of(first).session_id == child


async def test_a_no_with_a_reason_to_a_sub_agent_ends_neither_turn(autojump_clock, start):
    guarded = calls(CallPart("guarded", arguments={"say": "x"}))
    world, boss = await start(calls(task()), says("fine"), worker=(guarded, says("otherwise")))
    await world.say(boss, "go")
    opened = await world.until_body(boss, RequestOpened)
    await world.must(Answer(opened.body.request.id, "reject", "not like that"))
    assert (await world.ended(boss)).outcome == "completed"
    child = await linked(world, boss)
    assert (await world.until_body(child, TurnEnded)).body.outcome == "completed"
    (first,) = task_calls(world, boss)
    assert "otherwise" in first.output


async def test_always_counts_for_the_session_and_its_other_sub_agents_at_once(
    autojump_clock, start
):
    peek = calls(CallPart("peek", arguments={"say": "far"}))
    world, boss = await start(
        calls(task("a", "scout"), task("b", "scout")), scout=(peek, says("seen"))
    )
    await world.say(boss, "go")
    await world.until_body(boss, RequestOpened, 2)
    first, _ = (await snapshot(world, boss)).requests
    await world.must(Answer(first.id, "always"))
    assert (await world.ended(boss)).outcome == "completed"
    granted = Rule("external_directory", "far", "allow", granted=True)
    assert granted in ((await snapshot(world, boss)).settings.permissions or ())
    assert (await snapshot(world, boss)).requests == []


@pytest.mark.promise("B29")
async def test_when_the_owner_is_interrupted_its_sub_agents_and_their_calls_end_too(
    autojump_clock, start
):
    wait = calls(CallPart("look", arguments={"seconds": 500.0}))
    world, boss = await start(calls(task()), worker=(calls(task(agent="scout")),), scout=(wait,))
    await world.say(boss, "go")
    child = await linked(world, boss)
    grandchild = await linked(world, child)
    await world.until(grandchild, lambda e: _runs(e.body))
    await world.must(Interrupt(boss))
    assert (await world.ended(boss)).outcome == "interrupted"
    assert not world.usage.running
    endings = [e.session_id for e in world.in_order if isinstance(e.body, TurnEnded)]
    assert endings == [grandchild, child, boss]
    (call,) = task_calls(world, boss)
    assert call.error_kind == "aborted"
    assert child in call.output
    assert sub_agent_of(call).usage.input_tokens == 200
    for session in (child, grandchild):
        assert (await snapshot(world, session)).turn is None


async def test_a_frontend_that_interrupts_the_sub_agent_alone_gets_its_owner_a_result(
    autojump_clock, start
):
    world, boss = await start(calls(task()), worker=(ScriptStep(parts=(HangPart(),)),))
    await world.say(boss, "go")
    child = await linked(world, boss)
    await world.until_body(child, TurnStarted)
    await world.must(Interrupt(child))
    assert (await world.ended(boss)).outcome == "completed"
    (call,) = task_calls(world, boss)
    assert call.error_kind == "failed"
    assert "interrupted" in call.output


async def test_a_sub_agent_can_be_steered_by_its_user(autojump_clock, start):
    world, boss = await start(calls(task()), worker=(says("one", WaitPart(5.0)), says("two")))
    await world.say(boss, "go")
    child = await linked(world, boss)
    await world.until_body(child, TurnStarted)
    await world.must(UserInput(child, "and this", delivery="steer"))
    await world.ended(boss)
    assert task_calls(world, boss)[0].output.startswith("two")


async def test_a_sub_agent_goes_on_where_it_was_when_it_is_resumed(autojump_clock, start):
    world, boss = await start(calls(task("first")), worker=(says("one"), says("two")))
    await world.say(boss, "go")
    await world.ended(boss)
    (child,) = await sub_agents(world, boss)
    again = calls(CallPart("task", arguments={"prompt": "second", "resume": child}))
    world.scripts["boss"] = Script((says("1"), says("2"), again, says("end")))
    await world.say(boss, "go on")
    await world.ended(boss, 2)
    assert await sub_agents(world, boss) == [child]
    assert task_calls(world, boss)[-1].output.startswith("two")
    texts = [getattr(item, "text", "") for item in (await snapshot(world, child)).items]
    assert texts == ["first", "one", "second", "two"]


async def test_only_its_own_sub_agents_can_be_resumed(autojump_clock, start):
    world, other = await start()
    world.scripts["boss"] = Script((calls(task(resume=other)), says("end")))
    boss = await world.session()
    await world.say(boss, "go")
    await world.ended(boss)
    (call,) = task_calls(world, boss)
    assert call.error_kind == "failed"
    assert "not a sub-agent of this session" in call.output


async def test_an_unknown_agent_is_an_invalid_call_that_names_those_there_are(
    autojump_clock, start
):
    world, boss = await start(calls(task(agent="wizard")))
    await world.say(boss, "go")
    await world.ended(boss)
    (call,) = task_calls(world, boss)
    assert call.error_kind == "invalid"
    assert "explore" in call.output
    assert "worker" in call.output
    (offered,) = [t for t in world.model.requests[0].tools if t.name == "task"]
    assert "- worker: works" in offered.description


async def test_a_budget_passes_down_and_what_is_beside_counts(autojump_clock, start):
    endless = tuple(calls(CallPart("look", arguments={"say": str(n)})) for n in range(20))
    world, boss = await start(
        calls(task("a", "scout"), task("b", "scout")), says("never"), scout=endless
    )
    await world.must(UserInput(boss, "go", overrides=TurnOverrides(turn_budget=Budget(steps=8))))
    ended = await world.ended(boss)
    assert ended.outcome in ("completed", "limit_reached")
    now = await snapshot(world, boss)
    # A request on its way is not counted yet, so each of the three may make one too many.
    assert now.steps + now.delegated_steps <= 8 + 3
    for child in await sub_agents(world, boss):
        assert (await world.until_body(child, TurnEnded)).body.outcome == "limit_reached"


async def test_what_a_sub_agent_does_is_shown_under_the_call(autojump_clock, start):
    world, boss = await start(calls(task()), worker=(calls(LOOK), says("three")))
    await world.say(boss, "go")
    await world.ended(boss)
    shown = [e.body.delta for e in world.published[boss] if isinstance(e.body, ItemDelta)]
    assert "look x\n" in "".join(shown)


@pytest.mark.promise("G7")
async def test_after_a_kill_owner_and_sub_agent_are_both_closed_and_the_call_is_lost(
    autojump_clock, start, nursery
):
    world, boss = await start(calls(task()), worker=(ScriptStep(parts=(HangPart(),)),))
    await world.say(boss, "go")
    child = await linked(world, boss)
    await world.until_body(child, TurnStarted)
    await world.kill()
    await world.boot(nursery)
    for session in (boss, child):
        now = await snapshot(world, session)
        assert now.turn is None
        assert now.status == "idle"
    (call,) = [i for i in (await snapshot(world, boss)).items if isinstance(i, ToolCall)]
    assert call.error_kind == "lost"
    assert child in call.output


async def test_a_session_is_deleted_with_its_sub_agents(autojump_clock, start):
    world, boss = await start(
        calls(task()), worker=(calls(task(agent="scout")), says("ok")), scout=(says("seen"),)
    )
    await world.say(boss, "go")
    await world.ended(boss)
    assert await world.log.count() == 3
    await world.must(SessionDelete(boss))
    assert await world.log.count() == 0


async def test_a_frontend_that_attaches_sees_the_link_while_the_sub_agent_works(
    autojump_clock, start
):
    world, boss = await start(calls(task()), worker=(ScriptStep(parts=(HangPart(),)),))
    await world.say(boss, "go")
    child = await linked(world, boss)
    now = await snapshot(world, boss)
    last = of_kind(ToolCall, now.items[-1])
    assert sub_agent_of(last).session_id == child
    assert last.state == "running"
    await world.must(Interrupt(boss))
    await world.ended(boss)


def _runs(body) -> bool:
    return isinstance(body, ToolCallUpdated) and body.state == "running"
