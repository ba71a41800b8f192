"""Real servers, called as the runtime calls their tools; output and questions are recorded."""

import os
import sys
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from support import tiny_mcp
from tiller_daemon.config import McpServer
from tiller_daemon.mcp.environment import ServerEnvironment
from tiller_daemon.mcp.login_store import LoginStore
from tiller_daemon.mcp.servers import McpServers
from tiller_daemon.policy.readable import Readable
from tiller_daemon.processes.environment import child_environment
from tiller_daemon.tools.base import (
    CommandAccess,
    FileAccess,
    FileVersions,
    ToolEnvironment,
    ToolResult,
    UserAccess,
    UserAnswer,
)

TINY = (sys.executable, "-SEs", tiny_mcp.__file__)


class McpTestbed:
    """MCP servers under test. `answers` are the user's answers to questions, in order."""

    def __init__(self, directory: Path, nursery: trio.Nursery) -> None:
        self.directory = directory
        self.output = ""
        self.questions: list[tuple[str, tuple[str, ...]]] = []
        self.answers: list[UserAnswer] = []
        self.servers = McpServers({}, environment({}, directory))
        self.scope = trio.CancelScope()
        self._nursery = nursery
        self._closed = trio.Event()
        self._closed.set()
        self._output_added = trio.Event()

    async def start(self, environ: Mapping[str, str] | None = None, **servers: McpServer) -> None:
        """Configure these servers; none is started yet."""
        self.servers = McpServers(servers, environment(environ or {}, self.directory))
        self.scope, self._closed = trio.CancelScope(), trio.Event()
        await self._nursery.start(self._run)

    async def start_tiny(self, *modes: str, **settings: Any) -> None:
        """Configure one server `t` and start it."""
        await self.start(t=McpServer(command=(*TINY, *modes), **settings))
        await self.servers.ready()

    async def call(self, name: str, /, **arguments: Any) -> ToolResult:
        """Call a tool by its full name, or by its name on the server `t`."""
        whole = name if name.startswith("mcp__") else f"mcp__t__{name}"
        return await self.servers.tools()[whole].run(arguments, self.environment())

    def say(self, *words: str) -> None:
        """Answer the next questions with these words."""
        self.answers += [UserAnswer(one) for one in words]

    async def wait_for_output(self, text: str) -> None:
        while text not in self.output:
            await self._output_added.wait()

    async def close(self) -> None:
        """End all servers, as the end of the daemon does."""
        self.scope.cancel()
        await self._closed.wait()

    def environment(self) -> ToolEnvironment:
        nothing: Any = None
        return ToolEnvironment(
            workspace=self.directory,
            session_id="s",
            call_id="call/1",
            files=FileAccess(
                FileVersions(), Readable(()), nothing, self.directory / "spills", nothing, nothing
            ),
            commands=CommandAccess(dict, nothing),
            user=UserAccess(self._output, nothing, self._ask, lambda: None),
            delegate=nothing,
        )

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        with self.scope:
            await self.servers.run(task_status=task_status)
        self._closed.set()

    async def _output(self, piece: str) -> None:
        self.output += piece
        self._output_added.set()
        self._output_added = trio.Event()

    async def _ask(self, text: str, choices: tuple[str, ...]) -> UserAnswer:
        await trio.lowlevel.checkpoint()
        self.questions.append((text, choices))
        return self.answers.pop(0)


def environment(environ: Mapping[str, str], home: Path) -> ServerEnvironment:
    """The environment of servers; a provider's key is in `PROVIDER_KEY`."""
    inherited = child_environment({**os.environ, **environ}, ["PROVIDER_KEY"], "LOG-OF-TESTS", "")
    key = environ.get("PROVIDER_KEY", "sk-of-nobody")
    return ServerEnvironment(
        inherited, environ, ["PROVIDER_KEY"], lambda: [key], home, LoginStore(home / "logins")
    )


@pytest.fixture
async def testbed(tmp_path: Path, nursery: trio.Nursery) -> AsyncGenerator[McpTestbed]:
    testbed = McpTestbed(tmp_path, nursery)
    yield testbed
    await testbed.close()
