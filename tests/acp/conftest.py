"""An editor in front of the real daemon, and a terminal frontend beside it."""

from collections.abc import AsyncGenerator

import pytest
import trio

from e2e.conftest import daemon, frontend, new_daemon, tillers, workspace
from support.daemon import Daemon
from support.editor import Editor, an_editor

__all__ = ["daemon", "editor", "frontend", "new_daemon", "tillers", "workspace"]


@pytest.fixture
async def editor(daemon: Daemon, nursery: trio.Nursery) -> AsyncGenerator[Editor]:
    async with an_editor(daemon, nursery, "--approve", "ask") as editor:
        yield editor
