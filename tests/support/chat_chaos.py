"""Runs a chat while killing its daemon, resizing its terminal, and stopping and continuing it."""

import os
import random
import signal
from pathlib import Path

from e2e.words import bash, calls, text
from support.chat import ChatTerminal
from support.daemon import Daemon
from support.tmux import TmuxChat
from tiller_client.connecting.runtime import lock_holder

READY = "write a message"
STEPS = 400
"""Steps in the model's script, more than any run needs."""


async def play_disturbed(
    daemon: Daemon, workspace: Path, seed: int, rounds: int, *, in_tmux: bool = False
) -> None:
    """Play one chat; raise if a typed message is lost, doubled or out of order.

    The daemon runs when this begins. After each kill, the chat starts a new daemon.
    """
    chaotic = _ChaoticChat(daemon, workspace, seed, TmuxChat if in_tmux else ChatTerminal)
    await chaotic.chat.shows(READY)
    daemon.kill9()
    try:
        await chaotic.play(rounds)
    finally:
        chaotic.close()


class _ChaoticChat:
    """One chat and the messages typed into it; `play` continues it, as a seed decides."""

    def __init__(
        self,
        daemon: Daemon,
        workspace: Path,
        seed: int,
        terminal: type[ChatTerminal | TmuxChat],
    ) -> None:
        self._daemon = daemon
        self._random = random.Random(seed)
        self._sent: list[str] = []
        steps = [
            calls(bash(f"echo output {number}"))
            if number % 3
            else text(f"Answer {number}. " * 9, 20)
            for number in range(1, STEPS)
        ]
        model = daemon.script(*steps)
        self.chat = terminal.start(
            *(daemon, "chat", "-C", str(workspace), "-m", model, "--approve", "always")
        )

    async def play(self, rounds: int) -> None:
        """Send `rounds` messages, and disturb everything meanwhile."""
        for number in range(rounds):
            words = f"message {number} with {self._random.randrange(10**9)}"
            cut = self._random.randrange(len(words))
            self.chat.press(words[:cut])
            self._disturb()
            self.chat.press(words[cut:] + "\r")
            self._sent.append(words)
            self._disturb()
            await self.chat.until(lambda words=words: self._has(words))
            await self.chat.until(self._rests)
        shown = "".join(self.chat.text.split())
        squeezed = [words.replace(" ", "") for words in self._sent]
        # The emulator forgets lines when its height shrinks, so some of them are missing now.
        if isinstance(self.chat, TmuxChat):
            assert all(words in shown for words in squeezed), self.chat.text
        assert all(shown.count(words) <= 1 for words in squeezed), self.chat.text
        places = [shown.index(words) for words in squeezed if words in shown]
        assert places == sorted(places), self.chat.text

    def close(self) -> None:
        """End the chat and its daemon."""
        self.chat.close()
        if pid := lock_holder(self._daemon.places.runtime):
            os.kill(pid, signal.SIGTERM)

    def _disturb(self) -> None:
        match self._random.choice(("kill", "resize", "stop", "nothing")):
            case "kill":
                if pid := lock_holder(self._daemon.places.runtime):
                    os.kill(pid, signal.SIGKILL)
            case "resize":
                self.chat.resize(self._random.randint(40, 120), self._random.randint(10, 40))
            case "stop":
                os.kill(self.chat.pid, signal.SIGSTOP)
                os.kill(self.chat.pid, signal.SIGCONT)
            case _:
                pass

    def _has(self, words: str) -> bool:
        """Whether a message is on the terminal, even if broken at any column."""
        return words.replace(" ", "") in "".join(self.chat.text.split())

    def _rests(self) -> bool:
        return READY in self.chat.rows[self.chat.cursor[0]]
