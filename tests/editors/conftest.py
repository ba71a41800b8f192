"""Neovim with the plugin in front of the real daemon, and a terminal frontend beside it."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from e2e.conftest import daemon, frontend, new_daemon, workspace
from editors.neovim import Neovim, a_neovim
from support.daemon import Daemon

__all__ = ["daemon", "frontend", "new_daemon", "open_neovim", "workspace"]

Opening = Callable[[Daemon, Path], Awaitable[Neovim]]


@pytest.fixture
async def open_neovim() -> AsyncGenerator[Opening]:
    """Yield a function that starts Neovim without the user's settings; it ends with the test."""
    async with AsyncExitStack() as stack:

        async def start(daemon: Daemon, directory: Path) -> Neovim:
            return await stack.enter_async_context(a_neovim(daemon, directory))

        yield start
