"""Gates, where commands wait until the test lets them through, so that no test needs a clock."""

import os
from pathlib import Path

import trio

REACHED_S = 30.0
"""The longest wait for a command to reach a gate."""


class Gate:
    """A FIFO in a workspace, at which `command`, which only reads, waits for the text of `open`."""

    def __init__(self, workspace: Path, name: str = "gate") -> None:
        self.path = workspace / name
        self._writer = -1
        self.command = f"cat {name}"
        os.mkfifo(self.path)

    async def reached(self) -> None:
        """Return when a command waits here."""
        with trio.fail_after(REACHED_S):
            self._writer = await trio.to_thread.run_sync(
                os.open, self.path, os.O_WRONLY, abandon_on_cancel=True
            )

    def open(self, saying: str = "") -> None:
        """Let the waiting command continue."""
        os.write(self._writer, saying.encode())
        self.close()

    def close(self) -> None:
        """Release a command that was ended while it waited here."""
        os.close(self._writer)

    async def pass_one(self, saying: str = "") -> None:
        """Wait for a command and let it through."""
        await self.reached()
        self.open(saying)
