"""Presses Esc while an answer streams, and measures how long the interrupt takes."""

import time

from support.chat import ChatTerminal
from support.tmux import TmuxChat
from tiller_client.chat.rows import PROMPT
from tiller_daemon.models.scripted import HangPart, ScriptStep, TextPart, WaitPart

PIECES_PER_S = 200
PIECES = 3_000
"""The pieces of an answer that nobody interrupts: they take 15 s."""

INTERRUPTED = "\N{BLACK SQUARE} interrupted"
READY = "write a message"
TYPED = "make it shorter, quit that, very much"
"""Begins with a letter that opens a menu after Esc."""


def streaming() -> ScriptStep:
    """An answer that streams fast and for a long time, again and again."""
    pieces = [
        part
        for number in range(PIECES)
        for part in (TextPart(f"word{number} "), WaitPart(1 / PIECES_PER_S))
    ]
    return ScriptStep(parts=(*pieces, HangPart()), repeat=True)


async def interrupt_by_escape(chat: ChatTerminal | TmuxChat, number: int) -> float:
    """Interrupt a streaming answer; return the seconds until the chat says so.

    Raise if the text that is typed right after this does not arrive whole.
    """
    await chat.until(lambda: READY in chat.rows[chat.cursor[0]])
    chat.press(f"round {number}\r")
    await chat.until(lambda: f"» round {number}\n" in "\n".join(chat.rows))
    await chat.until(lambda: "word9" in _since(chat, number))
    began = time.monotonic()
    chat.press("\x1b")
    await chat.until(lambda: INTERRUPTED in _since(chat, number))
    took_s = time.monotonic() - began
    chat.press(TYPED)
    await chat.until(lambda: chat.rows[chat.cursor[0]] == f"{PROMPT}{TYPED}")
    chat.press("\x15")
    return took_s


def _since(chat: ChatTerminal | TmuxChat, number: int) -> str:
    """What is on the screen since a round's message; all of it if the message is above."""
    return "\n".join(chat.rows).rpartition(f"» round {number}\n")[2]
