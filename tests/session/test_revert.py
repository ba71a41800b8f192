"""B55 for history: a revert to before a turn or a step, and its undoing."""

import pytest

from tiller_daemon.models.scripted import CallPart, HangPart, Script, ScriptStep, TextPart
from tiller_protocol.events import TurnStarted, WarningRaised
from tiller_protocol.fold import fold
from tiller_protocol.items import ToolCall, UserMessage
from tiller_protocol.ops import (
    Compact,
    Interrupt,
    Revert,
    SessionFork,
    SessionGet,
    Unrevert,
    UserInput,
)
from tiller_protocol.snapshot import Snapshot


def says(text: str) -> ScriptStep:
    return ScriptStep(parts=(TextPart(text),))


LOOK = ScriptStep(parts=(CallPart("look", arguments={"say": "x"}),))


async def snapshot(world, session_id: str) -> Snapshot:
    return (await world.must(SessionGet(session_id))).snapshot


async def texts(world, session_id: str) -> list[str]:
    return [getattr(item, "text", "call") for item in (await snapshot(world, session_id)).items]


async def turns(world, session_id: str, *words: str) -> list[str]:
    """Have a turn for each word; returns the turns' ids."""
    for number, word in enumerate(words):
        await world.say(session_id, word)
        await world.ended(session_id, number + 1)
    started = [e for e in world.published[session_id] if isinstance(e.body, TurnStarted)]
    return [event.turn_id for event in started]


@pytest.mark.promise("B55")
async def test_history_goes_back_to_before_a_turn_and_comes_back_again(autojump_clock, start):
    world, session_id = await start(says("1"), says("2"), says("3"))
    _, second, _ = await turns(world, session_id, "a", "b", "c")
    await world.must(Revert(session_id, second))
    assert await texts(world, session_id) == ["a", "1"]
    await world.must(Unrevert(session_id))
    assert await texts(world, session_id) == ["a", "1", "b", "2", "c", "3"]


@pytest.mark.promise("B55")
async def test_the_model_is_not_told_of_what_was_reverted(autojump_clock, start):
    world, session_id = await start(says("1"), says("2"), says("3"))
    _, second = await turns(world, session_id, "a", "b")
    await world.must(Revert(session_id, second))
    await world.say(session_id, "c")
    await world.ended(session_id, 3)
    said = [item.text for item in world.model.requests[-1].items]
    assert said == ["a", "1", "c"]
    refused = await world.refused(Unrevert(session_id))
    assert refused.code == "not_found"


async def test_history_goes_back_to_before_a_step_and_stays_valid(autojump_clock, start):
    world, session_id = await start(LOOK, LOOK, says("end"), says("again"))
    (turn,) = await turns(world, session_id, "a")
    await world.must(Revert(session_id, turn, step=2))
    items = (await snapshot(world, session_id)).items
    assert [type(item) for item in items] == [UserMessage, ToolCall]
    await world.say(session_id, "b")
    await world.ended(session_id, 2)
    assert [type(i) for i in world.model.requests[-1].items] == [UserMessage, ToolCall, UserMessage]


async def test_reverts_are_undone_one_by_one_and_what_was_said_since_stays(autojump_clock, start):
    world, session_id = await start(says("1"), says("2"), says("3"))
    first, second, third = await turns(world, session_id, "a", "b", "c")
    await world.must(Revert(session_id, third))
    await world.must(Revert(session_id, second))
    await world.must(UserInput(session_id, "note", no_reply=True))
    await world.must(Unrevert(session_id))
    assert await texts(world, session_id) == ["a", "1", "b", "2", "note"]
    await world.must(Unrevert(session_id))
    assert await texts(world, session_id) == ["a", "1", "b", "2", "c", "3", "note"]
    await world.must(Revert(session_id, first))
    assert await texts(world, session_id) == []


async def test_only_what_is_in_history_can_be_reverted_and_only_at_rest(autojump_clock, start):
    world, session_id = await start(says("1"), says("2"), ScriptStep(parts=(HangPart(),)))
    _, second = await turns(world, session_id, "a", "b")
    await world.must(Revert(session_id, second))
    for op in (Revert(session_id, second), Revert(session_id, "01J"), Revert(session_id, "x", 2)):
        assert (await world.refused(op)).code == "not_found"
    await world.say(session_id, "c")
    running = await world.until_body(session_id, TurnStarted, 3)
    for op in (Revert(session_id, running.turn_id), Unrevert(session_id)):
        assert (await world.refused(op)).code == "busy"
    await world.must(Interrupt(session_id))
    await world.ended(session_id, 3)


async def test_a_revert_outlives_a_restart_and_every_fold_agrees(autojump_clock, start, nursery):
    world, session_id = await start(says("1"), LOOK, says("2"), says("3"))
    _, second, _ = await turns(world, session_id, "a", "b", "c")
    await world.must(Revert(session_id, second, 2))
    before = await snapshot(world, session_id)
    await world.kill()
    await world.boot(nursery)
    assert await snapshot(world, session_id) == before
    folded = Snapshot(session_id)
    for event in await world.events(session_id):
        fold(folded, event)
    assert folded == before
    await world.must(Unrevert(session_id))
    assert await texts(world, session_id) == ["a", "1", "b", "call", "2", "c", "3"]


async def test_a_fork_can_go_back_to_a_turn_that_it_shares_with_its_parent(autojump_clock, start):
    world, session_id = await start(says("1"), says("2"), says("3"))
    _, second = await turns(world, session_id, "a", "b")
    fork = (await world.must(SessionFork(session_id))).session_id
    await world.must(Revert(fork, second))
    assert await texts(world, fork) == ["a", "1"]
    assert await texts(world, session_id) == ["a", "1", "b", "2"]


async def test_the_user_is_told_that_files_stay_as_they_are(autojump_clock, start):
    world, session_id = await start(says("1"))
    (turn,) = await turns(world, session_id, "a")
    await world.must(Revert(session_id, turn))
    warning = await world.until_body(session_id, WarningRaised)
    assert warning.body.code == "files_kept"


@pytest.mark.parametrize("cut", [0, 1])
async def test_a_summary_that_is_reverted_gives_back_what_it_stood_for(autojump_clock, start, cut):
    world, session_id = await start(says("1 " * 4_000), says("2"), says("3"))
    world.scripts["s"] = Script(world.scripts["s"].steps, compaction=says("short"))
    await turns(world, session_id, "a", "b")
    compaction = await world.must(Compact(session_id))
    await world.ended(session_id, 3)
    if cut:
        await world.must(Revert(session_id, compaction.turn_id))
    await world.say(session_id, "c")
    await world.ended(session_id, 4)
    said = [getattr(item, "text", "") for item in world.model.requests[-1].items]
    assert ("1 " * 4_000 in said) == bool(cut)
