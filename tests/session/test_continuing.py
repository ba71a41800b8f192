"""`turn_continue`: a turn without a new message, for waiting input or an unfinished turn."""

import pytest
import trio
import trio.testing
from msgspec import structs

from support.world import World
from tiller_daemon.models.scripted import CallPart, Failure, HangPart, Script, ScriptStep, TextPart
from tiller_daemon.session.turns.starting import CONTINUED
from tiller_protocol.answers import Queued, SessionResult, Started
from tiller_protocol.events import QueueChanged, StepStarted, TurnStarted
from tiller_protocol.items import Notice, UserMessage
from tiller_protocol.ops import (
    Compact,
    Interrupt,
    QueueEdit,
    Revert,
    SessionFork,
    SessionGet,
    Shell,
    TurnContinue,
)
from tiller_protocol.settings import Budget, TurnContextShown, TurnOverrides
from tiller_protocol.snapshot import Snapshot

HANGS = ScriptStep(parts=(HangPart(),))
FAILS = ScriptStep(failures=(Failure("bad_request"),))
LOOKS = ScriptStep(parts=(CallPart("look", arguments={"say": "a"}),))
OK = ScriptStep(parts=(TextPart("ok"),), repeat=True)


async def snapshot_of(world: World, session_id: str) -> Snapshot:
    result = await world.must(SessionGet(session_id))
    assert isinstance(result, SessionResult)
    return result.snapshot


async def waiting_after(world: World, session_id: str, *texts: str, ends: bool = True) -> list[str]:
    """Queue texts during a turn that hangs, and interrupt the turn; return the texts' ids."""
    await world.say(session_id, "go")
    await world.until_body(session_id, StepStarted)
    ids = []
    for text in texts:
        queued = await world.say(session_id, text, delivery="queue")
        assert isinstance(queued, Queued)
        ids.append(queued.input_id)
    if ends:
        await world.must(Interrupt(session_id))
        await world.ended(session_id)
    return ids


def said(world: World) -> list[str]:
    """Return the user's texts in the last request."""
    return [item.text for item in world.model.requests[-1].items if isinstance(item, UserMessage)]


def notices(world: World) -> list[str]:
    """Return the codes of the notices in the last request."""
    return [item.code for item in world.model.requests[-1].items if isinstance(item, Notice)]


def queues(world: World, session_id: str) -> list[QueueChanged]:
    return [e.body for e in world.published[session_id] if isinstance(e.body, QueueChanged)]


@pytest.mark.parametrize("promotes", [False, True])
async def test_going_on_while_a_turn_ends_waits_for_its_end(autojump_clock, start, promotes):
    lingers = CallPart("change", arguments={"seconds": 50.0, "lingers": 5.0})
    world, session_id = await start(ScriptStep(parts=(lingers,)), OK)
    (waits,) = await waiting_after(world, session_id, "next", ends=False)
    await world.until(session_id, lambda e: getattr(e.body, "state", None) == "running")
    await world.must(Interrupt(session_id))
    promote = QueueEdit(session_id, waits, "promote")
    result = await world.must(promote if promotes else TurnContinue(session_id))
    assert isinstance(result, Started)
    assert (await world.ended(session_id)).outcome == "interrupted"
    assert (await world.ended(session_id, 2)).outcome == "completed"
    assert said(world) == ["go", "next"]


@pytest.mark.parametrize("follow_ups", ["one_at_a_time", "all"])
@pytest.mark.promise("B21")
async def test_what_waits_after_an_interrupt_is_told_and_starts_in_order(
    autojump_clock, start, follow_ups
):
    world, _ = await start(HANGS, OK)
    session_id = await world.session("s", follow_ups=follow_ups)
    await waiting_after(world, session_id, "one", "two", "three")
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.queued) == ("interrupted", 3)
    assert queues(world, session_id)[-1].waits
    await trio.sleep(1_000)
    assert len(world.model.requests) == 1, "nothing starts by itself"
    assert isinstance(await world.must(TurnContinue(session_id)), Started)
    ended = await world.ended(session_id, 2)
    assert (ended.outcome, ended.queued) == ("completed", 0)
    assert said(world) == ["go", "one", "two", "three"]
    assert CONTINUED not in notices(world)
    assert not any(change.waits for change in queues(world, session_id)[4:])


