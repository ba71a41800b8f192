"""`always_here`: what it allows, where and for whom, and how it is revoked."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import pytest
import trio
from msgspec import structs

from support.narrowing import of_kind
from support.world import World
from tiller_daemon.config import LastingRules
from tiller_daemon.models.scripted import CallPart, Script, ScriptStep, TextPart, WaitPart
from tiller_protocol.answers import RulesResult, SessionResult
from tiller_protocol.events import (
    Event,
    ItemCompleted,
    RequestOpened,
    RequestResolved,
    WarningRaised,
)
from tiller_protocol.items import Request, ToolCall
from tiller_protocol.ops import Answer, RuleRevoke, RulesList, SessionConfigure, SessionGet
from tiller_protocol.settings import Action, Rule, RuleSummary, Settings

DONE = ScriptStep(parts=(TextPart("done"),))

Make = Callable[..., Awaitable[World]]


def peek(say: str = "a", seconds: float = 0.0) -> ScriptStep:
    """Return a call that asks about `external_directory` for `say`, then takes `seconds`."""
    return ScriptStep(parts=(CallPart("peek", arguments={"say": say, "seconds": seconds}),))


@pytest.fixture
async def make(nursery: trio.Nursery, tmp_path: Path) -> AsyncGenerator[Make]:
    """Yield a function that starts a world in `here`, which keeps lasting rules in a file."""

    async def make(*steps: ScriptStep) -> World:
        world = World({"s": Script((*steps, *(DONE,) * 9))})
        world.lasting_rules = LastingRules(tmp_path / "config" / "rules.json")
        for name in ("here", "there"):
            (tmp_path / name).mkdir()
        world.workspace = str(tmp_path / "here")
        await world.boot(nursery)
        return world

    yield make
    nursery.cancel_scope.cancel()


async def asked(world: World, session_id: str, count: int = 1) -> Request:
    await world.say(session_id, "go", delivery="auto")
    event = await world.until_body(session_id, RequestOpened, count)
    return of_kind(RequestOpened, event.body).request


def questions(world: World, session_id: str) -> int:
    return sum(isinstance(e.body, RequestOpened) for e in world.published[session_id])


async def rules(world: World, **about: str) -> tuple[RuleSummary, ...]:
    return of_kind(RulesResult, await world.must(RulesList(**about))).rules


async def call_of(world: World, session_id: str) -> ToolCall:
    snapshot = of_kind(SessionResult, await world.must(SessionGet(session_id))).snapshot
    return [item for item in snapshot.items if isinstance(item, ToolCall)][-1]


async def test_it_holds_in_every_session_of_the_directory_until_it_is_revoked(
    autojump_clock, make, tmp_path
):
    world = await make(peek())
    first = await world.session()
    request = await asked(world, first)
    assert (request.always, request.always_here) == (("a",), world.workspace)
    await world.must(Answer(request.id, "always_here"))
    assert (await world.ended(first)).outcome == "completed"
    resolved = await world.until_body(first, RequestResolved)
    assert of_kind(RequestResolved, resolved.body).resolution == "always_here"

    (kept,) = await rules(world)
    assert (kept.permission, kept.pattern, kept.action) == ("external_directory", "a", "allow")
    assert (kept.workspace, kept.by) == (world.workspace, "t")
    assert kept.granted_at
    second = await world.session()
    await world.say(second, "go")
    await world.ended(second)
    assert questions(world, second) == 0
    (why,) = (await call_of(world, second)).allowed
    assert (why.by, why.rule) == ("lasting", Rule("external_directory", "a", "allow"))
    (why,) = (await call_of(world, first)).allowed
    assert (why.by, why.reason) == (
        "user",
        "You allowed it for good in this directory. The answer came from t.",
    )

    world.workspace = str(tmp_path / "there")
    other = await world.session()
    await world.must(Answer((await asked(world, other)).id, "reject"))
    assert await rules(world, workspace=world.workspace) == ()

    await world.must(RuleRevoke(kept.id))
    assert await rules(world) == ()
    assert (await world.refused(RuleRevoke(kept.id))).code == "not_found"
    world.workspace = str(tmp_path / "here")
    await asked(world, await world.session())


async def test_it_is_not_a_rule_of_the_session_and_survives_the_daemon(
    autojump_clock, make, nursery, tmp_path
):
    world = await make(peek())
    session_id = await world.session()
    await world.must(Answer((await asked(world, session_id)).id, "always_here"))
    await world.ended(session_id)
    snapshot = of_kind(SessionResult, await world.must(SessionGet(session_id))).snapshot
    assert snapshot.settings.permissions is None
    assert list((tmp_path / "here").iterdir()) == []
    await world.kill()
    world.lasting_rules = LastingRules(tmp_path / "config" / "rules.json")
    await world.boot(nursery)
    assert [rule.pattern for rule in await rules(world, session_id=session_id)] == ["a"]
    again = await world.session()
    await world.say(again, "go")
    await world.ended(again)
    assert questions(world, again) == 0


@pytest.mark.parametrize("action", ["deny", "ask"])
async def test_it_answers_a_question_of_any_layer_and_overrides_no_denial(
    autojump_clock, make, action: Action
):
    world = await make(peek())
    session_id = await world.session()
    await world.must(Answer((await asked(world, session_id)).id, "always_here"))
    await world.ended(session_id)
    rule = Rule("external_directory", "a*", action)
    in_session = await world.session(permissions=(rule,))
    world.configuration = structs.replace(world.configuration, permissions=(rule,))
    in_configuration = await world.session()
    for one in (in_session, in_configuration):
        await world.say(one, "go")
        await world.ended(one)
        assert questions(world, one) == 0
        state = (await call_of(world, one)).error_kind
        assert state == ("denied" if action == "deny" else None)


async def test_open_requests_of_other_sessions_in_the_directory_need_no_answer_any_more(
    autojump_clock, make
):
    world = await make(peek())
    first, second = await world.session(), await world.session()
    request = await asked(world, first)
    await asked(world, second)
    await world.must(Answer(request.id, "always_here"))
    assert (await world.ended(second)).outcome == "completed"
    resolved = of_kind(RequestResolved, (await world.until_body(second, RequestResolved)).body)
    assert (resolved.resolution, resolved.by) == ("always", "")


@pytest.mark.parametrize("decision", ["always", "always_here"])
async def test_what_is_granted_and_revoked_while_a_turn_runs_counts_at_once(
    autojump_clock, make, decision
):
    waits = ScriptStep(parts=(WaitPart(5.0), CallPart("peek", arguments={"say": "a"})))
    world = await make(peek(), peek(seconds=1.0), waits)
    session_id = await world.session()
    await world.must(Answer((await asked(world, session_id)).id, decision))
    await world.until(session_id, _completes_a_call, 2)
    assert questions(world, session_id) == 1
    listed = await rules(world, session_id=session_id)
    (rule,) = listed
    mine = session_id if decision == "always" else None
    assert (rule.session_id or None) == mine
    await world.must(RuleRevoke(rule.id, mine))
    assert await rules(world, session_id=session_id) == ()
    event = await world.until_body(session_id, RequestOpened, 2)
    await world.must(Answer(of_kind(RequestOpened, event.body).request.id, "once"))
    await world.ended(session_id)
    assert questions(world, session_id) == 2


def _completes_a_call(event: Event) -> bool:
    return isinstance(event.body, ItemCompleted) and isinstance(event.body.item, ToolCall)


async def test_a_rule_of_a_session_is_revoked_by_its_own_id_alone(autojump_clock, make):
    allow, deny = Rule("external_directory", "a", "allow"), Rule("read", "a", "deny")
    world = await make(peek())
    session_id, other = await world.session(permissions=(deny, allow)), await world.session()
    first, second = await rules(world, session_id=session_id)
    assert (first.action, second.action) == ("deny", "allow")
    assert (await world.refused(RuleRevoke(second.id, other))).code == "not_found"
    assert (await world.refused(RuleRevoke(second.id))).code == "not_found"
    await world.must(RuleRevoke(second.id, session_id))
    assert await rules(world, session_id=session_id) == (first,)
    await asked(world, session_id)


async def test_a_revocation_that_is_sent_twice_is_answered_twice(autojump_clock, make):
    world = await make(peek())
    session_id = await world.session()
    await world.must(Answer((await asked(world, session_id)).id, "always_here"))
    (rule,) = await rules(world)
    submission_id = world.new_id()
    for _ in range(2):
        await world.must(RuleRevoke(rule.id), submission_id)


async def test_a_call_that_repeats_itself_can_not_be_allowed_for_good(autojump_clock, make):
    look = ScriptStep(parts=(CallPart("look", arguments={"say": "x"}),))
    world = await make(*[look] * 9)
    session_id = await world.session()
    request = await asked(world, session_id)
    assert (request.kind, request.always_here) == ("doom_loop", "")
    refused = await world.refused(Answer(request.id, "always_here"))
    assert refused.code == "bad_message"
    assert "Answer it with once, always or reject." in refused.message
    await world.must(Answer(request.id, "reject"))


async def test_a_rule_that_can_not_be_kept_leaves_the_request_open(autojump_clock, make, tmp_path):
    world = await make(peek())
    (tmp_path / "config").write_text("not a directory")
    session_id = await world.session()
    request = await asked(world, session_id)
    refused = await world.refused(Answer(request.id, "always_here"))
    assert refused.code == "unavailable"
    assert "The request is still open" in refused.message
    assert questions(world, session_id) == 1
    await world.must(Answer(request.id, "once"))
    assert (await world.ended(session_id)).outcome == "completed"


async def test_a_damaged_file_allows_nothing_and_is_reported_and_left_alone(
    autojump_clock, make, tmp_path
):
    world = await make(peek())
    file = tmp_path / "config" / "rules.json"
    file.parent.mkdir()
    file.write_text('{"workspaces": {"/": [{"permission": "bash"}]}}')
    session_id = await world.session()
    request = await asked(world, session_id)
    events = await world.events(session_id)
    (warning,) = [e.body for e in events if isinstance(e.body, WarningRaised)]
    assert warning.code == "lasting_rules"
    assert str(file) in warning.message
    assert "missing required field `pattern`" in warning.message
    for op in (Answer(request.id, "always_here"), RulesList(), RuleRevoke("x")):
        assert (await world.refused(op)).code == "unavailable"
    assert file.read_text() == '{"workspaces": {"/": [{"permission": "bash"}]}}'
    file.write_text('{"workspaces": {}}')
    await world.must(Answer(request.id, "always_here"))
    assert [rule.pattern for rule in await rules(world)] == ["a"]


async def test_rules_of_a_session_can_be_replaced_as_before(autojump_clock, make):
    world = await make(peek())
    session_id = await world.session(permissions=(Rule("external_directory", "a", "allow"),))
    await world.must(SessionConfigure(session_id, Settings(permissions=())))
    assert await rules(world, session_id=session_id) == ()
    await asked(world, session_id)
