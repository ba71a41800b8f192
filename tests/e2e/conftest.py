"""Fixtures: a daemon for all tests of a file, and a frontend and a git repository for each test.

A test whose daemon dies asks for `new_daemon` instead.
"""

import subprocess
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from e2e.clients import Client, Tillers
from support.daemon import Daemon
from support.frontend import Frontend

GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "gc.auto=0")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Generator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("d")) as daemon:
        yield daemon


@pytest.fixture
def new_daemon(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Generator[Callable[..., Daemon]]:
    """Yield a function that makes a daemon, not yet started, which is stopped after the test."""
    with ExitStack() as stack:

        def make(*config: str) -> Daemon:
            made = Daemon(tmp_path_factory.mktemp("d"), *config)
            made.whole = request.node.get_closest_marker("whole_start") is not None
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
async def frontend(daemon: Daemon, nursery: trio.Nursery) -> AsyncGenerator[Frontend]:
    frontend = await Frontend.connect(daemon, nursery)
    yield frontend
    await frontend.close()


@pytest.fixture
async def tillers() -> AsyncGenerator[Tillers]:
    """Yield a function that starts `tiller` for a daemon; the process is killed after the test."""
    started: list[Client] = []

    async def start(daemon: Daemon, *arguments: str) -> Client:
        started.append(await Client.start(daemon, *arguments))
        return started[-1]

    yield start
    for client in started:
        await client.close()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A git repository with one commit."""
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "greeting.txt").write_text("hello\n")
    for arguments in (("init", "-q", "-b", "master"), ("add", "."), ("commit", "-qm", "Begin")):
        subprocess.run([*GIT, *arguments], cwd=repository, check=True)
    return repository
