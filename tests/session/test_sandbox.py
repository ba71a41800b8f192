"""Which sandbox a turn's commands get, and what happens to them without a sandbox."""

import pytest
from msgspec import structs

from support.each import each
from support.world import World
from tiller_daemon.config import Agent, SandboxPolicy
from tiller_daemon.models.scripted import CallPart, ScriptStep, TextPart
from tiller_daemon.policy.shell.levels import may_run_outside
from tiller_protocol.answers import SessionResult
from tiller_protocol.events import RequestOpened, TurnStarted, WarningRaised
from tiller_protocol.items import ToolCall
from tiller_protocol.ops import Answer, SessionGet, UserInput
from tiller_protocol.settings import Rule, TurnOverrides

DONE = ScriptStep(parts=(TextPart("done"),))
WRITES = SandboxPolicy("workspace_write")


def bash(command: str) -> ScriptStep:
    return ScriptStep(parts=(CallPart("bash", arguments={"command": command}),))


def contexts(world: World, session_id: str) -> list[str]:
    """The sandbox of each turn."""
    bodies = [event.body for event in world.published[session_id]]
    return [body.context.sandbox for body in bodies if isinstance(body, TurnStarted)]


def warnings(world: World, session_id: str) -> list[str]:
    bodies = [event.body for event in world.published[session_id]]
    return [b.message for b in bodies if isinstance(b, WarningRaised) and b.code == "no_sandbox"]


async def call_of(world: World, session_id: str) -> ToolCall:
    result = await world.must(SessionGet(session_id))
    assert isinstance(result, SessionResult)
    return next(item for item in result.snapshot.items if isinstance(item, ToolCall))


async def test_the_last_word_on_the_sandbox_is_the_turns_then_the_sessions(
    autojump_clock, start
) -> None:
    world, _ = await start(DONE)
    world.configuration = _with(world, WRITES)
    session_id = await world.session(sandbox="read_only")
    for number, overrides in enumerate((TurnOverrides(), TurnOverrides(sandbox="full_access")), 1):
        await world.must(UserInput(session_id, "go", overrides=overrides))
        await world.ended(session_id, number)
    assert contexts(world, session_id) == ["read_only", "full_access"]


@pytest.mark.parametrize("agent", ["plan", "explore"])
async def test_an_agent_that_only_looks_gets_a_sandbox_that_writes_nothing(
    autojump_clock, start, agent: str
) -> None:
    world, session_id = await start(DONE)
    overrides = TurnOverrides(agent=agent, sandbox="full_access")
    await world.must(UserInput(session_id, "go", overrides=overrides))
    await world.ended(session_id)
    assert contexts(world, session_id) == ["read_only"]


async def test_a_sub_agents_sandbox_is_no_looser_than_its_owners(autojump_clock, start) -> None:
    task = CallPart("task", arguments={"prompt": "go", "agent": "loose"})
    world, session_id = await start(ScriptStep(parts=(task,)), DONE, DONE)
    world.configuration = _with(
        world, SandboxPolicy("full_access"), agents={"loose": Agent(model="scripted/main")}
    )
    overrides = TurnOverrides(sandbox="workspace_write", approve="always")
    await world.must(UserInput(session_id, "go", overrides=overrides))
    await world.ended(session_id)
    found = {one: contexts(world, one) for one in world.published if one != "daemon"}
    assert len(found) == 2
    assert {mode for modes in found.values() for mode in modes} == {"workspace_write"}


async def test_without_a_sandbox_a_command_that_acts_is_asked_about_though_a_rule_allows_it(
    autojump_clock, start
) -> None:
    world, session_id = await start(bash("0 make"), DONE)
    rules = (Rule("bash", "*", "allow"),)
    world.configuration = _with(world, WRITES, permissions=rules)
    await world.say(session_id, "go")
    event = await world.until_body(session_id, RequestOpened)
    assert isinstance(event.body, RequestOpened)
    assert event.body.request.permission == "unsandboxed"
    assert event.body.request.title == "Run without a sandbox: 0 make"
    await world.must(Answer(event.body.request.id, "once"))
    await world.ended(session_id)
    assert (await call_of(world, session_id)).state == "completed"


async def test_without_a_sandbox_nobody_to_ask_means_no(autojump_clock, start) -> None:
    world, _ = await start(bash("0 make"), DONE)
    world.configuration = _with(world, WRITES, permissions=(Rule("bash", "*", "allow"),))
    session_id = await world.session(approve="never")
    await world.say(session_id, "go")
    await world.ended(session_id)
    call = await call_of(world, session_id)
    assert call.error_kind == "denied"
    assert "no sandbox" in call.output or "needs approval" in call.output


async def test_without_a_sandbox_a_rule_for_that_lets_a_command_run(autojump_clock, start) -> None:
    world, session_id = await start(bash("0 make"), DONE)
    rules = (Rule("bash", "*", "allow"), Rule("unsandboxed", "0 make", "allow"))
    world.configuration = _with(world, WRITES, permissions=rules)
    await world.say(session_id, "go")
    await world.ended(session_id)
    assert (await call_of(world, session_id)).state == "completed"


async def test_a_session_is_told_once_that_there_is_no_sandbox(autojump_clock, start) -> None:
    world, session_id = await start(DONE, DONE)
    world.configuration = _with(world, WRITES)
    for count in (1, 2):
        await world.say(session_id, "go")
        await world.ended(session_id, count)
    assert len(warnings(world, session_id)) == 1
    assert "This is a test." in warnings(world, session_id)[0]


async def test_with_full_access_nobody_is_told(autojump_clock, start) -> None:
    world, session_id = await start(DONE)
    await world.say(session_id, "go")
    await world.ended(session_id)
    assert warnings(world, session_id) == []


@each(
    ("command", "leaves"),
    [
        ("git push origin main", True),
        ("git push && git push origin v1", True),
        ("git push --tags", False),
        ("git push && rm x", False),
        ("git push $(rm x)", False),
        ("cd sub && git push", False),
        ("git push --force", False),
        ("git push --receive-pack='cmd;'", False),
        ("git push; echo 'id>~/x' | xargs -I{} -Ils sh -c ls", False),
        ("X=1 git push", False),
        ("git push $REMOTE", False),
        ("ls", False),
        ("git pull", False),
        ("git push > /etc/passwd", False),
        ("", False),
    ],
)
def test_only_what_rules_name_all_of_leaves_the_sandbox(
    command: str,
    leaves: bool,  # noqa: FBT001
) -> None:
    rules = (Rule("*", "*", "allow"), Rule("unsandboxed", "git push*", "allow"))
    assert may_run_outside(command, rules) == leaves


def test_a_rule_for_everything_does_not_mean_to_leave_the_sandbox() -> None:
    assert not may_run_outside("make", (Rule("*", "*", "allow"), Rule("bash", "*", "allow")))


def _with(world: World, sandbox: SandboxPolicy, **fields: object):
    return structs.replace(world.configuration, sandbox=sandbox, **fields)
