"""Other programs in the same terminal: the user's editor, a pager, the shell behind Ctrl-Z."""

import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit.application.run_in_terminal import in_terminal

from tiller_client.connecting.runtime import chosen_remote

if TYPE_CHECKING:
    from tiller_client.chat.app import Chat

EDITOR = "vi"
"""Where neither VISUAL nor EDITOR is set."""


class Outside:
    """Gives the terminal away for a while, and draws everything anew afterwards."""

    def __init__(self, chat: "Chat") -> None:
        self._chat = chat

    def show(self, *arguments: str) -> None:
        """Run one of our verbs, such as one that pages."""
        self._start(self._show(tiller_command(*arguments)))

    def edit(self) -> None:
        """Write in the user's editor; what is written there comes back."""
        self._start(self._edit())

    def suspend(self) -> None:
        """Stop, as programs do at Ctrl-Z, until the shell continues this process."""
        self._start(self._suspend())

    def _start(self, work: Coroutine[object, object, None]) -> None:
        self._chat.app.create_background_task(work)

    @contextlib.asynccontextmanager
    async def _given_away(self) -> AsyncGenerator[None]:
        screen = self._chat.screen
        painter = screen.painter
        await screen.pace.settle()
        try:
            async with in_terminal():
                painter.erase()
                painter.end()
                yield
        finally:  # in raw mode again, or what the terminal answers would be echoed
            screen.begin()
            painter.forget()
        self._chat.app.invalidate()

    async def _show(self, command: list[str]) -> None:
        async with self._given_away():
            await asyncio.to_thread(subprocess.run, command, check=False)

    async def _edit(self) -> None:
        editor = self._chat.editor
        command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or EDITOR)
        try:
            async with self._given_away():
                editor.put(await asyncio.to_thread(_edited, command, editor.whole()))
        except (OSError, subprocess.CalledProcessError) as error:
            self._chat.say(f"nothing was changed: {error}")

    async def _suspend(self) -> None:
        async with self._given_away():
            os.kill(0, signal.SIGTSTP)


def _edited(command: Sequence[str], text: str) -> str:
    """Let the user edit a text; raises `OSError` or `CalledProcessError` if the editor fails."""
    descriptor, name = tempfile.mkstemp(".md", "tiller-")
    path = Path(name)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        subprocess.run([*command, name], check=True)
        return path.read_text(errors="replace").rstrip("\n")
    finally:
        path.unlink(missing_ok=True)


def tiller_command(*arguments: str) -> list[str]:
    """The command line of one of our verbs, for the same daemon."""
    remote = chosen_remote()
    host = ["--host", remote.host] if remote else []
    return [sys.executable, "-m", "tiller_client", *host, *arguments]
