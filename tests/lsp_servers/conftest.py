"""Language servers, real ones and a rude one, asked as the runtime asks them around a change."""

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

from support import rude_lsp
from support.peers import ty, typescript
from tiller_daemon.config import LanguageServer
from tiller_daemon.lsp.definitions import list_definitions
from tiller_daemon.lsp.servers import LanguageServers
from tiller_daemon.processes.environment import child_environment

__all__ = ["ty", "typescript"]

PATIENCE_S = 30.0


@pytest.fixture
def clock() -> MockClock:
    """Runs as the wall does, and can be put forward."""
    return MockClock(rate=1.0)


class Room:
    """A workspace and servers for it. `notes` is what the rude one has heard."""

    def __init__(self, workspace: Path, nursery: trio.Nursery) -> None:
        self.workspace = workspace
        self.servers = LanguageServers((), {}, workspace)
        self.scope = trio.CancelScope()
        self._notes = workspace.parent / "notes"
        self._nursery = nursery
        self._over = trio.Event()
        self._over.set()

    async def start(self, **configured: LanguageServer) -> None:
        """Begin with the known servers, and with these."""
        variables = child_environment(os.environ, [], "LOG-OF-TESTS", "")
        definitions = list_definitions(configured)
        self.servers = LanguageServers(definitions, variables, self.workspace.parent)
        self.scope, self._over = trio.CancelScope(), trio.Event()
        await self._nursery.start(self._run)

    async def start_rude(self, how: str, **fields: Any) -> None:
        """Begin with the rude one, for `.txt` files."""
        command = (sys.executable, "-SEs", rude_lsp.__file__, how, str(self._notes))
        await self.start(rude=LanguageServer(command=command, files={".txt": "text"}, **fields))

    async def edit(self, name: str, text: str) -> str:
        """Write a file as a tool does; returns what is told beside the result."""
        path = self.workspace / name
        check = await self.servers.before_change(self.workspace, [path])
        path.write_text(text)
        return (await check.new_errors()).strip() if check else ""

    async def look(self, name: str | None = None) -> str:
        """Ask what is wrong, as the tool `diagnostics` does."""
        return await self.servers.all_of(self.workspace, name and self.workspace / name)

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

    def pids(self) -> list[int]:
        """The processes that the rude one ran as, oldest first."""
        return [note["pid"] for note in self.notes() if "pid" in note]

    def kill(self) -> None:
        os.kill(self.pids()[-1], signal.SIGKILL)

    async def until(self, comes_true: Callable[[], bool]) -> None:
        """Wait for what nobody announces, such as the end of a server."""
        with trio.fail_after(PATIENCE_S):
            while not comes_true():  # noqa: ASYNC110
                await trio.sleep(0.01)

    async def until_gone(self) -> None:
        """Wait until no server runs."""
        await self.until(lambda: not self.running)

    async def close(self) -> None:
        """End all servers, as the end of the daemon does."""
        self.scope.cancel()
        await self._over.wait()

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        with self.scope:
            await self.servers.run(task_status=task_status)
        self._over.set()


@pytest.fixture
async def room(tmp_path: Path, nursery: trio.Nursery) -> AsyncGenerator[Room]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    room = Room(workspace, nursery)
    yield room
    await room.close()
