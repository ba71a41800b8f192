"""Compaction and pruning through the whole core, on a virtual clock."""

from typing import Any

import pytest
import trio
from msgspec import structs

from support.world import World
from tiller_daemon.config import CompactionPolicy
from tiller_daemon.models.scripted import (
    CallPart,
    Failure,
    HangPart,
    Script,
    ScriptedUsage,
    ScriptStep,
    TextPart,
)
from tiller_daemon.session.actor import SUBMISSIONS_WAITING_MAX
from tiller_daemon.turn.compaction import COMPACTION_S_MAX, FAILURES_MAX
from tiller_daemon.turn.tokens import PRUNED_OUTPUT
from tiller_protocol.answers import Rejected, Started, Steered
from tiller_protocol.events import (
    HistoryCompacted,
    StatusChanged,
    ToolCallUpdated,
    WarningRaised,
)
from tiller_protocol.items import Compaction, ToolCall, UserMessage
from tiller_protocol.ops import Compact, Interrupt, SessionGet, TurnContinue, UserInput

SUMMARY = ScriptStep(parts=(TextPart("what was done"),))
FULL = ScriptedUsage(input_tokens=9_000, output_tokens=100)


def text(words: str, usage: ScriptedUsage | None = None) -> ScriptStep:
    return ScriptStep(parts=(TextPart(words),), usage=usage)


def look(times: int = 1, usage: ScriptedUsage | None = None, seconds: float = 0) -> ScriptStep:
    """A call whose output has so many characters."""
    part = CallPart("look", arguments={"say": "y", "times": times, "seconds": seconds})
    return ScriptStep(parts=(part,), usage=usage)


def compactions(world: World, session_id: str) -> list[HistoryCompacted]:
    return [e.body for e in world.published[session_id] if isinstance(e.body, HistoryCompacted)]


@pytest.fixture
def narrow(start):
    """Starts a world whose model has a window of 10,000 tokens and writes good summaries."""

    async def narrow(*steps: ScriptStep, summary: ScriptStep = SUMMARY) -> tuple[World, str]:
        world, session_id = await start(*steps)
        world.context_window = 10_000
        world.scripts["s"] = Script(steps, compaction=summary)
        return world, session_id

    return narrow


@pytest.mark.promise("B41")
async def test_a_full_context_is_compacted_before_the_next_turn(autojump_clock, narrow):
    world, session_id = await narrow(text("w" * 20_000, FULL), text("two"))
    await world.say(session_id, "first")
    await world.ended(session_id)
    await world.say(session_id, "second")
    await world.ended(session_id, 2)
    purposes = [request.purpose for request in world.model.requests]
    assert purposes == ["turn", "compaction", "turn"]
    items = world.model.requests[-1].items
    assert [type(i) for i in items] == [UserMessage, UserMessage, Compaction]
    assert items[1].text == "second"
    assert items[2].summary == "what was done"
    (said,) = compactions(world, session_id)
    assert said.tokens_after < 0.7 * said.tokens_before


@pytest.mark.promise("B41", "B18")
async def test_in_mid_turn_the_continuation_comes_before_the_steering(autojump_clock, narrow):
    world, session_id = await narrow(look(36_000, seconds=5), text("go on"), text("ok"))
    await world.say(session_id, "do it")
    await world.until(
        session_id, lambda e: isinstance(e.body, ToolCallUpdated) and e.body.state == "running"
    )
    assert isinstance(await world.say(session_id, "faster", delivery="steer"), Steered)
    ended = await world.ended(session_id)
    assert ended.outcome == "completed", ended.error
    turns = [r for r in world.model.requests if r.purpose == "turn"]
    said = [[i.text for i in r.items if isinstance(i, UserMessage)] for r in turns]
    assert said == [["do it"], ["do it"], ["do it", "faster"]]


