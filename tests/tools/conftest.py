"""A workspace and the built-in tools, called as the runtime calls them."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest
import trio

from support.no_editors import NoEditors
from tiller_daemon.policy.readable import Readable
from tiller_daemon.processes.environment import child_environment
from tiller_daemon.sandbox.base import CommandSandbox
from tiller_daemon.tools import BUILT_IN
from tiller_daemon.tools.base import (
    Assignment,
    CommandAccess,
    FileAccess,
    FileVersions,
    Requirement,
    ToolEnvironment,
    ToolFailure,
    ToolResult,
    UserAccess,
    UserAnswer,
    WebAccess,
)
from tiller_daemon.tools.path_access import tool_failures
from tiller_protocol.items import PlanEntry
from tiller_protocol.settings import Rule

LIVE_CHARS_MAX = 100_000


class _Nothing(Any):
    """The background of a bench, which has no session that could own a command."""

    def __getattr__(self, name: str):
        raise ToolFailure("a bench has no background")


class Bench:
    """Calls tools in a workspace of its own, and keeps their live output."""

    def __init__(self, directory: Path) -> None:
        self.workspace = directory / "workspace"
        self.workspace.mkdir()
        self.live = ""
        self.plan: tuple[PlanEntry, ...] = ()
        self.spills = directory / "spills"
        self.journals = directory / "journals"
        self.files = FileVersions()
        self.private_addresses = False
        self.secrets: tuple[str, ...] = ()
        self.rules: tuple[Rule, ...] = ()
        self.sandbox: CommandSandbox | None = None
        self._news = trio.Event()

    def put(self, path: str, content: bytes | str) -> Path:
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def requirements(self, name: str, **arguments):
        tool = self._tool(name)
        assert isinstance(tool.arguments, type)
        return tool.requirements(tool.arguments(**arguments), self.workspace)

    def check(self, name: str, **arguments) -> None:
        """Make the check before a question to the user."""
        tool = self._tool(name)
        assert isinstance(tool.arguments, type)
        assert tool.check
        tool.check(tool.arguments(**arguments), self.workspace, self.files)

    async def call(self, name: str, **arguments):
        return await self.call_as_judged(name, self.requirements(name, **arguments), **arguments)

    async def call_as_judged(self, name: str, requirements: tuple[Requirement, ...], **arguments):
        """Call a tool with the requirements that were judged earlier."""
        tool = self._tool(name)
        assert isinstance(tool.arguments, type)
        with tool_failures():
            return await tool.run(tool.arguments(**arguments), self._environment(requirements))

    def spilled(self, result) -> bytes:
        return Path(result.spill_path).read_bytes()

    def descriptors(self) -> list[Path]:
        return list(Path("/proc/self/fd").iterdir())

    def modes(self, *paths) -> list[int]:
        return [stat.S_IMODE(Path(path).stat().st_mode) for path in paths]

    async def until_live(self, text: str) -> None:
        while text not in self.live:
            await self._news.wait()

    def _tool(self, name: str):
        return next(tool for tool in BUILT_IN if tool.name == name)

    def _environment(self, requirements: tuple[Requirement, ...]) -> ToolEnvironment:
        return ToolEnvironment(
            workspace=self.workspace,
            session_id="s",
            call_id="call/1",
            files=FileAccess(
                self.files,
                Readable(self.rules),
                _Nothing(),
                self.spills,
                self.journals,
                NoEditors(),
            ),
            commands=CommandAccess(
                lambda: child_environment(os.environ, (), "LOG-OF-TESTS", "call/1"),
                _Nothing(),
                self.sandbox,
            ),
            user=UserAccess(self._output, self._show_plan, self._ask, lambda: None),
            delegate=self._delegate,
            web=WebAccess(self.private_addresses),
            requirements=requirements,
            secrets=self.secrets,
        )

    async def _show_plan(self, plan: tuple[PlanEntry, ...]) -> None:
        self.plan = plan

    async def _ask(self, text: str, choices: tuple[str, ...]) -> UserAnswer:
        return UserAnswer(None, "nobody sits at the bench")

    async def _delegate(self, assignment: Assignment) -> ToolResult:
        raise ToolFailure("nobody works for the bench")

    async def _output(self, piece: str) -> None:
        # The dispatcher also shows only the beginning of a flood.
        self.live += piece[: LIVE_CHARS_MAX - len(self.live)]
        self._news.set()
        self._news = trio.Event()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture(scope="session")
def bench_in() -> type[Bench]:
    """Return the class that makes benches, each in its own directory."""
    return Bench