async def test_what_waits_after_a_failure_is_told_and_starts_in_order(autojump_clock, start):
    slow = structs.replace(FAILS, failures=(Failure("overloaded"), Failure("bad_request")))
    world, session_id = await start(slow, OK)
    await waiting_after(world, session_id, "one", "two", ends=False)
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.queued) == ("failed", 2)
    assert queues(world, session_id)[-1].waits
    await world.must(TurnContinue(session_id))
    assert (await world.ended(session_id, 2)).outcome == "completed"
    assert said(world) == ["go", "one", "two"]


async def test_what_a_killed_daemon_left_in_the_queue_is_told(autojump_clock, nursery, start):
    world, session_id = await start(HANGS, OK)
    await waiting_after(world, session_id, "one", ends=False)
    await world.kill()
    await world.boot(nursery)
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.queued) == ("interrupted", 1)
    assert queues(world, session_id)[-1].waits
    await world.must(TurnContinue(session_id))
    await world.ended(session_id, 2)
    assert said(world) == ["go", "one"]


async def test_promote_at_rest_starts_with_that_one_and_the_others_follow(autojump_clock, start):
    world, session_id = await start(HANGS, OK)
    _, two, _ = await waiting_after(world, session_id, "one", "two", "three")
    assert isinstance(await world.must(QueueEdit(session_id, two, "promote")), Started)
    await world.ended(session_id, 2)
    assert said(world) == ["go", "two", "one", "three"]
    assert (await snapshot_of(world, session_id)).queue == ()


async def test_an_edit_at_rest_starts_nothing_and_says_that_it_waits(autojump_clock, start):
    world, session_id = await start(HANGS, OK)
    one, two = await waiting_after(world, session_id, "one", "two")
    assert await world.must(QueueEdit(session_id, two, "move", position=0)) is None
    changed = await world.until_body(session_id, QueueChanged, 4)
    assert isinstance(changed.body, QueueChanged)
    assert changed.body.waits
    await world.must(QueueEdit(session_id, two, "remove"))
    await world.must(QueueEdit(session_id, one, "remove"))
    await world.until(session_id, lambda event: event.body == QueueChanged(()))
    await trio.sleep(1_000)
    assert len(world.model.requests) == 1


async def test_new_input_comes_behind_what_waits_unless_it_is_to_start(autojump_clock, start):
    world, session_id = await start(HANGS, OK)
    await waiting_after(world, session_id, "one")
    overrides = TurnOverrides(max_steps=7)
    queued = await world.say(session_id, "new", overrides=overrides)
    assert isinstance(queued, Queued)
    await world.ended(session_id, 2)
    assert said(world) == ["go", "one", "new"]
    started = await world.until_body(session_id, TurnStarted, 2)
    assert isinstance(started.body, TurnStarted)
    assert started.body.context.max_steps != 7, "the turn is that of the older input"

    world.scripts["s"] = Script((HANGS, OK))
    other = await world.session("s")
    await waiting_after(world, other, "one")
    assert isinstance(await world.say(other, "new", delivery="start"), Started)
    await world.ended(other, 2)
    assert said(world) == ["go", "new", "one"]


async def test_a_failed_turn_continues_without_a_message(autojump_clock, start):
    world, session_id = await start(LOOKS, FAILS, OK)
    await world.say(session_id, "go")
    assert (await world.ended(session_id)).outcome == "failed"
    assert (await snapshot_of(world, session_id)).last_outcome == "failed"
    await world.must(TurnContinue(session_id))
    ended = await world.ended(session_id, 2)
    assert (ended.outcome, ended.last_message) == ("completed", "ok")
    assert said(world) == ["go"]
    assert notices(world) == [CONTINUED]


async def test_an_interrupted_turn_continues_as_soon_as_it_has_ended(autojump_clock, start):
    world, session_id = await start(HANGS, OK)
    await world.say(session_id, "go")
    await world.until_body(session_id, StepStarted)
    # The answer to the interrupt comes before the end of the turn.
    await world.must(Interrupt(session_id))
    assert isinstance(await world.must(TurnContinue(session_id)), Started)
    assert (await world.ended(session_id, 2)).outcome == "completed"
    assert said(world) == ["go"]
    assert notices(world) == ["interrupted", CONTINUED]