@pytest.mark.promise("B42")
async def test_an_overflow_is_compacted_once_and_a_second_one_ends_the_turn(autojump_clock, narrow):
    overflow = Failure("context_overflow")
    once = ScriptStep(parts=(TextPart("fine"),), failures=(overflow,))
    twice = ScriptStep(parts=(TextPart("no"),), failures=(overflow, overflow))
    world, session_id = await narrow(text("w" * 20_000), once, twice, text("usable"))
    await world.say(session_id, "first")
    await world.ended(session_id)
    await world.say(session_id, "second")
    ended = await world.ended(session_id, 2)
    assert ended.outcome == "completed", ended.error
    assert len(compactions(world, session_id)) == 1
    retried = [r for r in world.model.requests if r.purpose == "turn"][-1]
    assert [type(item).__name__ for item in retried.items] == [
        "UserMessage", "UserMessage", "Compaction",
    ]  # fmt: skip
    await world.say(session_id, "third")
    failed = await world.ended(session_id, 3)
    assert failed.outcome == "failed"
    assert failed.error is not None
    await world.say(session_id, "fourth")
    assert (await world.ended(session_id, 4)).last_message == "usable"


@pytest.mark.parametrize(
    "summary",
    [
        ScriptStep(parts=(TextPart("z" * 100_000),)),
        ScriptStep(),
        ScriptStep(failures=(Failure("bad_request"),)),
        ScriptStep(parts=(HangPart(),)),
    ],
    ids=["too long", "empty", "failing", "hanging"],
)
@pytest.mark.promise("B43")
async def test_a_bad_summary_falls_back_to_pruning_then_to_a_clear_error(
    autojump_clock, narrow, summary
):
    big = [look(17_000 + n) for n in range(2)]
    world, session_id = await narrow(*big, text("done"), text("hm"), summary=summary)
    await world.say(session_id, "go")
    ended = await world.ended(session_id)
    (pruned,) = compactions(world, session_id)
    assert len(pruned.pruned) == 1
    assert ended.outcome == "completed"
    world.scripts["s"] = Script((text("never"),), compaction=summary)
    await world.say(session_id, "w" * 100_000)
    failed = await world.ended(session_id, 2)
    assert failed.error is not None
    assert failed.error.code == "context_full"
    assert "larger window" in failed.error.message
    assert len(warnings(world, session_id)) == 1, "the error says alone why the turn has failed"


@pytest.mark.promise("B43")
async def test_after_two_failed_compactions_a_turn_ends_though_pruning_made_room(
    autojump_clock, narrow
):
    steps = [look(9_000 + n) for n in range(12)]
    world, session_id = await narrow(*steps, text("never"), summary=ScriptStep())
    await world.say(session_id, "go")
    ended = await world.ended(session_id)
    assert ended.error is not None
    assert ended.error.code == "context_full"
    purposes = [request.purpose for request in world.model.requests]
    assert purposes.count("compaction") == FAILURES_MAX
    assert len(compactions(world, session_id)) == FAILURES_MAX


@pytest.mark.promise("B44")
async def test_old_output_is_pruned_and_a_reloaded_session_sends_the_same(
    autojump_clock, start, nursery
):
    big = ScriptStep(
        parts=tuple(CallPart("look", arguments={"say": f"{n}", "times": 40_000}) for n in range(8))
    )
    world, session_id = await start(big, text("done"), text("two"), text("three"))
    await world.say(session_id, "go")
    await world.ended(session_id)
    (pruned,) = compactions(world, session_id)
    assert len(pruned.pruned) == 5
    await world.say(session_id, "next")
    await world.ended(session_id, 2)
    before = world.model.requests[-1].items
    outputs = [i.output for i in before if isinstance(i, ToolCall)]
    assert [output == PRUNED_OUTPUT for output in outputs] == [True] * 5 + [False] * 3
    await world.kill()
    await world.boot(nursery)
    await world.say(session_id, "last")
    await world.ended(session_id, 3)
    assert world.model.requests[-1].items[: len(before)] == before


@pytest.mark.promise("B45")
async def test_ten_compactions_add_ten_summaries_to_the_log(autojump_clock, narrow):
    steps = [text("w" * 32_000) for _ in range(11)]
    world, session_id = await narrow(*steps)
    for number in range(11):
        await world.say(session_id, f"turn {number}")
        ended = await world.ended(session_id, number + 1)
        assert ended.outcome == "completed", ended.error
    assert len(compactions(world, session_id)) == 10
    size = sum(len(body) for body in await world.log.events(session_id, 0, 10**9, 2**60))
    assert size < 11 * 3 * 33_000 + 100_000
    last = [r for r in world.model.requests if r.purpose == "turn"][-1]
    assert len([i for i in last.items if isinstance(i, Compaction)]) == 1


