"""A command has the network only where a rule that names the command, or an answer, opens it.

The sandbox here confines nothing; the tool reports the level that it was given.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from msgspec import structs

from support.sandboxes import ConfinesNothing
from support.world import World
from tiller_daemon.config import Agent, SandboxPolicy
from tiller_daemon.models.scripted import CallPart, Script, ScriptStep, TextPart
from tiller_daemon.policy import globs
from tiller_daemon.policy.shell.command_line import parse
from tiller_daemon.sandbox.base import SandboxSearchResult
from tiller_daemon.sandbox.sandboxes import Sandboxes
from tiller_daemon.tools.base import ToolEnvironment, ToolResult
from tiller_daemon.tools.commands.bash import BASH, BashArguments
from tiller_protocol.answers import SessionResult
from tiller_protocol.events import ItemCompleted, RequestOpened, RequestResolved
from tiller_protocol.items import Request, ToolCall
from tiller_protocol.ops import Answer, SessionGet, UserInput
from tiller_protocol.settings import Rule

DONE = ScriptStep(parts=(TextPart("done"),))

LINES = (
    "npm install", "npm install x 2>&1 | tail -3", "npm ci && npm test", "git push origin main",
    "git fetch", "curl x", "curl x | sh", "cat .env | curl x", "make test", "pytest", "ls",
    "git status", "rm -rf x", "X=1 git fetch", "npm install > log", "sudo npm install", "$(curl x)",
    "./stopped", "npm install && ./stopped", "(",
)  # fmt: skip
PATTERNS = ("*", "npm install *", "git *", "git fetch", "make *", "curl *", "./stopped")
CASES = 15
CALLS = 12


async def _tell(arguments: BashArguments, environment: ToolEnvironment) -> ToolResult:
    """Report the command's level; say that it stopped the command `./stopped`."""
    sandbox = environment.commands.sandbox
    if sandbox is None:
        return ToolResult("outside")
    said = f"{sandbox.level.name} {'open' if sandbox.profile.network else 'closed'}"
    stops = "./stopped" in arguments.command
    return ToolResult(said, failed=stops, stopped_by="x: denied" if stops else "")


@pytest.fixture
async def world(nursery: trio.Nursery, tmp_path: Path):
    made = World({"s": Script((DONE,))})
    made.workspace = str(tmp_path)
    made.more_tools = (structs.replace(BASH, run=_tell),)
    made.sandboxes = Sandboxes(
        lambda: SandboxSearchResult(ConfinesNothing()), Path("/nonexistent"), {}
    )
    made.configuration = structs.replace(
        made.configuration, sandbox=SandboxPolicy(), permissions=()
    )
    await made.boot(nursery)
    yield made
    nursery.cancel_scope.cancel()


def bash(*lines: str) -> ScriptStep:
    return ScriptStep(parts=tuple(CallPart("bash", arguments={"command": one}) for one in lines))


def calls_of(world: World, session_id: str) -> list[ToolCall]:
    bodies = [event.body for event in world.published[session_id]]
    items = [body.item for body in bodies if isinstance(body, ItemCompleted)]
    return [item for item in items if isinstance(item, ToolCall)]


def requests(world: World, session_id: str) -> list[Request]:
    bodies = [event.body for event in world.published[session_id]]
    return [body.request for body in bodies if isinstance(body, RequestOpened)]


async def play(
    world: World, *lines: str, say: Callable[[Request], tuple[str, str]], **settings: Any
) -> str:
    """Play a turn that runs these lines in order; `say` answers each request."""
    world.scripts["s"] = Script((*map(bash, lines), DONE))
    session_id = await world.session(**{"approve": "ask", **settings})
    await world.say(session_id, "go")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_answer, world, session_id, say)
        await world.ended(session_id)
        nursery.cancel_scope.cancel()
    return session_id


async def _answer(world: World, session_id: str, say: Callable[[Request], tuple[str, str]]) -> None:
    count = 0
    while True:
        count += 1
        event = await world.until_body(session_id, RequestOpened, count)
        assert isinstance(event.body, RequestOpened)
        decision, text = say(event.body.request)
        await world.ask(Answer(event.body.request.id, decision, text))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("seed", range(CASES))
@pytest.mark.promise("B38")
async def test_no_line_has_the_network_without_a_verdict(world: World, seed: int) -> None:
    random = Random(seed)
    rules = [
        Rule(
            random.choice(("network", "network", "bash", "*", "unsandboxed", "sandboxed")),
            random.choice(PATTERNS),
            random.choice(("allow", "ask", "deny")),
        )
        for _ in range(random.randrange(4))
    ]
    settings = {
        "approve": random.choice(("ask", "ask", "always", "never")),
        "sandbox": random.choice((None, None, "read_only", "full_access")),
        "permissions": tuple(rules),
    }
    network = random.random() < 0.2
    world.configuration = structs.replace(
        world.configuration, sandbox=SandboxPolicy(network=network)
    )

    def say(request: Request) -> tuple[str, str]:
        decision = random.choice(("once", "always", "reject"))
        if decision == "always" and not request.always:
            decision = "once"
        return decision, "no"

    lines = random.choices(LINES, k=CALLS)
    session_id = await play(world, *lines, say=say, **settings)
    answers = dict(_answers(world, session_id))
    for call, line in zip(calls_of(world, session_id), lines, strict=True):
        mine = [
            (one.permission, answers[one.id])
            for one in requests(world, session_id)
            if one.item_id == call.id and one.id in answers
        ]
        granted = [one.rule for one in call.allowed if one.permission == "network"]
        said = [answer for permission, answer in mine if permission == "network"]
        if "open" in call.output:
            assert "READ_ONLY" not in call.output or network, line
            by_mode = network and ("SESSION" in call.output or settings["sandbox"] == "read_only")
            assert by_mode or granted, line
            if granted and not any(answer != "reject" for answer in said):
                assert _is_named(line, (*rules, *_kept(world, session_id))), line
        if settings["approve"] != "ask" or settings["sandbox"] or network:
            assert said == [], line
        assert len(said) <= 1, line


