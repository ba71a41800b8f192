"""Runs other programs in the same terminal: the user's editor, a pager, the shell after Ctrl-Z."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from prompt_toolkit.application.run_in_terminal import in_terminal

from tiller_client.chat.screen import Screen
from tiller_client.chat.state import ChatState
from tiller_client.connecting.runtime import chosen_remote
from tiller_client.errors import UsageError
from tiller_client.variables import command_in

EDITOR = "vi"
"""The editor if neither VISUAL nor EDITOR is set."""


class Outside:
    """Lends the terminal to other programs, and draws everything anew afterwards."""

    def __init__(self, state: ChatState, screen: Screen) -> None:
        self._state = state
        self._screen = screen

    async def show(self, *arguments: str) -> None:
        """Run a verb of tiller, such as one that shows a text in a pager."""
        command = tiller_command(*arguments)
        async with self._given_away():
            await asyncio.to_thread(subprocess.run, command, check=False)

    async def read(self, path: str) -> None:
        """Show a file in the user's pager, from its end on."""
        pager = command_in("PAGER") or ["less", "+G"]
        if not await asyncio.to_thread(Path(path).exists):
            self._state.say("its output is not in a file yet; it is once the command has ended")
            return
        try:
            async with self._given_away():
                await asyncio.to_thread(subprocess.run, [*pager, path], check=False)
        except OSError as error:
            self._state.say(f"the pager failed: {error}; the output is in {path}")

    async def edit(self) -> None:
        """Open the text in the user's editor, and take back the edited text."""
        editor = self._state.editor
        try:
            command = command_in("VISUAL") or command_in("EDITOR") or [EDITOR]
            async with self._given_away():
                editor.put(await asyncio.to_thread(_edited, command, editor.whole()))
        except (OSError, UsageError, subprocess.CalledProcessError) as error:
            self._state.say(f"the editor failed, so the text is unchanged: {error}")

    async def suspend(self) -> None:
        """Suspend this process, as programs do at Ctrl-Z, until the shell continues it."""
        async with self._given_away():
            os.kill(0, signal.SIGTSTP)

    @contextlib.asynccontextmanager
    async def _given_away(self) -> AsyncGenerator[None]:
        screen = self._screen
        painter = screen.painter
        await screen.pace.settle()
        try:
            async with in_terminal():
                painter.erase()
                painter.end()
                yield
        finally:  # in raw mode again, or the terminal's answers would be echoed
            screen.begin()
            painter.forget()
        self._state.changed()


def _edited(command: Sequence[str], text: str) -> str:
    """Let the user edit a text; raises `OSError` or `CalledProcessError` if the editor fails."""
    with tempfile.NamedTemporaryFile("w", suffix=".md", prefix="tiller-") as file:
        file.write(text)
        file.flush()
        subprocess.run([*command, file.name], check=True)
        # An editor may have put another file in this place.
        return Path(file.name).read_text(errors="replace").rstrip("\n")


def tiller_command(*arguments: str) -> list[str]:
    """The command line of a verb of tiller, for the same daemon."""
    remote = chosen_remote()
    host = ["--host", remote.host] if remote else []
    return [sys.executable, "-m", "tiller_client", *host, *arguments]