async def test_a_turn_that_failed_after_a_whole_message_continues(autojump_clock, start):
    withheld = ScriptStep(parts=(TextPart("I"),), finish="content_filter")
    world, session_id = await start(withheld, OK)
    await world.say(session_id, "go")
    assert (await world.ended(session_id)).outcome == "failed"
    await world.must(TurnContinue(session_id))
    assert (await world.ended(session_id, 2)).outcome == "completed"


async def test_a_turn_at_its_limit_continues(autojump_clock, start):
    world, session_id = await start(LOOKS, LOOKS, OK)
    await world.say(session_id, "go", overrides=TurnOverrides(max_steps=2))
    assert (await world.ended(session_id)).outcome == "limit_reached"
    await world.must(TurnContinue(session_id))
    assert (await world.ended(session_id, 2)).outcome == "completed"


CHOICES = TurnOverrides(
    agent="plan",
    model="other",
    variant="careful",
    approve="never",
    sandbox="read_only",
    max_steps=5,
    turn_budget=Budget(tokens=9_000),
    tools=("look", "peek"),
    output_schema={"type": "string"},
    options={"seed": 7},
)


def contexts(world: World, session_id: str) -> list[TurnContextShown]:
    bodies = [event.body for event in world.published[session_id]]
    return [body.context for body in bodies if isinstance(body, TurnStarted)]


@pytest.mark.parametrize("between", ["nothing", "compaction", "command", "restart", "revert"])
async def test_a_continued_turn_has_every_choice_of_the_turn_that_it_goes_on_from(
    autojump_clock, nursery, start, between
):
    """Even after other operations in between that asked no model for an answer."""
    world, session_id = await start(OK)
    answers = ScriptStep(parts=(TextPart('"ok"'),), repeat=True)
    world.efforts = ("careful",)
    world.scripts["other"] = Script((LOOKS, LOOKS, FAILS, answers))
    world.scripts["s"] = Script((OK,), compaction=OK)
    await world.say(session_id, "first")
    await world.ended(session_id)
    await world.say(session_id, "go", overrides=CHOICES, system="Speak Latin.")
    assert (await world.ended(session_id, 2)).outcome == "failed"
    turns = 3
    match between:
        case "compaction":
            await world.must(Compact(session_id))
        case "command":
            await world.must(Shell(session_id, "0"))
        case "restart":
            await world.kill()
            await world.boot(nursery)
        case "revert":
            await world.say(session_id, "never mind")
            await world.ended(session_id, 3)
            third = next(
                m for m in (await snapshot_of(world, session_id)).marks[::-1] if not m.step
            )
            await world.must(Revert(session_id, third.turn_id))
            turns = 4
        case _:
            pass
    if between in ("compaction", "command"):
        await world.ended(session_id, 3)
        turns = 4
    world.model.requests.clear()
    await world.must(TurnContinue(session_id))
    assert (await world.ended(session_id, turns)).outcome == "completed"
    before, after = contexts(world, session_id)[1], contexts(world, session_id)[-1]
    assert after == before
    assert before.system_prompt.endswith("Speak Latin.")
    assert (before.agent, before.max_steps, before.tools) == ("plan", 5, ("look", "peek"))
    sent = world.model.requests[-1]
    assert (sent.model, sent.variant, sent.options) == ("other", "careful", {"seed": 7})


async def test_choices_for_the_continued_turn_come_on_top_and_last(autojump_clock, start):
    world, session_id = await start(OK)
    world.efforts = ("careful",)
    world.scripts["other"] = Script((FAILS, FAILS, FAILS, FAILS))
    await world.say(session_id, "go", overrides=CHOICES)
    await world.ended(session_id)
    await world.must(TurnContinue(session_id, TurnOverrides(max_steps=9)))
    await world.ended(session_id, 2)
    await world.must(TurnContinue(session_id, TurnOverrides(model="s", tools=())))
    await world.ended(session_id, 3)
    first, second, third = contexts(world, session_id)
    assert second == structs.replace(first, max_steps=9)
    assert (third.max_steps, third.model, third.tools) == (9, "s", ())
    assert world.model.requests[-1].options == {}, "they were fields of another model's requests"


async def test_what_waited_has_the_choices_of_the_session(autojump_clock, start):
    world, session_id = await start(HANGS, OK)
    await world.say(session_id, "go", overrides=TurnOverrides(max_steps=7), system="Speak Latin.")
    await world.until_body(session_id, StepStarted)
    await world.say(session_id, "next", delivery="queue")
    await world.must(Interrupt(session_id))
    await world.ended(session_id)
    await world.must(TurnContinue(session_id))
    await world.ended(session_id, 2)
    first, second = contexts(world, session_id)
    assert first.max_steps == 7
    assert second.max_steps != 7
    assert "Latin" not in second.system_prompt


