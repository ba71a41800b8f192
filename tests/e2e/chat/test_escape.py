"""Esc stops a turn at once, whatever streams, and is never the beginning of a later key."""

from collections.abc import Callable

import pytest

from support.chat import ChatTerminal
from support.daemon import Daemon
from support.escaping import INTERRUPTED, READY, interrupt_by_escape, streaming
from support.tmux import TMUX, TmuxChat
from tiller_client.chat.rows import PROMPT
from tiller_client.chat.terminal.painter import ASK

INTERRUPT_S = 2.0
"""Far more than it takes, also on a busy machine; once it took up to 8 s."""

ROUNDS = 3
FRAMES = 10


async def test_escape_interrupts_at_once_while_an_answer_streams(
    opens: Callable[..., ChatTerminal], daemon: Daemon
) -> None:
    chat = opens("-m", daemon.script(streaming()))
    for number in range(ROUNDS):
        assert await interrupt_by_escape(chat, number) < INTERRUPT_S


@pytest.mark.skipif(TMUX is None, reason="needs tmux")
async def test_escape_interrupts_at_once_in_tmux(daemon: Daemon) -> None:
    chat = TmuxChat.start(daemon, "chat", "-m", daemon.script(streaming()))
    try:
        assert await interrupt_by_escape(chat, 0) < INTERRUPT_S
    finally:
        chat.close()


@pytest.mark.parametrize("typed", ["make it shorter", "quit that", "very good", "[A is a list"])
async def test_what_is_typed_after_escape_is_text_and_no_key_with_alt(
    opens: Callable[..., ChatTerminal], daemon: Daemon, typed: str
) -> None:
    chat = opens("-m", daemon.script(streaming()))
    await chat.shows(READY)
    chat.press("go\r")
    await chat.shows("word9")
    frames = chat.written.count(ASK)
    chat.press("\x1b")
    await chat.until(lambda: chat.written.count(ASK) >= frames + FRAMES or INTERRUPTED in chat.text)
    chat.press(typed)
    await chat.until(lambda: chat.rows[chat.cursor[0]] == f"{PROMPT}{typed}")
    await chat.shows(INTERRUPTED)
