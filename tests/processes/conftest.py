"""Real processes for the tests of this package."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from tiller_daemon.processes.command import CommandEnd, run_command
from tiller_daemon.processes.environment import child_environment


class Play:
    """One command under watch: what it printed, and the pids it announced with `ready PID`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.printed = b""
        self.pids: list[int] = []
        self._news = trio.Event()

    async def receive(self, piece: bytes) -> None:
        self.printed += piece
        lines = self.printed.split(b"\n")[:-1]
        self.pids = [int(one.split()[1]) for one in lines if one.startswith(b"ready ")]
        self._news.set()
        self._news = trio.Event()

    async def until_ready(self, count: int) -> None:
        while len(self.pids) < count:
            await self._news.wait()

    async def run(self, command: str, *, timeout_s: float = 60.0, call_id: str = "c") -> CommandEnd:
        return await run_command(
            ["bash", "-c", command],
            directory=self.directory,
            variables=child_environment(os.environ, (), "LOG-OF-TESTS", call_id),
            receive=self.receive,
            timeout_s=timeout_s,
        )

    def survivors(self) -> list[int]:
        """Return which of the announced processes still exist, zombies included."""
        return [pid for pid in self.pids if Path(f"/proc/{pid}").exists()]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return Play(tmp_path)


@pytest.fixture
def new_play(tmp_path: Path) -> Callable[[], Play]:
    return lambda: Play(tmp_path)


def until(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
