"""The tool `plan` through the whole core: what is shown, what is refused, what is kept."""

import pytest

from support.world import World
from tiller_daemon.models.scripted import CallPart, ScriptStep, TextPart
from tiller_daemon.session.calls.offered_tools import tool_specs
from tiller_daemon.tools.plan import ENTRIES_MAX, ENTRY_CHARS_MAX, PLAN
from tiller_protocol.events import PlanUpdated, RequestOpened
from tiller_protocol.items import PlanEntry, ToolCall
from tiller_protocol.ops import SessionGet

DONE = ScriptStep(parts=(TextPart("done"),))


def plan(*items: tuple[str, str]) -> ScriptStep:
    entries = [{"text": text, "state": state} for text, state in items]
    return ScriptStep(parts=(CallPart("plan", arguments={"items": entries}),))


def last_call(world: World) -> ToolCall:
    """The newest call that the last model request holds."""
    return [i for i in world.model.requests[-1].items if isinstance(i, ToolCall)][-1]


async def test_a_plan_is_shown_whole_each_time_and_kept_in_the_session(
    autojump_clock, start, nursery
):
    world, session_id = await start(
        plan(("look", "in_progress"), ("change", "pending")),
        plan(("look", "completed"), ("change", "in_progress")),
        DONE,
    )
    await world.say(session_id, "go")
    await world.ended(session_id)
    shown = [e.body.plan for e in world.published[session_id] if isinstance(e.body, PlanUpdated)]
    assert [[entry.state for entry in one] for one in shown] == [
        ["in_progress", "pending"],
        ["completed", "in_progress"],
    ]
    assert (last_call(world).title, last_call(world).effect) == ("1 of 2 done", "read")
    await world.kill()
    await world.boot(nursery)
    snapshot = (await world.must(SessionGet(session_id))).snapshot
    assert snapshot.plan == (PlanEntry("look", "completed"), PlanEntry("change", "in_progress"))


@pytest.mark.parametrize("approve", ["ask", "never"])
async def test_a_plan_needs_no_permission_and_an_empty_one_clears_it(
    autojump_clock, start, approve
):
    world, _ = await start(plan(("look", "pending")), plan(), DONE)
    session_id = await world.session(approve=approve)
    await world.say(session_id, "go")
    await world.ended(session_id)
    assert not [e for e in world.published[session_id] if isinstance(e.body, RequestOpened)]
    assert (await world.must(SessionGet(session_id))).snapshot.plan == ()
    assert last_call(world).state == "completed"


@pytest.mark.parametrize(
    "items",
    [
        [("x", "pending")] * (ENTRIES_MAX + 1),
        [("x" * (ENTRY_CHARS_MAX + 1), "pending")],
        [("", "pending")],
        [("x", "done")],
    ],
    ids=["too many", "too long", "empty", "unknown state"],
)
async def test_a_plan_beyond_its_bounds_is_an_invalid_call(autojump_clock, start, items):
    world, session_id = await start(plan(*items), DONE)
    await world.say(session_id, "go")
    await world.ended(session_id)
    assert last_call(world).error_kind == "invalid"
    assert "items" in last_call(world).output
    assert (await world.must(SessionGet(session_id))).snapshot.plan == ()


def test_the_schema_that_models_get_has_no_references() -> None:
    (spec,) = tool_specs({"plan": PLAN}, ())
    entry = spec.parameters["properties"]["items"]["items"]
    assert entry["properties"]["state"]["enum"] == ["completed", "in_progress", "pending"]
    assert "$ref" not in str(spec.parameters)
