"""B56: a fork continues from the middle of history without copies, and both are independent."""

import pytest

from tiller_daemon.models.scripted import CallPart, Script, ScriptStep, TextPart, WaitPart
from tiller_protocol.answers import Created, SessionResult
from tiller_protocol.events import StepEnded, TurnStarted
from tiller_protocol.fold import fold
from tiller_protocol.items import ToolCall, UserMessage
from tiller_protocol.ops import SessionDelete, SessionFork, SessionGet
from tiller_protocol.snapshot import fork_base

DONE = ScriptStep(parts=(TextPart("done"),))
LOOK = ScriptStep(parts=(CallPart("look", arguments={"seconds": 5}),))


async def forked(world, session_id: str, at: int | None = None) -> str:
    result = await world.must(SessionFork(session_id, at))
    assert isinstance(result, Created)
    return result.session_id


def said(world) -> list[str]:
    return [i.text for i in world.model.requests[-1].items if isinstance(i, UserMessage)]


@pytest.mark.promise("B56")
async def test_parent_and_fork_go_on_independently_and_nothing_is_copied(
    autojump_clock, start, nursery
):
    world, parent = await start(DONE, DONE, DONE)
    await world.say(parent, "one")
    await world.ended(parent)
    at = (await world.events(parent))[-1].seq
    await world.say(parent, "two")
    await world.ended(parent, 2)
    child = await forked(world, parent, at)
    assert len(await world.events(child)) == 1
    await world.say(child, "other")
    await world.ended(child)
    assert said(world) == ["one", "other"]
    await world.say(parent, "three")
    await world.ended(parent, 3)
    assert said(world) == ["one", "two", "three"]
    before = await world.must(SessionGet(child))
    await world.kill()
    await world.boot(nursery)
    assert await world.must(SessionGet(child)) == before


async def test_a_fork_in_the_middle_of_a_call_has_a_valid_history(autojump_clock, start):
    world, parent = await start(LOOK, DONE)
    await world.say(parent, "go")
    await world.until(parent, lambda e: getattr(e.body, "state", "") == "running")
    child = await forked(world, parent)
    shown = await world.must(SessionGet(child))
    assert isinstance(shown, SessionResult)
    assert [getattr(item, "state", "") for item in shown.snapshot.items] == ["", "error"]
    world.scripts["s"] = Script((DONE, DONE, DONE))
    await world.say(child, "and now")
    await world.ended(child)
    (call,) = [i for i in world.model.requests[-1].items if isinstance(i, ToolCall)]
    assert call.error_kind == "aborted"
    assert (await world.ended(parent)).outcome == "completed"


async def test_a_fork_while_the_log_is_slow_shares_only_what_is_in_it(
    autojump_clock, start, nursery
):
    world, parent = await start(ScriptStep(parts=(TextPart("x"), WaitPart(0.1)) * 100))
    world.commit_s = lambda: 0.25
    await world.say(parent, "go")
    forks = [await forked(world, parent) for _ in range(12)]
    before = [await world.must(SessionGet(fork)) for fork in forks]
    await world.ended(parent)
    await world.kill()
    await world.boot(nursery)
    assert [await world.must(SessionGet(fork)) for fork in forks] == before


async def test_a_fork_of_a_fork_shares_what_both_share(autojump_clock, start, nursery):
    world, parent = await start(*[DONE] * 6)
    await world.say(parent, "one")
    await world.ended(parent)
    child = await forked(world, parent)
    await world.say(child, "two")
    await world.ended(child)
    grandchild = await forked(world, child)
    await world.kill()
    await world.boot(nursery)
    await world.say(grandchild, "three")
    await world.ended(grandchild)
    assert said(world) == ["one", "two", "three"]
    assert (await world.refused(SessionDelete(child))).code == "busy"
    await world.must(SessionDelete(grandchild))
    await world.must(SessionDelete(child))


async def test_a_fork_at_an_event_that_is_not_there_is_refused(autojump_clock, start):
    world, parent = await start(DONE)
    for at in (0, 99):
        assert (await world.refused(SessionFork(parent, at))).code == "not_found"


async def test_a_frontend_that_folds_gets_the_same_as_the_daemon(autojump_clock, start):
    world, parent = await start(DONE, DONE)
    await world.say(parent, "one")
    await world.ended(parent)
    child = await forked(world, parent)
    await world.say(child, "two")
    await world.ended(child)
    shared = (await world.must(SessionGet(parent))).snapshot
    folded = fork_base(shared, child)
    events = await world.events(child)
    assert {type(e.body) for e in events} >= {TurnStarted, StepEnded}
    for event in events:
        fold(folded, event)
    assert folded == (await world.must(SessionGet(child))).snapshot
