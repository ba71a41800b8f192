"""A target of notifications that a test can look at, and which can fail."""

from collections.abc import Callable

import trio

from tiller_daemon.notify.messages import Message


class Board:
    """A target that shows messages by session, after `fails` failures."""

    def __init__(self, fails: Callable[[], Exception | None] = lambda: None) -> None:
        self.shown: dict[str, str] = {}
        self.messages: list[Message] = []
        """All messages that were shown, in order."""
        self.attempts = 0
        self._fails = fails

    async def show(self, message: Message, shown: str) -> str:
        await self._attempt()
        assert shown in ("", message.session_id), "it replaces the earlier message"
        self.shown[message.session_id] = message.text
        self.messages.append(message)
        return message.session_id

    async def withdraw(self, shown: str) -> None:
        await self._attempt()
        del self.shown[shown]

    async def _attempt(self) -> None:
        self.attempts += 1
        await trio.lowlevel.checkpoint()
        if failure := self._fails():
            raise failure
