"""The notice to the model when a read-only agent follows one that writes, or the reverse."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from support.world import World
from tiller_daemon.config import Agent
from tiller_daemon.models.base import ModelRequest
from tiller_daemon.models.scripted import CallPart, Script, ScriptStep, TextPart, WaitPart
from tiller_daemon.session.context.mode_reminder import CODE, mode_notices
from tiller_protocol.answers import Created, Started
from tiller_protocol.events import TurnStarted
from tiller_protocol.items import Notice
from tiller_protocol.ops import (
    Compact,
    Interrupt,
    Revert,
    SessionConfigure,
    SessionFork,
    TurnContinue,
)
from tiller_protocol.settings import Settings, TurnOverrides
from tiller_protocol.snapshot import Mark, Snapshot

PLAN = "1. Change a.py. 2. Run the tests."


def says(text: str) -> ScriptStep:
    return ScriptStep(parts=(TextPart(text),))


async def make(nursery, *steps: ScriptStep) -> World:
    return await World.start(nursery, {"s": Script(steps or (says(PLAN),) * 12)})


async def turn(world: World, session_id: str, agent: str) -> ModelRequest:
    """Have a turn with that agent; return the turn's first request."""
    count = sum(isinstance(e.body, TurnStarted) for e in world.published.get(session_id, ()))
    asked = len(world.model.requests)
    await world.say(session_id, "go", overrides=TurnOverrides(agent=agent))
    await world.ended(session_id, count + 1)
    return world.model.requests[asked]


def told(request: ModelRequest) -> list[str]:
    return [item.text for item in request.items if isinstance(item, Notice) and item.code == CODE]


async def test_a_plan_is_handed_to_the_agent_that_may_write_and_back_it_only_reads(
    autojump_clock, nursery
):
    world = await make(nursery)
    session_id = await world.session()
    assert told(await turn(world, session_id, "plan")) == []
    assert told(await turn(world, session_id, "explore")) == []
    request = await turn(world, session_id, "build")
    (notice,) = told(request)
    assert notice.startswith("Your role has changed: you are now the agent `build`, which may")
    assert "you were `explore`, which could only read." in notice
    assert "If the last message of `explore` is a plan, carry it out" in notice
    # The notice comes once, right after the input that it is about.
    assert isinstance(request.items[-1], Notice)
    assert told(await turn(world, session_id, "general")) == [notice]
    (_, back) = told(await turn(world, session_id, "plan"))
    assert "you are now the agent `plan`, which only reads" in back
    assert "you were `general`, which could write" in back
    assert PLAN not in back
    starts = [e.body for e in await world.events(session_id) if isinstance(e.body, TurnStarted)]
    assert [one.context.read_only for one in starts] == [True, True, False, False, True]
    nursery.cancel_scope.cancel()


async def test_a_plan_that_a_compaction_has_removed_is_quoted_with_its_steps(
    autojump_clock, nursery
):
    entries = [{"text": "Change a.py", "state": "pending"}, {"text": "Look", "state": "completed"}]
    call = CallPart("plan", arguments={"items": entries})
    long = f"{PLAN}{' More of it.' * 2_000}"
    steps = (ScriptStep(parts=(call,)), says(long), says("Done."))
    script = Script(steps, compaction=says("A summary."))
    world = await World.start(nursery, {"s": script})
    session_id = await world.session()
    await turn(world, session_id, "plan")
    await world.must(SessionConfigure(session_id, Settings(agent="build")))
    await world.must(Compact(session_id))
    assert (await world.ended(session_id, 2)).outcome == "completed"
    (notice,) = told(await turn(world, session_id, "build"))
    assert f"<message>\n{long}\n</message>" in notice
    assert notice.endswith("to the user:\n- Change a.py (pending)\n- Look (completed)")
    nursery.cancel_scope.cancel()


async def test_forks_reverts_and_restarts_know_what_the_model_could_do_last(
    autojump_clock, nursery
):
    world = await make(nursery)
    session_id = await world.session()
    await turn(world, session_id, "plan")
    await world.kill()
    await world.boot(nursery)
    forked = await world.must(SessionFork(session_id))
    assert isinstance(forked, Created)
    assert len(told(await turn(world, forked.session_id, "build"))) == 1
    result = await world.say(session_id, "go", overrides=TurnOverrides(agent="build"))
    assert isinstance(result, Started)
    await world.ended(session_id, 2)
    await world.must(Revert(session_id, result.turn_id))
    assert len(told(await turn(world, session_id, "build"))) == 1
    nursery.cancel_scope.cancel()


async def test_an_interrupted_plan_is_not_handed_over(autojump_clock, nursery):
    world = await make(nursery, ScriptStep(parts=(TextPart("1. Half"), WaitPart(99))), says("ok"))
    session_id = await world.session()
    await world.say(session_id, "go", overrides=TurnOverrides(agent="plan"))
    await world.until(session_id, lambda event: "1. Half" in str(event.body))
    await world.must(Interrupt(session_id))
    await world.ended(session_id)
    (notice,) = told(await turn(world, session_id, "build"))
    assert "which may change files" in notice
    assert "last message" not in notice
    nursery.cancel_scope.cancel()


async def test_a_turn_that_goes_on_with_another_agent_is_told_so(autojump_clock, nursery):
    world = await make(nursery, ScriptStep(parts=(TextPart("1. Half"), WaitPart(99))), says("ok"))
    session_id = await world.session()
    await world.say(session_id, "go", overrides=TurnOverrides(agent="plan"))
    await world.until(session_id, lambda event: "1. Half" in str(event.body))
    await world.must(Interrupt(session_id))
    await world.ended(session_id)
    await world.must(TurnContinue(session_id, TurnOverrides(agent="build")))
    await world.ended(session_id, 2)
    (notice,) = told(world.model.requests[-1])
    assert "which may change files" in notice
    nursery.cancel_scope.cancel()


async def test_an_agent_that_the_user_has_made_read_only_is_told_so(autojump_clock, nursery):
    world = await make(nursery)
    session_id = await world.session()
    await turn(world, session_id, "build")
    agents = {"build": Agent(read_only=True)}
    world.configuration = structs.replace(world.configuration, agents=agents)
    (notice,) = told(await turn(world, session_id, "build"))
    assert "which only reads" in notice
    nursery.cancel_scope.cancel()


class _Context:
    """The part of a turn's context that decides."""

    def __init__(self, *, read_only: bool) -> None:
        self.agent, self.permissions = "now", self
        self.read_only = read_only


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=6), st.booleans())
def test_there_is_a_notice_exactly_if_the_last_turn_with_a_step_differs(turns, read_only):
    """A turn is a pair here: whether it took a step, and whether it could only read."""
    marks: list[Mark] = []
    for number, (stepped, only) in enumerate(turns):
        steps = (0, 1) if stepped else (0,)
        marks += [Mark(f"t{number}", 0, 0, step, "before", only) for step in steps]
    snapshot = Snapshot("s", marks=marks)
    stepped = [only for took, only in turns if took]
    context = _Context(read_only=read_only)
    notices = mode_notices(snapshot, context, lambda: "n")  # pyright: ignore[reportArgumentType]
    assert bool(notices) == bool(stepped and stepped[-1] != read_only)
