"""Input for sub-agents: `@agent` and commands with `subtask` run them before the model is asked."""

from itertools import pairwise

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from support.delegating import SCOUT, calls, linked, says, snapshot, sub_agents, task_calls
from support.each import each
from support.narrowing import of_kind
from tiller_daemon.config import Agent
from tiller_daemon.models.scripted import CallPart, HangPart, Script, ScriptStep, WaitPart
from tiller_daemon.turn.user_tasks import mentioned
from tiller_protocol.events import ItemStarted, QueueChanged, RequestOpened, TurnEnded, TurnStarted
from tiller_protocol.items import Notice, ToolCall, UserMessage
from tiller_protocol.ops import Answer, Interrupt, QueueEdit, UserInput
from tiller_protocol.settings import Rule, TurnOverrides

AGENTS = ("scout", "worker", "read-me")


@each(
    ("text", "agents"),
    [
        ("@scout find it", ("scout",)),
        ("let @scout, then @worker: do it, @scout.", ("scout", "worker")),
        ("(@scout)", ()),
        ("find it @read-me", ("read-me",)),
        ("me@scout", ()),
        ("@scout/core", ()),
        ("@scout.md", ()),
        ("@scouts", ()),
        ("@wizard", ()),
        ("`@scout` is an agent", ()),
        ("`scout`@scout", ()),
        ("```\n@scout\ndef f(): ...\n``` @worker", ("worker",)),
        ("```\n@scout", ()),
    ],
)
def test_a_mention_is_a_word_of_its_own_that_names_an_agent_and_no_code(text, agents):
    assert mentioned(text, AGENTS) == agents


@given(st.lists(st.sampled_from([*AGENTS, "wizard"])), st.sampled_from([" ", "\n", ", ", " a "]))
def test_every_agent_is_mentioned_once_and_in_order(names, between):
    text = between.join(f"@{name}" for name in names) if between != ", " else ""
    expected = dict.fromkeys(name for name in names if name in AGENTS) if text else {}
    assert mentioned(text, AGENTS) == tuple(expected)


async def test_an_agent_that_is_mentioned_works_before_the_model_is_asked(autojump_clock, start):
    world, boss = await start(says("so it is three"), scout=(says("three"),))
    await world.say(boss, "@scout how many files?")
    ended = await world.ended(boss)
    assert (ended.outcome, ended.last_message, ended.steps) == ("completed", "so it is three", 1)
    (child,) = await sub_agents(world, boss)
    (call,) = task_calls(world, boss)
    assert (call.by_user, call.state, call.title) == (True, "completed", "scout: how many files?")
    first = of_kind(UserMessage, (await snapshot(world, child)).items[0])
    assert first.text == "how many files?"
    (asked,) = [r for r in world.model.requests if r.session_id == boss]
    message, result = asked.items
    assert of_kind(UserMessage, message).text == "@scout how many files?"
    assert "scout. Its result:\nthree\n" in of_kind(Notice, result).text
    # Its costs count like those of any sub-agent.
    assert ended.usage.input_tokens == 200


async def test_several_that_only_read_work_at_the_same_time(autojump_clock, start):
    slow = says("found", WaitPart(10.0))
    world, boss = await start(says("both"), scout=(slow,))
    world.scripts["scout2"] = Script((slow,))
    world.configuration = structs.replace(
        world.configuration,
        agents={"scout": SCOUT, "other": structs.replace(SCOUT, model="scripted/scout2")},
    )
    began = trio.current_time()
    await world.say(boss, "@scout and @other look")
    assert (await world.ended(boss)).outcome == "completed"
    assert trio.current_time() - began == pytest.approx(10.0, abs=1)
    assert sorted(call.title for call in task_calls(world, boss)) == [
        "other: and @other look",
        "scout: and @other look",
    ]


