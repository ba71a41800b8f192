"""Language servers, real ones and a faulty one, used as the runtime uses them around a change."""

import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from support import misbehaving_lsp
from support.peers import clangd, ty, typescript, typescript_language_server
from tiller_daemon.config import LanguageServer
from tiller_daemon.lsp.definitions import list_definitions
from tiller_daemon.lsp.servers import LanguageServers
from tiller_daemon.processes.environment import child_environment

__all__ = ["clangd", "ty", "typescript", "typescript_language_server"]

TIMEOUT_S = 30.0


@pytest.fixture
def clock() -> MockClock:
    """Runs in real time, and can be advanced."""
    return MockClock(rate=1.0)


class LanguageServerTestbed:
    """A workspace and its language servers. `notes` is what the faulty server has received."""

    def __init__(self, workspace: Path, nursery: trio.Nursery) -> None:
        self.workspace = workspace
        self.servers = LanguageServers((), {}, workspace)
        self.scope = trio.CancelScope()
        self._notes = workspace.parent / "notes"
        self._nursery = nursery
        self._closed = trio.Event()
        self._closed.set()

    async def start(self, **configured: LanguageServer) -> None:
        """Configure these servers, in addition to the built-in ones."""
        variables = child_environment(os.environ, [], "LOG-OF-TESTS", "")
        definitions = list_definitions(configured)
        self.servers = LanguageServers(definitions, variables, self.workspace.parent)
        self.scope, self._closed = trio.CancelScope(), trio.Event()
        await self._nursery.start(self._run)

    async def start_faulty(self, how: str, **fields: Any) -> None:
        """Configure the faulty server for `.txt` files."""
        command = (sys.executable, "-SEs", misbehaving_lsp.__file__, how, str(self._notes))
        await self.start(rude=LanguageServer(command=command, files={".txt": "text"}, **fields))

    async def edit(self, name: str, text: str) -> str:
        """Write a file as a tool does; return the text that is added to the tool's result."""
        path = self.workspace / name
        check = await self.servers.before_change(self.workspace, [path])
        path.write_text(text)
        return (await check.new_errors()).strip() if check else ""

    async def request_diagnostics(self, name: str | None = None) -> str:
        """Request diagnostics as the tool `diagnostics` does."""
        return await self.servers.report(self.workspace, self.workspace / name if name else None)

    @property
    def running(self) -> int:
        return sum(one.running for one in self.servers.summaries())

    @property
    def problem(self) -> str:
        return next((one.problem for one in self.servers.summaries() if one.problem), "")

    def notes(self) -> list[dict[str, Any]]:
        if not self._notes.exists():
            return []
        return [json.loads(line) for line in self._notes.read_text().splitlines()]

    async def edit_meanwhile(self, name: str, text: str, then: Callable[[], None]) -> str:
        """Edit a file as `edit` does; call `then` as soon as the server has the new text."""
        reports: list[str] = []

        async def edit() -> None:
            reports.append(await self.edit(name, text))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(edit)
            await self.wait_until(lambda: {"text": text} in self.notes())
            then()
        return reports[0]

    async def release(self, name: str, text: str, *later: str) -> None:
        """Let the server that holds back answers publish those of `text`, and await them."""
        path = self.workspace / name
        (server,) = self.servers._servers.values()
        before = server.known(path, text)
        self.let_go(text, *later)
        await self.wait_until(lambda: server.known(path, text) != before)

    def let_go(self, *texts: str) -> None:
        """Let the server that holds back answers publish those of these texts."""
        unfinished = self._notes.with_name("unfinished")
        unfinished.write_text(json.dumps(texts))
        unfinished.rename(self._notes.with_name("notes.released"))

    def pids(self) -> list[int]:
        """The processes of the faulty server, oldest first."""
        return [note["pid"] for note in self.notes() if "pid" in note]

    def kill(self) -> None:
        os.kill(self.pids()[-1], signal.SIGKILL)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition without a notification, such as the end of a server."""
        with trio.fail_after(TIMEOUT_S):
            while not condition():  # noqa: ASYNC110
                await trio.sleep(0.01)

    async def wait_until_ended(self) -> None:
        """Wait until no server runs."""
        await self.wait_until(lambda: not self.running)

    async def close(self) -> None:
        """End all servers, as the end of the daemon does."""
        self.scope.cancel()
        await self._closed.wait()

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        with self.scope:
            await self.servers.run(task_status=task_status)
        self._closed.set()


@pytest.fixture
async def testbed(tmp_path: Path, nursery: trio.Nursery) -> AsyncGenerator[LanguageServerTestbed]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    testbed = LanguageServerTestbed(workspace, nursery)
    yield testbed
    await testbed.close()