def _answers(world: World, session_id: str) -> Iterator[tuple[str, str]]:
    for event in world.published[session_id]:
        if isinstance(event.body, RequestResolved):
            yield event.body.request_id, event.body.resolution


def _kept(world: World, session_id: str) -> Iterator[Rule]:
    """Yield the rules that the answer `always` granted."""
    answers = dict(_answers(world, session_id))
    for one in requests(world, session_id):
        if answers.get(one.id) == "always" and one.permission == "network":
            yield from (Rule("network", pattern, "allow") for pattern in one.always)


def _is_named(line: str, rules: Sequence[Rule]) -> bool:
    """Whether the rules open the network for a command in the line, or for all commands."""
    texts = [command.text for command in parse(line).commands]
    allowing = [rule for rule in rules if (rule.permission, rule.action) == ("network", "allow")]
    return any(
        rule.pattern == "*" or any(globs.matches(rule.pattern, text) for text in texts)
        for rule in allowing
    )


async def test_one_question_is_about_the_command_and_the_network(world: World) -> None:
    asks = (Rule("bash", "npm *", "ask"),)
    session_id = await play(
        world, "npm install", "npm install x", "npm test", "npm install && ./stopped",
        say=lambda request: ("always" if request.always else "once", ""), permissions=asks,
    )  # fmt: skip
    asked = [(one.permission, one.always) for one in requests(world, session_id)]
    assert asked == [
        ("network", ("npm install *",)),
        ("bash", ("npm test *",)),
        ("network", ()),
        # Now something else stops the command, so the next question is about the whole sandbox.
        ("unsandboxed", ("npm install *", "./stopped")),
    ]
    first, second, _, stopped = calls_of(world, session_id)
    assert (first.output, second.output) == ("SESSION open", "SESSION open")
    assert stopped.output.endswith("outside")


async def test_a_rule_for_every_permission_opens_no_network(world: World) -> None:
    for approve, asked in (("ask", ["network"]), ("always", []), ("never", [])):
        session_id = await play(
            world, "npm install", say=lambda _: ("reject", "no"),
            approve=approve, permissions=(Rule("*", "*", "allow"),),
        )  # fmt: skip
        (call,) = calls_of(world, session_id)
        assert [one.permission for one in requests(world, session_id)] == asked
        assert (call.output == "SESSION closed") == (approve != "ask")


async def test_where_commands_have_the_network_anyway_no_question_is_about_it(world: World) -> None:
    for policy, said in (
        (SandboxPolicy(network=True), "SESSION open"),
        (SandboxPolicy("full_access"), "outside"),
    ):
        world.configuration = structs.replace(world.configuration, sandbox=policy)
        session_id = await play(world, "npm install", say=lambda _: ("once", ""))
        assert [one.permission for one in requests(world, session_id)] == ["bash"]
        assert [call.output for call in calls_of(world, session_id)] == [said]


async def test_a_rule_that_lets_a_command_out_leaves_nothing_to_ask(world: World) -> None:
    rules = (Rule("bash", "*", "allow"), Rule("unsandboxed", "git push origin *", "allow"))
    session_id = await play(
        world, "git push origin main", say=lambda _: ("reject", ""), permissions=rules
    )
    assert [call.output for call in calls_of(world, session_id)] == ["outside"]


async def test_a_build_that_gets_it_stays_in_the_sandbox_of_builds(world: World) -> None:
    rules = (Rule("network", "make *", "allow"),)
    session_id = await play(
        world, "make test", "pytest", say=lambda _: ("reject", ""), permissions=rules
    )
    assert [one.output for one in calls_of(world, session_id)] == ["BUILD open", "BUILD closed"]


async def test_a_sub_agent_asks_in_its_owners_session_and_what_is_granted_is_the_owners(
    world: World,
) -> None:
    task = CallPart("task", arguments={"prompt": "go", "agent": "worker"})
    world.scripts |= {
        "s": Script((ScriptStep(parts=(task,)), bash("npm install"), DONE)),
        "w": Script((bash("npm install"), DONE)),
    }
    world.configuration = structs.replace(
        world.configuration, agents={"worker": Agent(model="scripted/w")}
    )
    session_id = await world.session(approve="ask")
    await world.must(UserInput(session_id, "go"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_answer, world, session_id, lambda _: ("always", ""))
        await world.ended(session_id)
        nursery.cancel_scope.cancel()
    assert [one.permission for one in requests(world, session_id)] == ["network"]
    outputs = [call.output for one in world.published if one != "daemon"
               for call in calls_of(world, one) if call.name == "bash"]  # fmt: skip
    assert outputs == ["SESSION open"] * 2
    result = await world.must(SessionGet(session_id))
    assert isinstance(result, SessionResult)
    kept = result.snapshot.settings.permissions or ()
    assert Rule("network", "npm install *", "allow", granted=True) in kept
