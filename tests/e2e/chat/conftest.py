"""Terminals with `tiller chat`, which end with the test."""

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from support.chat import ECHOED, ChatTerminal
from support.daemon import Daemon

Opens = Callable[..., ChatTerminal]


@pytest.fixture
def opens(daemon: Daemon, workspace: Path) -> Generator[Opens]:
    """Yield a function that opens a chat in the workspace, with a model and further arguments."""
    opened: list[ChatTerminal] = []

    def start(*arguments: str, daemon: Daemon = daemon, **more: Any) -> ChatTerminal:
        chat = ChatTerminal.start(daemon, "chat", "-C", str(workspace), *arguments, **more)
        opened.append(chat)
        return chat

    yield start
    for chat in opened:
        chat.close()
    shown = "".join(chat.written for chat in opened)
    assert not any(echoed in shown for echoed in ECHOED), "a terminal's answer is no text"
