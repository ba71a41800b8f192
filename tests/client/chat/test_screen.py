"""What is on the terminal, as far as the chat can know it."""

import asyncio
import os
from collections.abc import Callable, Coroutine

from tiller_client.api.for_asyncio import Client
from tiller_client.chat.app import Chat
from tiller_client.chat.opening import open_session
from tiller_client.chat.terminal.keyboard import Keyboard
from tiller_client.chat.terminal.look import Look
from tiller_client.chat.terminal.painter import Painter
from tiller_client.rendering.style import Theme
from tiller_protocol.items import Request
from tiller_protocol.places import Places
from tiller_protocol.snapshot import Snapshot

FAR = 1e12
"""Seconds, by any clock."""


def play(places: Places, body: Callable[[Chat], Coroutine[object, object, None]]) -> None:
    """Play something with a chat on a terminal of its own; there is no daemon."""

    async def run() -> None:
        master, slave = os.openpty()
        with os.fdopen(slave) as stdin:
            painter = Painter(stdin.fileno(), {})
            opening = open_session(Snapshot("s1", workspace="/work"), painter, Look(80, Theme()))
            chat = Chat(Client("test", places=places), opening, Keyboard(stdin))
            chat.screen.begin()
            await body(chat)
            chat.screen.pace.stop()
        os.close(master)

    asyncio.run(run())


def test_keys_are_about_a_request_once_the_terminal_shows_it(places: Places) -> None:
    async def body(chat: Chat) -> None:
        pace, asking = chat.screen.pace, chat.state.asking
        pace.answered()
        chat.screen.draw()
        asking.show(Request("r1", "approval", "Run git push"))
        pace.answered()  # behind the frame before
        assert not asking.takes_keys(FAR, editor_is_empty=True)
        chat.screen.draw()
        assert not asking.takes_keys(FAR, editor_is_empty=True), "it is on its way"
        pace.answered()
        assert asking.takes_keys(FAR, editor_is_empty=True)

    play(places, body)
