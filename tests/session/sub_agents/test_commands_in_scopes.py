"""Commands within the limits of tasks: what they can write, and where no command may run.

The sandbox here confines nothing; the tool records the level that it was given.
"""

import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import pytest
import trio
from msgspec import structs

from sim.stores import Stores
from support.delegating import calls, says
from support.sandboxes import ConfinesNothing
from support.world import World
from tiller_daemon.config import Agent, SandboxPolicy
from tiller_daemon.models.scripted import CallPart, HangPart, Script, ScriptStep
from tiller_daemon.sandbox.base import Sandbox, SandboxProfile, SandboxSearchResult
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.sandbox.sandboxes import Sandboxes
from tiller_daemon.tools.base import ToolEnvironment, ToolResult
from tiller_daemon.tools.commands.bash import BASH, BashArguments
from tiller_protocol.events import ItemCompleted
from tiller_protocol.items import ToolCall
from tiller_protocol.settings import Rule, SandboxMode

ALLOW_ALL = tuple(Rule(name, "*", "allow") for name in ("bash", "unsandboxed", "write", "task"))
REPLACE = "replace a by a link to b"
HANGS = ScriptStep(parts=(HangPart(),))


class Played:
    """A world that has played a turn: its calls in all sessions, and its commands' sandboxes."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.sandbox: list[SandboxProfile | None] = []
        self.calls: list[ToolCall] = []

    async def run(self, arguments: BashArguments, environment: ToolEnvironment) -> ToolResult:
        await trio.lowlevel.checkpoint()
        sandbox = environment.commands.sandbox
        self.sandbox.append(sandbox and sandbox.profile)
        if arguments.command == REPLACE:
            (self.workspace / "a").rmdir()
            (self.workspace / "a").symlink_to("b")
        return ToolResult("ran")

    @property
    def outputs(self) -> list[str]:
        return [call.output for call in self.calls if call.name != "task"]


Play = Callable[..., Awaitable[Played]]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A repository with the directories `a` and `b`."""
    made = tmp_path.resolve() / "w"
    for name in ("a", "b"):
        (made / name).mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=made, check=True)
    return made


@pytest.fixture
async def play(nursery: trio.Nursery, workspace: Path) -> AsyncGenerator[Play]:
    """Yield a function that plays a turn in the workspace; rules allow everything."""

    async def play(
        *steps: ScriptStep,
        worker: tuple[ScriptStep, ...],
        mode: SandboxMode = "workspace_write",
        sandbox: Sandbox | None = None,
    ) -> Played:
        played = Played(workspace)
        world = World({"boss": Script((*steps, says("done"))), "worker": Script(worker)})
        world.workspace = str(workspace)
        server_tool = structs.replace(Stores().tool(), server="shop")
        world.more_tools = (structs.replace(BASH, run=played.run), server_tool)
        found = SandboxSearchResult(sandbox, "This is a test.")
        world.sandboxes = Sandboxes(lambda: found, Path("/nonexistent"), {})
        world.configuration = structs.replace(
            world.configuration,
            sandbox=SandboxPolicy(mode),
            permissions=ALLOW_ALL,
            agents={"worker": Agent(model="scripted/worker")},
        )
        await world.boot(nursery)
        boss = await world.session()
        await world.say(boss, "go")
        await world.ended(boss)
        bodies = [event.body for event in world.in_order if isinstance(event.body, ItemCompleted)]
        played.calls += [body.item for body in bodies if isinstance(body.item, ToolCall)]
        return played

    yield play
    nursery.cancel_scope.cancel()


def task(*paths: str, **more: object) -> CallPart:
    return CallPart("task", arguments={"prompt": "p", "agent": "worker", "paths": paths, **more})


def bash(command: str) -> CallPart:
    return CallPart("bash", arguments={"command": command})


@pytest.mark.parametrize("mode", ["workspace_write", "full_access"])
async def test_a_command_can_write_in_the_paths_of_its_task_alone(
    play: Play, mode: SandboxMode
) -> None:
    worker = (calls(bash("rm -r b")), says("done"))
    played = await play(calls(task("a")), worker=worker, mode=mode, sandbox=ConfinesNothing())
    (sandbox,) = played.sandbox
    assert sandbox
    assert sandbox.writable == (played.workspace / "a",)
    assert (sandbox.git, played.workspace in sandbox.read_only) == ((), True)


async def test_a_place_that_became_a_link_can_not_be_written(play: Play) -> None:
    worker = (calls(bash(REPLACE)), calls(bash("rm -r b")), says("done"))
    played = await play(calls(task("a")), worker=worker, sandbox=ConfinesNothing())
    assert [one and one.writable for one in played.sandbox] == [(played.workspace / "a",), ()]


async def test_a_command_can_not_write_what_a_background_sub_agent_has_claimed(play: Play) -> None:
    steps = (calls(task("a", "new", background=True)), calls(bash("rm -r b")))
    played = await play(*steps, worker=(HANGS,), sandbox=ConfinesNothing())
    (sandbox,) = played.sandbox
    assert sandbox
    assert played.workspace in sandbox.writable
    assert played.workspace / "a" in sandbox.read_only
    assert played.workspace / "new" in sandbox.read_only


async def test_without_a_sandbox_no_command_runs_under_limits(play: Play) -> None:
    worker = (calls(bash("rm -r b")), says("done"))
    played = await play(calls(task("a")), worker=worker)
    assert played.sandbox == []
    assert (
        "without a sandbox, nothing limits where a command writes. Your task lets"
        in played.outputs[0]
    )


async def test_a_sandbox_that_can_not_keep_a_claim_from_commands_runs_none_that_write(
    play: Play,
) -> None:
    steps = (calls(task("a", background=True)), calls(bash("rm -r b")))
    played = await play(*steps, worker=(HANGS,), sandbox=ConfinesNothing(SandboxLevel.READ_ONLY))
    assert played.sandbox == []
    assert (
        "can't keep commands out of a part of the workspace. The background sub-agent t1"
        in played.outputs[0]
    )
    assert (
        "until it ends. Use the tools for files instead, or wait for its report."
        in (played.outputs[0])
    )


async def test_no_tool_of_a_server_writes_under_limits(play: Play) -> None:
    store = CallPart("store", arguments={"path": "a/x"})
    worker = (calls(store), says("done"))
    played = await play(calls(task("a")), worker=worker, sandbox=ConfinesNothing())
    assert (
        "it is not known what the MCP tool store changes. Your task lets you change only a."
        in played.outputs[0]
    )