async def test_compact_is_a_turn_that_can_be_interrupted_and_not_steered(autojump_clock, narrow):
    world, session_id = await narrow(
        text("w" * 20_000), text("after"), summary=ScriptStep(parts=(HangPart(),))
    )
    await world.say(session_id, "go")
    await world.ended(session_id)
    assert isinstance(await world.must(Compact(session_id)), Started)
    assert (await world.refused(Compact(session_id))).code == "busy"
    steered = await world.refused(UserInput(session_id, "left", delivery="steer"))
    assert (steered.code, steered.data["input"]["text"]) == ("turn_not_steerable", "left")
    answers = []

    async def say_next() -> None:
        answers.append(await world.say(session_id, "next"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(say_next)
        await trio.sleep(1)
        await world.must(Interrupt(session_id))
    assert isinstance(answers[0], Started)
    await world.ended(session_id, 3)
    assert compactions(world, session_id) == []


async def test_each_of_too_many_messages_during_a_compaction_is_answered(autojump_clock, narrow):
    world, session_id = await narrow(
        text("w" * 20_000), text("after"), summary=ScriptStep(parts=(HangPart(),))
    )
    await world.say(session_id, "go")
    await world.ended(session_id)
    await world.must(Compact(session_id))
    codes: list[str] = []

    async def say(number: int) -> None:
        answer = await world.ask(UserInput(session_id, f"{number}", delivery="queue"))
        codes.append(answer.code if isinstance(answer, Rejected) else "accepted")

    with trio.fail_after(100):
        async with trio.open_nursery() as nursery:
            for number in range(2 * SUBMISSIONS_WAITING_MAX):
                nursery.start_soon(say, number)
                await trio.sleep(0.01)
            await world.must(Interrupt(session_id))
    assert {*codes} == {"accepted", "overloaded"}


async def test_compact_on_demand_shrinks_history(autojump_clock, narrow):
    world, session_id = await narrow(text("w" * 20_000), text("after"))
    await world.say(session_id, "go")
    await world.ended(session_id)
    await world.must(Compact(session_id))
    assert (await world.ended(session_id, 2)).outcome == "completed"
    assert StatusChanged("busy", cause="compacting") in [
        e.body for e in world.published[session_id]
    ]
    snapshot = (await world.must(SessionGet(session_id))).snapshot
    assert isinstance(snapshot.items[-1], Compaction)
    (said,) = compactions(world, session_id)
    assert snapshot.context_tokens == said.tokens_after > 0, "the figure stays in sight"


def warnings(world: World, session_id: str) -> list[WarningRaised]:
    return [e.body for e in world.published[session_id] if isinstance(e.body, WarningRaised)]


async def test_on_a_short_session_there_is_nothing_to_compact(autojump_clock, narrow):
    """Empty sessions, sessions too short to shorten, and sessions summarised just now."""
    world, session_id = await narrow(text("hi"), text("w" * 20_000), text("after"))
    await world.must(Compact(session_id))
    assert (await world.ended(session_id)).outcome == "completed"
    assert world.model.requests == [], "no model could do anything"
    await world.say(session_id, "go")
    await world.ended(session_id, 2)
    await world.must(Compact(session_id))
    ended = await world.ended(session_id, 3)
    assert (ended.outcome, ended.error) == ("completed", None)
    assert ended.last_message.startswith("There is nothing to compact")
    assert compactions(world, session_id) == []
    await world.say(session_id, "go")
    await world.ended(session_id, 4)
    for turns in (5, 6):
        await world.must(Compact(session_id))
        assert (await world.ended(session_id, turns)).outcome == "completed"
    assert len(compactions(world, session_id)) == 1
    asked = [request.purpose for request in world.model.requests].count("compaction")
    assert asked == 2, "right after a summary there is nothing to ask"
    nothing = [warning.code for warning in warnings(world, session_id)]
    assert nothing == ["nothing_to_compact"] * 3
    assert (await world.say(session_id, "usable")) is not None
    await world.ended(session_id, 7)


@pytest.mark.parametrize(
    ("summary", "why"),
    [
        (ScriptStep(failures=(Failure("bad_request", message="no such model here"),)), "no such"),
        (ScriptStep(parts=(HangPart(),)), "300 s"),
        (ScriptStep(), "empty summary"),
        (ScriptStep(parts=(TextPart("z" * 100_000),)), "not much shorter"),
        (ScriptStep(parts=(TextPart("half a summ"),), finish="length"), "cut off"),
        (ScriptStep(parts=(TextPart("half"),), finish="content_filter"), "content policy"),
        (text("<think>what was it?</think>\n"), "empty summary"),
        (text("<think>what was it? And then"), "empty summary"),
        (text("what was it?</think>"), "empty summary"),
    ],
    ids=[
        *("failing", "hanging", "empty", "too long", "cut off", "withheld"),
        *("only thoughts", "endless thoughts", "thoughts that the prompt began"),
    ],
)
async def test_why_a_compaction_failed_reaches_whoever_asked_for_it(
    autojump_clock, narrow, summary, why
):
    world, session_id = await narrow(look(20_000), text("done"), summary=summary)
    await world.say(session_id, "go")
    await world.ended(session_id)
    before = (await world.must(SessionGet(session_id))).snapshot.items
    await world.must(Compact(session_id))
    ended = await world.ended(session_id, 2)
    assert ended.outcome == "failed"
    assert ended.error is not None
    assert ended.error.code == "compaction_failed"
    assert why in ended.error.message
    assert (await world.must(SessionGet(session_id))).snapshot.items == before
    assert compactions(world, session_id) == []


@pytest.mark.parametrize(
    ("answer", "summary"),
    [
        ("<think>hm</think>\n\nall of it", "all of it"),
        ("It prints </think> at the end.", "It prints </think> at the end."),
    ],
)
async def test_thoughts_are_no_part_of_a_summary(autojump_clock, narrow, answer, summary):
    world, session_id = await narrow(look(20_000), text("done"), summary=text(answer))
    await world.say(session_id, "go")
    await world.ended(session_id)
    await world.must(Compact(session_id))
    assert (await world.ended(session_id, 2)).outcome == "completed"
    last = (await world.must(SessionGet(session_id))).snapshot.items[-1]
    assert last.summary.strip() == summary


@pytest.mark.parametrize("counted", [1, 15, 400, 4_000])
async def test_a_count_that_is_far_too_low_prevents_no_compaction(
    autojump_clock, narrow, counted: int
):
    """Some servers leave cached tokens out of their counts."""
    few = ScriptedUsage(input_tokens=counted, output_tokens=10)
    overflow = ScriptStep(
        parts=(TextPart("fine"),), failures=(Failure("context_overflow"),), usage=few
    )
    big = text("w" * 30_000, few)
    world, session_id = await narrow(big, overflow, big, text("usable", few))
    for number in (1, 2, 3):
        await world.say(session_id, "go")
        ended = await world.ended(session_id, number)
        assert ended.outcome == "completed", ended.error
    assert len(compactions(world, session_id)) == 1
    await world.must(Compact(session_id))
    assert (await world.ended(session_id, 4)).outcome == "completed"
    assert len(compactions(world, session_id)) == 2


async def test_why_an_automatic_compaction_failed_is_a_warning(autojump_clock, narrow):
    failing = ScriptStep(failures=(Failure("bad_request", message="no such model here"),))
    big = [look(17_000 + n) for n in range(2)]
    world, session_id = await narrow(*big, text("done"), summary=failing)
    await world.say(session_id, "go")
    assert (await world.ended(session_id)).outcome == "completed"
    (warning,) = warnings(world, session_id)
    assert warning.code == "compaction_failed"
    assert "no such model here" in warning.message


async def test_the_configured_share_of_the_window_decides(autojump_clock, narrow):
    world, session_id = await narrow(text("w" * 20_000), text("two"), text("three"))
    configure(world, full_share=0.3)
    await world.say(session_id, "first")
    await world.ended(session_id)
    assert compactions(world, session_id) == []
    await world.say(session_id, "second")
    await world.ended(session_id, 2)
    assert len(compactions(world, session_id)) == 1


async def test_without_auto_only_the_user_compacts_and_an_overflow_says_so(autojump_clock, narrow):
    overflow = ScriptStep(
        parts=(TextPart("later"),), failures=(Failure("context_overflow", message="too long"),)
    )
    world, session_id = await narrow(text("w" * 20_000, FULL), overflow, text("two"))
    configure(world, auto=False)
    await world.say(session_id, "first")
    await world.ended(session_id)
    await world.say(session_id, "second")
    ended = await world.ended(session_id, 2)
    assert ended.error is not None
    assert ended.error.code == "context_full"
    assert ended.error.message.startswith("too long")
    assert "`compaction.auto`" in ended.error.message
    assert compactions(world, session_id) == []
    await world.must(Compact(session_id))
    await world.ended(session_id, 3)
    assert len(compactions(world, session_id)) == 1
    await world.must(TurnContinue(session_id))
    assert (await world.ended(session_id, 4)).last_message == "two"


async def test_how_much_input_is_preserved_is_configured(autojump_clock, narrow):
    world, session_id = await narrow(*[text("w" * 9_000)] * 3)
    configure(world, preserve_tokens=1)
    for number in range(3):
        await world.say(session_id, f"input {number}")
        await world.ended(session_id, number + 1)
    await world.must(Compact(session_id))
    await world.ended(session_id, 4)
    snapshot = (await world.must(SessionGet(session_id))).snapshot
    kept = {item.id: item.text for item in snapshot.items if isinstance(item, UserMessage)}
    assert [kept[message] for message in snapshot.items[-1].kept] == ["input 2"]


@pytest.mark.parametrize("prunes", [True, False])
async def test_pruning_is_configured(autojump_clock, start, prunes):
    world, session_id = await start(*[look(4_000 + n) for n in range(3)], text("done"))
    configure(world, prune=prunes, prune_protect_tokens=1_500, prune_gain_tokens=500)
    await world.say(session_id, "go")
    await world.ended(session_id)
    assert [len(one.pruned) for one in compactions(world, session_id)] == ([2] if prunes else [])


def configure(world: World, **policy: Any) -> None:
    """Set keys of the table `compaction`."""
    world.configuration = structs.replace(
        world.configuration, compaction=CompactionPolicy(**policy)
    )


@pytest.mark.promise("B46")
async def test_retries_of_a_compaction_are_status_events_like_any_other(autojump_clock, narrow):
    """A delay that the provider asks for is shown, and waited in full beyond the time limit."""
    summary = ScriptStep(
        parts=(TextPart("what was done"),),
        failures=(
            Failure("rate_limit", "slow down", retry_after_s=COMPACTION_S_MAX + 99),
            Failure("broken_stream", "cut", after_parts=1),
        ),
    )
    world, session_id = await narrow(text("w" * 20_000, FULL), text("two"), summary=summary)
    await world.say(session_id, "first")
    await world.ended(session_id)
    await world.say(session_id, "second")
    assert (await world.ended(session_id, 2)).last_message == "two"
    bodies = [event.body for event in world.published[session_id]]
    shown = [body for body in bodies if isinstance(body, StatusChanged)]
    compacting = StatusChanged("busy", cause="compacting")
    begun = shown.index(compacting)
    first, again, second = shown[begun + 1 : begun + 4]
    assert (first.status, first.attempt, first.limit, first.cause) == ("retry", 2, 8, "slow down")
    assert (first.delay_s, second.status, second.attempt) == (COMPACTION_S_MAX + 99, "retry", 3)
    # Once the model answers, the session is busy again, still for the same reason.
    assert [again, *shown[begun + 4 : begun + 6]] == [compacting, compacting, StatusChanged("busy")]
    (compacted,) = compactions(world, session_id)
    assert compacted.item_id