async def test_what_is_answered_is_not_continued_and_a_running_turn_is_busy(autojump_clock, start):
    world, session_id = await start(HANGS, OK)
    assert (await world.refused(TurnContinue(session_id))).code == "empty_input"
    started = await world.say(session_id, "go")
    await world.until_body(session_id, StepStarted)
    busy = await world.refused(TurnContinue(session_id))
    assert isinstance(started, Started)
    assert (busy.code, busy.data["turn_id"]) == ("busy", started.turn_id)
    await world.must(Interrupt(session_id))
    await world.must(TurnContinue(session_id))
    await world.ended(session_id, 2)
    head = (await snapshot_of(world, session_id)).seq
    nothing = await world.refused(TurnContinue(session_id))
    assert nothing.code == "empty_input"
    assert "nothing to continue" in nothing.message
    await world.must(Shell(session_id, "0.1 ls"))
    await world.ended(session_id, 3)
    assert (await world.refused(TurnContinue(session_id))).code == "empty_input"
    assert (await snapshot_of(world, session_id)).seq > head


async def test_a_message_without_a_reply_gets_one(autojump_clock, start):
    world, session_id = await start(OK)
    await world.say(session_id, "listen", no_reply=True)
    await world.must(TurnContinue(session_id))
    assert (await world.ended(session_id)).last_message == "ok"
    assert (await snapshot_of(world, session_id)).title == "listen"


async def test_history_that_a_revert_or_a_fork_cut_short_continues(autojump_clock, start):
    world, session_id = await start(LOOKS, LOOKS, OK)
    started = await world.say(session_id, "go")
    assert isinstance(started, Started)
    await world.ended(session_id)
    third = await world.until_body(session_id, StepStarted, 3)
    fork = (await world.must(SessionFork(session_id, third.seq - 1))).session_id
    await world.must(Revert(session_id, started.turn_id, 3))
    for one, turns in ((session_id, 2), (fork, 1)):
        await world.must(TurnContinue(one))
        assert (await world.ended(one, turns)).outcome == "completed"
        assert said(world) == ["go"]
        assert (await world.refused(TurnContinue(one))).code == "empty_input"
    await world.must(Revert(session_id, started.turn_id))
    assert (await world.refused(TurnContinue(session_id))).code == "empty_input"


async def test_a_refused_continuation_changes_nothing(autojump_clock, start):
    world, session_id = await start(HANGS, OK)
    await waiting_after(world, session_id, "one", "two")
    before = await snapshot_of(world, session_id)
    unknown = TurnOverrides(model="scripted/unknown")
    assert (await world.refused(TurnContinue(session_id, unknown))).code == "invalid_settings"
    wrong = TurnOverrides(output_schema={"type": "wrong"})
    assert (await world.refused(TurnContinue(session_id, wrong))).code == "invalid_settings"
    after = await snapshot_of(world, session_id)
    assert (after.queue, after.seq) == (before.queue, before.seq)
    await world.must(TurnContinue(session_id))
    await world.ended(session_id, 2)
    assert said(world) == ["go", "one", "two"]


async def test_another_model_can_go_on(autojump_clock, start):
    world, session_id = await start(FAILS)
    world.scripts["other"] = Script((OK,))
    await world.say(session_id, "go")
    await world.ended(session_id)
    await world.must(TurnContinue(session_id, TurnOverrides(model="scripted/other")))
    assert (await world.ended(session_id, 2)).last_message == "ok"


async def test_a_continued_turn_is_resumed_after_a_kill(autojump_clock, nursery, start):
    world, session_id = await start(FAILS, HANGS, OK)
    world.configuration = structs.replace(world.configuration, resume="auto")
    await world.say(session_id, "go")
    await world.ended(session_id)
    await world.must(TurnContinue(session_id))
    await world.until_body(session_id, StepStarted, 2)
    await trio.testing.wait_all_tasks_blocked()
    await world.kill()
    await world.boot(nursery)
    assert (await world.ended(session_id, 2)).outcome == "completed"
    assert notices(world) == [CONTINUED, "resumed"]