async def test_a_mention_steers_and_follows_up_as_well(autojump_clock, start):
    world, boss = await start(says("1", WaitPart(5.0)), says("2"), says("3"), scout=(says("seen"),))
    await world.say(boss, "go")
    await world.until_body(boss, TurnStarted)
    await world.must(UserInput(boss, "@scout look", delivery="queue"))
    await world.must(UserInput(boss, "@worker do", delivery="steer"))
    ended = await world.ended(boss)
    assert ended.last_message == "3"
    kinds = [type(item).__name__ for item in (await snapshot(world, boss)).items]
    said, done = ["UserMessage", "AssistantMessage"], ["UserMessage", "ToolCall"]
    assert kinds == [*said, *done, "AssistantMessage", *done, "AssistantMessage"]
    assert [call.title for call in task_calls(world, boss)] == ["worker: do", "scout: look"]
    # Whenever the daemon dies, input and its tasks are both in the log or neither.
    heads = [head for session_id, head in world.log.commits if session_id == boss]
    begun = [event for event in await world.events(boss) if isinstance(event.body, ItemStarted)]
    for message, task in pairwise(begun):
        if isinstance(task.body.item, ToolCall):
            assert isinstance(message.body.item, UserMessage)
            assert not [head for head in heads if message.seq <= head < task.seq]
    assert sum(isinstance(event.body.item, ToolCall) for event in begun) == 2


async def test_new_input_keeps_no_task_of_the_user_from_running(autojump_clock, start):
    world, boss = await start(says("ok"), worker=(says("done", WaitPart(5.0)),))
    other = Agent(description="o", model="scripted/worker")
    world.configuration = structs.replace(
        world.configuration, agents={"worker": other, "other": other}
    )
    await world.say(boss, "@worker @other do it")
    await linked(world, boss)
    await world.must(UserInput(boss, "and tests", delivery="steer"))
    await world.ended(boss)
    assert [call.state for call in task_calls(world, boss)] == ["completed", "completed"]


async def test_edited_input_is_for_those_that_its_new_text_mentions(autojump_clock, start):
    world, boss = await start(ScriptStep(parts=(HangPart(),)))
    await world.say(boss, "go")
    await world.until_body(boss, TurnStarted)
    queued = await world.must(UserInput(boss, "@scout look", delivery="queue"))
    await world.must(QueueEdit(boss, queued.input_id, "edit", "@worker look"))
    changed = await world.until_body(boss, QueueChanged, 2)
    assert changed.body.queue[0].sub_agents == ("worker",)
    await world.must(QueueEdit(boss, queued.input_id, "edit", "look"))
    changed = await world.until_body(boss, QueueChanged, 3)
    assert changed.body.queue[0].sub_agents == ()
    await world.must(Interrupt(boss))


async def test_what_the_user_orders_needs_no_permission_and_no_offered_tool(autojump_clock, start):
    world, boss = await start(says("ok"), scout=(says("seen"),))
    world.configuration = structs.replace(
        world.configuration,
        agents={"scout": SCOUT, "boss": Agent(tools=("look",))},
        permissions=(Rule("task", "*", "ask"),),
    )
    await world.must(UserInput(boss, "@scout look", overrides=TurnOverrides(agent="boss")))
    assert (await world.ended(boss)).outcome == "completed"
    assert task_calls(world, boss)[0].state == "completed"
    (asked,) = [r for r in world.model.requests if r.session_id == boss]
    assert [tool.name for tool in asked.tools] == ["look"]


async def test_a_model_can_not_call_the_tool_that_only_the_user_has(autojump_clock, start):
    world, boss = await start(calls(CallPart("task", arguments={"prompt": "x"})), says("ok"))
    world.configuration = structs.replace(
        world.configuration, agents={"boss": Agent(tools=("look",))}
    )
    await world.must(UserInput(boss, "go", overrides=TurnOverrides(agent="boss")))
    await world.ended(boss)
    assert task_calls(world, boss)[0].error_kind == "invalid"


async def test_a_sub_agents_prompt_mentions_nobody(autojump_clock, start):
    prompt = CallPart("task", arguments={"prompt": "@scout look", "agent": "worker"})
    world, boss = await start(calls(prompt), says("ok"), worker=(says("done"),))
    await world.say(boss, "go")
    await world.ended(boss)
    (child,) = await sub_agents(world, boss)
    assert await sub_agents(world, child) == []


async def test_a_no_to_the_sub_agent_ends_the_turn_before_the_model_is_asked(autojump_clock, start):
    guarded = calls(CallPart("guarded", arguments={"say": "x"}))
    world, boss = await start(says("never"), worker=(guarded,))
    await world.say(boss, "@worker do it")
    opened = await world.until_body(boss, RequestOpened)
    await world.must(Answer(opened.body.request.id, "reject"))
    ended = await world.ended(boss)
    assert (ended.outcome, ended.steps) == ("blocked", 0)


async def test_the_model_goes_on_after_a_sub_agent_that_failed(autojump_clock, start):
    world, boss = await start(says("I do it"), worker=(ScriptStep(parts=(HangPart(),)),))
    await world.say(boss, "@worker do it")
    child = await linked(world, boss)
    await world.until_body(child, TurnStarted)
    await world.must(Interrupt(child))
    ended = await world.ended(boss)
    assert (ended.outcome, ended.last_message) == ("completed", "I do it")
    assert task_calls(world, boss)[0].error_kind == "failed"


async def test_after_a_kill_the_users_task_is_lost_and_the_model_is_told(
    autojump_clock, start, nursery
):
    world, boss = await start(says("I see"), worker=(ScriptStep(parts=(HangPart(),)),))
    await world.say(boss, "@worker do it")
    await linked(world, boss)
    await world.kill()
    await world.boot(nursery)
    (call,) = [i for i in (await snapshot(world, boss)).items if isinstance(i, ToolCall)]
    assert call.error_kind == "lost"
    await world.say(boss, "and?")
    await world.until_body(boss, TurnEnded, 1)
    (asked,) = [r for r in world.model.requests if r.session_id == boss]
    told = [item.text for item in asked.items if isinstance(item, Notice)]
    assert any("worker. Its result:\nThe daemon stopped" in text for text in told)


@pytest.fixture
def commands(tmp_path):
    """A directory for the user's commands."""
    (tmp_path / "commands").mkdir()
    return tmp_path / "commands"


async def test_a_command_with_subtask_is_done_by_its_agent(autojump_clock, start, commands):
    world, boss = await start(says("so"), scout=(says("fine"),))
    world.config_directory = commands.parent
    (commands / "review.md").write_text("---\nsubtask: true\nagent: scout\n---\nReview $1.")
    await world.kill()
    async with trio.open_nursery() as nursery:
        await world.boot(nursery)
        await world.say(boss, "/review HEAD")
        ended = await world.ended(boss)
        assert (ended.last_message, ended.steps) == ("so", 1)
        (call,) = task_calls(world, boss)
        assert (call.title, call.output.split("\n")[0]) == ("scout: Review HEAD.", "fine")
        started = await world.until_body(boss, TurnStarted)
        assert started.body.context.agent == "build"
        nursery.cancel_scope.cancel()


async def test_a_subtask_without_an_agent_is_done_by_the_sessions_own(
    autojump_clock, start, commands
):
    world, boss = await start(says("so"))
    world.config_directory = commands.parent
    (commands / "review.md").write_text("---\nsubtask: true\n---\nReview it.")
    (commands / "bad.md").write_text("---\nsubtask: true\nagent: wizard\n---\nReview it.")
    await world.kill()
    async with trio.open_nursery() as nursery:
        await world.boot(nursery)
        await world.must(UserInput(boss, "/review", overrides=TurnOverrides(agent="scout")))
        await world.ended(boss)
        assert task_calls(world, boss)[0].title == "scout: Review it."
        refused = await world.refused(UserInput(boss, "/bad"))
        assert refused.code == "invalid_settings"
        assert "wizard" in refused.message
        nursery.cancel_scope.cancel()
